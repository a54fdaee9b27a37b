// Random batches of events and rollups for tests of sinks, with names that break careless SQL and JSON.

import { type Random, seededRandom } from 'sluice/testing'
import {
  type Batch,
  type ClientKind,
  type ClientRow,
  type CountRow,
  type DecisionEvent,
  EVENT_SOURCES,
  type LatencyRow,
  type LimitRow,
} from '../src/events/event.ts'

/** Values that every database can store. NUL and lone surrogates are not among them: PostgreSQL refuses both. */
export const HOSTILE: readonly string[] = [
  `'; DROP TABLE sluice_counts; --`,
  'back\\slash\\',
  `quotes ' '' " \` \\' $1 \${x} {a:String} ? %s`,
  'new\nline\r\ttab\b\f\v\u0001\u001b[31m\u007f',
  'emoji 😀 é\u2028\u2029 \ufeff \ufffd',
  '\\N',
  'null',
  '',
  `${'long/'.repeat(204)}1 kB`,
]

export const RULES: readonly string[] = ['login', 'search', 'none', 'other', ...HOSTILE]
export const ENDPOINTS: readonly string[] = ['POST /login', '/api/*', 'none', 'other', ...HOSTILE]
export const PLANS: readonly string[] = ['free', 'pro', 'none', ...HOSTILE.slice(0, 3)]
export const TENANTS: readonly string[] = ['acme', 'none', 'other', ...HOSTILE.slice(3, 6)]
export const LIMITS: readonly string[] = ['per minute', 'per/day', ...HOSTILE.slice(0, 4)]
export const CLIENTS: readonly string[] = ['alice', 'bob', '192.0.2.1', 'hmac:0123456789abcdef', ...HOSTILE]
export const KINDS: readonly ClientKind[] = ['user', 'api_key', 'ip']
const BOUNDS: readonly number[] = [100, 250, 1000, 5000, -1]

/** Batches of the 26 hours before `nowMs`: always of at least two days. */
export function randomBatches(seed: number, nowMs: number, batches: number, rows = 40): Batch[] {
  const random = seededRandom(seed)
  return Array.from({ length: batches }, () => randomBatch(random, nowMs, rows))
}

function randomBatch(random: Random, nowMs: number, rows: number): Batch {
  const list = <T>(row: () => T): T[] => Array.from({ length: random.between(1, rows) }, row)
  const time = () => Math.floor(nowMs / 1000) - random.pick([1, random.between(1, 600), random.between(1, 26 * 3600)])
  const counts = () => {
    const allowed = random.between(0, 3)
    return { allowed, refused: random.between(0, 3), near_limit: random.between(0, allowed) }
  }
  return {
    events: list(() => randomEvent(random, time() * 1000 + random.between(0, 999))),
    counts: list(
      (): CountRow => ({
        time: time(),
        rule: random.pick(RULES),
        endpoint: random.pick(ENDPOINTS),
        plan: random.pick(PLANS),
        tenant: random.pick(TENANTS),
        result: random.pick(['allowed', 'refused']),
        source: random.pick(EVENT_SOURCES),
        count: random.pick([1, 2, random.between(1, 1e9)]),
      }),
    ),
    limits: list(
      (): LimitRow => ({
        time: time(),
        rule: random.pick(RULES),
        limit: random.pick(LIMITS),
        mode: random.pick(['enforce', 'shadow']),
        ...counts(),
      }),
    ),
    clients: list(
      (): ClientRow => ({ time: time(), kind: random.pick(KINDS), client: random.pick(CLIENTS), ...counts() }),
    ),
    latency: list((): LatencyRow => ({ time: time(), le_us: random.pick(BOUNDS), count: random.between(1, 100) })),
  }
}

export function randomEvent(random: Random, timestamp: number): DecisionEvent {
  const text = () => random.pick(CLIENTS)
  const maybe = <T>(value: T): T | null => (random.between(0, 2) === 0 ? null : value)
  const count = () => random.pick([0, 1, 100, Number.MAX_SAFE_INTEGER])
  const digits = (length: number) => Array.from({ length }, () => random.between(0, 15).toString(16)).join('')
  return {
    event_id: `${digits(8)}-${digits(4)}-7${digits(3)}-8${digits(3)}-${digits(12)}`,
    timestamp,
    operation: 'check', // refunds and resets: event-operations.test.ts
    store_time_us: timestamp * 1000 + random.between(0, 999),
    sequence: count(),
    request_cost: maybe(count()),
    attributes: maybe(JSON.stringify({ [text()]: text() })),
    admission_rate: random.pick([0, 0.01, 1]),
    sample_position: maybe(random.next()),
    request_id: text(),
    client_id: maybe(text()),
    api_key: maybe(text()),
    ip: maybe(text()),
    tenant: maybe(random.pick(TENANTS)),
    plan: maybe(random.pick(PLANS)),
    method: maybe(random.pick(['GET', 'POST', ...HOSTILE])),
    endpoint: maybe(text()),
    endpoint_pattern: random.pick(ENDPOINTS),
    rule_id: maybe(random.pick(RULES)),
    limit_name: maybe(random.pick(LIMITS)),
    scope: maybe(text()),
    mode: random.pick(['enforce', 'shadow', null]),
    shadow_refused_by: maybe(random.pick(RULES)),
    override_id: maybe('ovr_018bcfe5680011223344'),
    bypass_id: maybe('byp_018bcfe5680011223344'),
    signal: maybe('credential_stuffing'),
    bucket_key: text(),
    allowed: random.pick([true, false]),
    current_count: maybe(count()),
    limit_count: maybe(count()),
    remaining: maybe(count()),
    cost: count(),
    retry_after_ms: maybe(count()),
    version: count(),
    source: random.pick(EVENT_SOURCES),
    region: maybe(text()),
    node: text(),
    decision_us: random.between(0, 1e6),
    sample_rate: random.pick([1, 0.01, 0.5]),
  }
}
