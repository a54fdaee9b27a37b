// A request as one JSON object per line, by the field names of common servers and proxies (nginx, Caddy, Traefik,
// Envoy, pino, ECS, Google Cloud), or an event of Sluice.

import { canonicalAddress } from '../../canonical/address.ts'
import type { Subject } from '../../subject.ts'
import type { RecordedRequest } from '../recorded-request.ts'
import { pathOf } from './clf.ts'
import { isEvent, readEvent } from './event-line.ts'
import { attributesIn, fieldOf, type JsonObject, textIn, withoutUndefined } from './json-fields.ts'
import { timeUs } from './log-time.ts'

/** Fields in the order in which they are tried; a dot also descends into an object. */
const NAMES = {
  time: [
    ...[
      'at_us',
      '@timestamp',
      'timestamp',
      'time',
      'ts',
      'at',
      'datetime',
      'date',
      'time_iso8601',
      'time_local',
      'msec',
    ],
    ...['StartUTC', 'start_time', 'requestTime', 'eventTime'],
  ],
  ip: [
    ...['ip', 'ip_address', 'client_ip', 'clientip', 'remote_addr', 'remote_ip', 'remoteAddr', 'remoteIp', 'clientIp'],
    ...['source.ip', 'client.ip', 'request.remote_ip', 'request.client_ip', 'req.remoteAddress', 'ClientHost'],
    ...['httpRequest.remoteIp', 'downstream_remote_address', 'sourceIPAddress'],
  ],
  user: ['client_id', 'user_id', 'userId', 'user.id', 'user.name', 'user', 'username', 'remote_user', 'ClientUsername'],
  apiKey: ['api_key', 'apiKey', 'apikey'],
  tenant: ['tenant', 'tenant_id', 'organization_id', 'org_id', 'organization.id'],
  plan: ['plan', 'tier'],
  method: [
    ...['method', 'request_method', 'http_method', 'verb', 'http.request.method', 'request.method', 'req.method'],
    ...['RequestMethod', 'httpRequest.requestMethod', 'httpMethod'],
  ],
  path: [
    ...['path', 'endpoint', 'uri', 'request_uri', 'url.path', 'url.original', 'url', 'request.uri', 'request.url'],
    ...['req.url', 'RequestPath', 'httpRequest.requestUrl', 'target'],
  ],
  request: ['request', 'request_line', 'requestLine'],
  status: [
    ...['status', 'status_code', 'statusCode', 'http.response.status_code', 'response.status', 'res.statusCode'],
    ...['response_code', 'DownstreamStatus', 'httpRequest.status'],
  ],
  cost: ['cost', 'units'],
  allowed: ['allowed'],
  requestId: ['request_id', 'requestId', 'req.id', 'http.request.id'],
} as const satisfies Record<string, readonly string[]>

const TOO_MANY_REQUESTS = 429
const REQUEST_LINE = /^([A-Za-z]{1,32}) (\S{1,8192})(?: HTTP\/\d(?:\.\d)?)?$/

/** A request, or the reason that the line is malformed. */
export function readJsonLine(line: string): RecordedRequest | string {
  let value: unknown
  try {
    value = JSON.parse(line)
  } catch {
    return 'not JSON'
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return 'not a JSON object'
  return readJsonObject(value as JsonObject)
}

export function readJsonObject(object: JsonObject): RecordedRequest | string {
  if (isEvent(object)) return readEvent(object)
  const atUs = timeUs(fieldOf(object, NAMES.time))
  if (atUs === undefined) return 'no time that can be read'
  const ip = textIn(object, NAMES.ip)?.replace(/^(\d+\.\d+\.\d+\.\d+):\d+$/, '$1')
  if (ip !== undefined && canonicalAddress(ip) === undefined) return 'the client is not an address'
  const cost = fieldOf(object, NAMES.cost)
  const status = Number(fieldOf(object, NAMES.status) ?? Number.NaN)
  const allowed = fieldOf(object, NAMES.allowed)
  return {
    kind: 'check',
    atUs,
    subject: withoutUndefined({
      ...{ ip, user: textIn(object, NAMES.user), apiKey: textIn(object, NAMES.apiKey) },
      ...{ tenant: textIn(object, NAMES.tenant), plan: textIn(object, NAMES.plan), ...target(object) },
      cost: typeof cost === 'number' ? cost : undefined,
      attributes: attributesIn(fieldOf(object, ['attributes'])),
    }),
    requestId: textIn(object, NAMES.requestId),
    allowed: typeof allowed === 'boolean' ? allowed : Number.isNaN(status) ? undefined : status !== TOO_MANY_REQUESTS,
  }
}

function target(object: JsonObject): Pick<Subject, 'method' | 'path'> {
  const [, first, second] = REQUEST_LINE.exec(textIn(object, NAMES.request) ?? '') ?? []
  const method = textIn(object, NAMES.method) ?? first
  const path = textIn(object, NAMES.path) ?? second
  return { method, path: path === undefined ? undefined : pathOf(path) }
}
