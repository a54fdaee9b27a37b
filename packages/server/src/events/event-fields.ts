// Fields of an event that come from its operation: a decision, a refund or a reset. Keys are in plain text, API keys
// hashed.

import { type AppliedException, bucketOf, type DecidingBucket, type Decision, type Outcome, type Subject } from 'sluice'
import type { KeyHash } from '../log.ts'
import { bucketKey } from './bucket-key.ts'
import { canonicalIp, hashedName, storable } from './client-key.ts'
import { type DecisionEvent, type EventSource, NONE } from './event.ts'

const PATH_MAX = 1024
const BUCKET_KEY_MAX = 2048

/** Fields that do not depend on the operation. */
type OriginFields = 'event_id' | 'timestamp' | 'store_time_us' | 'sequence' | 'region' | 'node' | SampleFields
type SampleFields = 'sample_rate' | 'admission_rate' | 'sample_position'

export type EventFields = Omit<DecisionEvent, OriginFields>

export type EventOrigin = {
  readonly storeUs: number
  readonly rate: number
  readonly admissionRate: number
  readonly position: number | null
}

/** A reset of the buckets of one key; `scope` is that of the rule. */
export type RecordedReset = {
  readonly ruleId: string
  readonly scope: readonly string[]
  readonly key: string | Readonly<Record<string, string>>
}

type Described = { readonly fields: EventFields; readonly bucket: DecidingBucket | undefined }

export type DecisionFacts = {
  readonly subject: Subject
  readonly decision: Decision
  /** The limiter's own decision, which has the bucket, if `decision` replaced it. */
  readonly decided: Decision
  readonly endpoint: string
  readonly source: EventSource
  readonly us: number
  readonly attributes: string | null
  readonly keyHash: KeyHash
}

export function decisionFields(facts: DecisionFacts): Described {
  const { subject, decision, decided, endpoint, source, us, attributes, keyHash } = facts
  const { outcomes, exceptions } = decided
  const { ruleId, limit, remaining } = decision
  const bucket = bucketOf(decided)
  const deciding = outcomes.find((one) => one.ruleId === bucket?.ruleId && one.name === bucket.name)
  const shadow = outcomes.find((one) => one.mode === 'shadow' && !one.allowed)
  const hash = hasApiKey(bucket, deciding) ? keyHash : undefined
  const fields: EventFields = {
    operation: 'check',
    request_id: storable(decision.requestId, PATH_MAX),
    ...subjectFields(subject, keyHash),
    endpoint_pattern: endpoint,
    rule_id: ruleId,
    limit_name: bucket?.name ?? null,
    scope: deciding?.scope ?? null,
    mode: ruleId !== null ? 'enforce' : outcomes.length > 0 ? 'shadow' : null,
    shadow_refused_by: shadow?.ruleId ?? null,
    bucket_key: storable(bucketKey(bucket, hash), BUCKET_KEY_MAX),
    override_id: exceptionId(exceptions, 'override'),
    bypass_id: exceptionId(exceptions, 'bypass'),
    signal: exceptionId(exceptions, 'signal'),
    allowed: decision.allowed,
    current_count: limit === null || remaining === null ? null : Math.max(0, limit - remaining),
    limit_count: limit,
    remaining,
    cost: deciding?.cost ?? subject.cost ?? 1,
    request_cost: subject.cost ?? 1,
    attributes,
    retry_after_ms: decision.retryAfterMs,
    version: decision.version,
    source,
    decision_us: Math.round(us),
  }
  return { fields, bucket }
}

/** Id of the first exception of a kind; null if there is none. */
function exceptionId(exceptions: readonly AppliedException[], kind: AppliedException['kind']): string | null {
  return exceptions.length === 0 ? null : (exceptions.find((one) => one.kind === kind)?.id ?? null)
}

/** Fields of an operation that decides nothing. */
const NO_DECISION = {
  endpoint_pattern: NONE,
  limit_name: null,
  scope: null,
  mode: null,
  shadow_refused_by: null,
  override_id: null,
  bypass_id: null,
  signal: null,
  allowed: true,
  current_count: null,
  limit_count: null,
  remaining: null,
  cost: 0,
  retry_after_ms: null,
  version: 0,
  source: 'store',
  decision_us: 0,
} as const

/** The facts of the client are those of the check with the same request id. */
export function refundFields({ requestId, units }: { requestId: string; units: number | undefined }): Described {
  const fields: EventFields = {
    ...NO_DECISION,
    operation: 'refund',
    request_id: storable(requestId, PATH_MAX),
    ...NO_SUBJECT,
    rule_id: null,
    bucket_key: bucketKey(undefined, undefined),
    request_cost: units ?? null,
    attributes: null,
  }
  return { fields, bucket: undefined }
}

const NO_SUBJECT = {
  client_id: null,
  api_key: null,
  ip: null,
  tenant: null,
  plan: null,
  method: null,
  endpoint: null,
} as const

/** The facts of the event are those of the key. */
export function resetFields({ ruleId, scope, key }: RecordedReset, keyHash: KeyHash): Described {
  const [first = '', ...others] = scope
  const facts: Readonly<Record<string, string>> = typeof key === 'string' ? { [first]: key } : key
  const { user, api_key: apiKey, ip, tenant, plan, method, endpoint } = facts
  const [verb, path] = endpoint?.includes(' ') ? endpoint.split(' ', 2) : [method, endpoint]
  const known = ['', 'user', 'api_key', 'ip', 'tenant', 'plan', 'method', 'endpoint']
  const attributes = Object.entries(facts).filter(([name]) => !known.includes(name))
  const detail = others.map((name) => facts[name] ?? '').join(':')
  const bucket = { ruleId, name: '', fact: first, owner: facts[first] ?? '', detail }
  const fields: EventFields = {
    ...NO_DECISION,
    operation: 'reset',
    request_id: '',
    ...subjectFields({ user, apiKey, ip, tenant, plan, method: verb, path }, keyHash),
    rule_id: ruleId,
    bucket_key: storable(bucketKey(bucket, scope.includes('api_key') ? keyHash : undefined), BUCKET_KEY_MAX),
    request_cost: null,
    attributes: attributes.length === 0 ? null : JSON.stringify(Object.fromEntries(attributes)),
  }
  return { fields, bucket }
}

function subjectFields({ user, apiKey, ip, tenant, plan, method, path }: Subject, keyHash: KeyHash) {
  return {
    client_id: textOf(user) ?? null,
    api_key: apiKey === undefined ? null : hashedName(keyHash, 'api_key', apiKey),
    ip: canonicalIp(ip) ?? null,
    tenant: textOf(tenant) ?? null,
    plan: textOf(plan) ?? null,
    method: textOf(method) ?? null,
    endpoint: path === undefined ? null : storable(path, PATH_MAX),
  }
}

/** A rule by several facts has its first one as `fact`, and the others in `detail`. */
function hasApiKey(bucket: DecidingBucket | undefined, deciding: Outcome | undefined): boolean {
  if (bucket === undefined || bucket.detail === '') return bucket?.fact === 'api_key'
  return bucket.fact === 'api_key' || deciding === undefined || deciding.scope.includes('api_key')
}

export function textOf(value: string | undefined): string | undefined {
  return value === undefined ? undefined : storable(value)
}

export function sourceOf({ source, allowed }: Decision): EventSource {
  if (source !== 'policy') return source
  return allowed ? 'policy_open' : 'policy_closed'
}
