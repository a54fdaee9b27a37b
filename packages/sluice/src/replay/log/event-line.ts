// Events of Sluice as recorded requests: as in the API and in Kafka, or with ECS field names as in files of JSON lines.
// Hashed values stay as they are; a hashed address becomes an address of its own.

import { canonicalAddress } from '../../canonical/address.ts'
import type { Subject } from '../../subject.ts'
import type { RecordedRequest } from '../recorded-request.ts'
import { attributesIn, type JsonObject, withoutUndefined } from './json-fields.ts'
import { timeUs } from './log-time.ts'

const HASHED = 'hmac:'
const NONE = 'none'

export function isEvent(object: JsonObject): boolean {
  return ('event_id' in object && 'sample_rate' in object) || ('ecs' in object && isObject(object.sluice))
}

/** A request, or the reason why the event is malformed. Takes the fields of an event in any form. */
export function readEvent(object: JsonObject): RecordedRequest | string {
  const event = isObject(object.sluice) ? flattened(object, object.sluice) : object
  const store = event.store_time_us
  const atUs = typeof store === 'number' && store > 0 ? store : timeUs(event.timestamp)
  if (atUs === undefined) return 'no time that can be read'
  const ip = addressOf(text(event.ip))
  if (ip === null) return 'the client is not an address'
  const origin = {
    node: text(event.node),
    sequence: number(event.sequence),
    position: number(event.sample_position),
    sampleRate: number(event.admission_rate) ?? 0,
  }
  const subject = subjectOf(event, ip)
  if (event.operation === 'refund') {
    const requestId = text(event.request_id)
    if (requestId === undefined) return 'a refund without request_id'
    return { kind: 'refund', atUs, requestId, units: number(event.request_cost), ...origin }
  }
  if (event.operation === 'reset') {
    const ruleId = text(event.rule_id)
    if (ruleId === undefined) return 'a reset without rule_id'
    return { kind: 'reset', atUs, ruleId, key: keyOf(subject), ...origin, position: undefined }
  }
  return {
    kind: 'check',
    atUs,
    subject,
    requestId: text(event.request_id),
    allowed: typeof event.allowed === 'boolean' ? event.allowed : undefined,
    ruleId: text(event.rule_id) ?? null,
    ...(hadException(event) && { exception: true }),
    ...origin,
  }
}

function hadException({ override_id, bypass_id, signal }: JsonObject): boolean {
  return [override_id, bypass_id, signal].some((value) => text(value) !== undefined)
}

function subjectOf(event: JsonObject, ip: string | undefined): Subject {
  const cost = number(event.request_cost)
  return withoutUndefined({
    ip,
    user: text(event.client_id),
    apiKey: text(event.api_key),
    tenant: text(event.tenant),
    plan: text(event.plan),
    method: text(event.method),
    path: pathOf(text(event.endpoint)),
    cost: cost === undefined || cost === 1 ? undefined : cost,
    attributes: attributesOf(event.attributes),
  })
}

/** Facts of a key by the names that rules use. */
function keyOf({ user, apiKey, ip, tenant, plan, method, path, attributes = {} }: Subject): Record<string, string> {
  const facts = { ...attributes, user, api_key: apiKey, ip, tenant, plan, method, endpoint: path }
  const texts = Object.entries(facts).flatMap(([name, value]) => (value === undefined ? [] : [[name, String(value)]]))
  return Object.fromEntries(texts)
}

/** With hashed keys, the path is the matched pattern, or `none`. */
function pathOf(endpoint: string | undefined): string | undefined {
  return endpoint === NONE ? '/' : endpoint
}

/** null: not an address. A hashed address becomes one of the range fd00::/8, alone in its /64. */
function addressOf(ip: string | undefined): string | undefined | null {
  if (ip === undefined) return undefined
  if (!ip.startsWith(HASHED)) return canonicalAddress(ip, 128) === undefined ? null : ip
  const digits = ip
    .slice(HASHED.length)
    .replace(/[^\da-f]/g, '')
    .padEnd(14, '0')
  return `fd${digits.slice(0, 2)}:${digits.slice(2, 6)}:${digits.slice(6, 10)}:${digits.slice(10, 14)}::1`
}

function attributesOf(value: unknown): Subject['attributes'] {
  if (typeof value !== 'string') return attributesIn(value)
  try {
    return attributesIn(JSON.parse(value))
  } catch {
    return undefined
  }
}

/** The fields of an ECS document by the names of an event. */
function flattened(document: JsonObject, own: JsonObject): JsonObject {
  const at = (name: string, field: string): unknown => {
    const found = document[name]
    return isObject(found) ? found[field] : undefined
  }
  const http = at('http', 'request')
  const request: JsonObject = isObject(http) ? http : {}
  const node = at('service', 'node')
  return {
    ...own,
    timestamp: document['@timestamp'],
    client_id: at('user', 'id'),
    ip: at('source', 'ip') ?? own.ip ?? own.ip_hash,
    endpoint: at('url', 'path'),
    method: request.method,
    request_id: request.id,
    node: isObject(node) ? node.name : undefined,
  }
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

function number(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined
}
