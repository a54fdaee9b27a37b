// A decision event, as the stream sends it.

export type DecisionEvent = {
  /** Refunds and resets decide nothing. */
  readonly operation: 'check' | 'refund' | 'reset'
  readonly event_id: string
  readonly timestamp: string
  readonly request_id: string
  readonly client_id: string | null
  readonly api_key: string | null
  readonly ip: string | null
  readonly tenant: string | null
  readonly plan: string | null
  readonly method: string | null
  readonly endpoint: string | null
  readonly endpoint_pattern: string
  readonly rule_id: string | null
  readonly limit_name: string | null
  readonly scope: string | null
  readonly mode: 'enforce' | 'shadow' | null
  readonly shadow_refused_by: string | null
  readonly bucket_key: string
  readonly allowed: boolean
  readonly current_count: number | null
  readonly limit_count: number | null
  readonly remaining: number | null
  readonly cost: number
  /** Cost of the request, or units that a refund returns per limit: null for all of them. */
  readonly request_cost: number | null
  /** Attributes that rules use, as JSON. */
  readonly attributes: string | null
  readonly retry_after_ms: number | null
  readonly version: number
  readonly source: string
  readonly region: string | null
  readonly node: string
  readonly decision_us: number
  readonly sample_rate: number
}

/** The client as people know it: user, else API key, else address. */
export function clientOf({ client_id: user, api_key: key, ip }: DecisionEvent): string {
  return user ?? key ?? ip ?? 'anonymous'
}

/** Rule, limit, fact and key; undefined if no bucket decided, as for a ban from all rules. */
export function bucketText({ bucket_key: key }: Pick<DecisionEvent, 'bucket_key'>): string | undefined {
  return /^:*$/.test(key) ? undefined : key
}

/** Result of the operation: a refund or reset decides nothing. */
export function resultOf({ operation, allowed }: DecisionEvent): { readonly text: string; readonly tone: string } {
  if (operation === 'refund') return { text: 'refund', tone: 'plain' }
  if (operation === 'reset') return { text: 'reset', tone: 'plain' }
  return allowed ? { text: 'allowed', tone: 'good' } : { text: 'refused', tone: 'bad' }
}

/** Source of the decision, in words. */
export const SOURCES: Readonly<Record<string, string>> = {
  store: 'The store (Redis, or memory), with a look at the shared counter.',
  lease: 'A lease: units that this node had taken ahead, or a refusal by Redis at most 200 ms ago. No round trip.',
  local: 'This node alone, with its share of the limit.',
  policy_open: 'No counter: the store did not answer, and on_fail admitted the request.',
  policy_closed: 'No counter: the store did not answer, and on_fail refused the request.',
}
