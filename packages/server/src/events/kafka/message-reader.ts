// Reads messages of the Kafka topic. Other programs can write to the topic, so every field is checked: a row that this
// file accepts fits the tables of ClickHouse.

import { EVENT_SOURCES, OPERATIONS } from '../event.ts'
import { type Head, MESSAGE_KINDS, type Message, type MessageKind } from './messages.ts'

/** Reasons for skipping a message, in metrics. */
export type BadMessage = 'not_json' | 'unknown_kind' | 'wrong_type'

export type ReadResult = { readonly message: Message } | { readonly bad: BadMessage; readonly detail: string }

type Check = (value: unknown) => boolean

/** Cap on texts. Sinks send much less. */
const TEXT_MAX = 65_536
const PRODUCER_MAX = 200
/** ClickHouse stores seconds as 32 bits without a sign. */
const SECONDS_END = 2 ** 32
const UUID = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i

const isText: Check = (value) => typeof value === 'string' && value.length <= TEXT_MAX
const isCount: Check = (value) => Number.isSafeInteger(value) && (value as number) >= 0
const isInteger: Check = (value) => Number.isSafeInteger(value)
const isNumber: Check = (value) => typeof value === 'number' && Number.isFinite(value)
const isSecond: Check = (value) => isCount(value) && (value as number) < SECONDS_END
const isMillisecond: Check = (value) => isCount(value) && (value as number) < SECONDS_END * 1000
const oneOf =
  (...choices: readonly unknown[]): Check =>
  (value) =>
    choices.includes(value)
const orNull =
  (check: Check): Check =>
  (value) =>
    value === null || check(value)
/** Fields that an older sink does not send. */
const absentOr =
  (check: Check): Check =>
  (value) =>
    value === undefined || check(value)

const FIELDS: Readonly<Record<MessageKind, Readonly<Record<string, Check>>>> = {
  event: {
    event_id: (value) => typeof value === 'string' && UUID.test(value),
    timestamp: isMillisecond,
    operation: oneOf(...OPERATIONS),
    store_time_us: isCount,
    sequence: isCount,
    request_id: isText,
    client_id: orNull(isText),
    api_key: orNull(isText),
    ip: orNull(isText),
    tenant: orNull(isText),
    plan: orNull(isText),
    method: orNull(isText),
    endpoint: orNull(isText),
    endpoint_pattern: isText,
    rule_id: orNull(isText),
    limit_name: orNull(isText),
    scope: orNull(isText),
    mode: oneOf('enforce', 'shadow', null),
    shadow_refused_by: orNull(isText),
    bucket_key: isText,
    override_id: absentOr(orNull(isText)),
    bypass_id: absentOr(orNull(isText)),
    signal: absentOr(orNull(isText)),
    allowed: oneOf(true, false),
    current_count: orNull(isInteger),
    limit_count: orNull(isInteger),
    remaining: orNull(isInteger),
    cost: isInteger,
    request_cost: orNull(isInteger),
    attributes: orNull(isText),
    retry_after_ms: orNull(isInteger),
    version: isCount,
    source: oneOf(...EVENT_SOURCES),
    region: orNull(isText),
    node: isText,
    decision_us: (value) => isNumber(value) && Math.abs(value as number) <= Number.MAX_SAFE_INTEGER,
    sample_rate: isNumber,
    admission_rate: isNumber,
    sample_position: orNull(isNumber),
  },
  counts: {
    time: isSecond,
    rule: isText,
    endpoint: isText,
    plan: isText,
    tenant: isText,
    result: oneOf('allowed', 'refused'),
    source: oneOf(...EVENT_SOURCES),
    count: isCount,
  },
  limits: {
    time: isSecond,
    rule: isText,
    limit: isText,
    mode: oneOf('enforce', 'shadow'),
    allowed: isCount,
    refused: isCount,
    near_limit: isCount,
  },
  clients: {
    time: isSecond,
    client_kind: oneOf('user', 'api_key', 'ip'),
    client: isText,
    allowed: isCount,
    refused: isCount,
    near_limit: isCount,
  },
  latency: { time: isSecond, le_us: isInteger, count: isCount },
}

const CHECKS = perKind((kind) => Object.entries(FIELDS[kind]))
const NAMES = perKind((kind) => Object.keys(FIELDS[kind]))

/** Unknown fields are ignored, so that a newer sink can add some. */
export function readMessage(bytes: Uint8Array | null): ReadResult {
  const value = parse(bytes)
  if (value === undefined) return { bad: 'not_json', detail: 'not a JSON object' }
  const { kind, producer, seq } = value as Partial<Head>
  const known = MESSAGE_KINDS.find((name) => name === kind)
  if (known === undefined) return { bad: 'unknown_kind', detail: `kind is ${shown(kind)}` }
  if (typeof producer !== 'string' || producer === '' || producer.length > PRODUCER_MAX)
    return wrong(known, 'producer', producer)
  if (!isCount(seq)) return wrong(known, 'seq', seq)
  if (known === 'event' && value.operation === undefined) addMissing(value)
  for (const [field, check] of CHECKS[known]) {
    if (!check(value[field])) return wrong(known, field, value[field])
  }
  return { message: value as Message }
}

/** Adds the fields that an event of an older version lacks. */
function addMissing(event: Record<string, unknown>): void {
  event.operation = 'check'
  event.store_time_us = 0
  event.sequence = 0
  event.request_cost = null
  event.attributes = null
  event.admission_rate = 0
  event.sample_position = null
}

/** Copies the known fields of a message to `row`, without `kind`, `producer` and `seq`. */
export function copyFields(message: Message, row: Record<string, unknown>): void {
  const fields = message as Readonly<Record<string, unknown>>
  for (const name of NAMES[message.kind]) row[name] = fields[name]
}

function parse(bytes: Uint8Array | null): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(Buffer.from(bytes ?? []).toString())
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value)
    return isObject ? (value as Record<string, unknown>) : undefined
  } catch {
    return undefined
  }
}

function wrong(kind: MessageKind, field: string, value: unknown): ReadResult {
  return { bad: 'wrong_type', detail: `${kind}: ${field} is ${shown(value)}` }
}

/** The type only: values can be keys of clients. */
function shown(value: unknown): string {
  if (value === undefined) return 'missing'
  return value === null ? 'null' : `an unexpected ${typeof value}`
}

function perKind<T>(value: (kind: MessageKind) => T): Readonly<Record<MessageKind, T>> {
  return {
    event: value('event'),
    counts: value('counts'),
    limits: value('limits'),
    clients: value('clients'),
    latency: value('latency'),
  }
}
