// Rows of the decision event pipeline. Events describe single decisions and may be sampled; rollups count every
// decision. Names of fields are the same in every sink and in the API.

/** Result of a decision, and of one limit of it. */
export type Result = 'allowed' | 'refused'

/** Source of a decision. `policy_*`: the store did not answer and `on_fail` decided, open or closed. */
export type EventSource = 'store' | 'lease' | 'local' | 'policy_open' | 'policy_closed'

export const EVENT_SOURCES: readonly EventSource[] = ['store', 'lease', 'local', 'policy_open', 'policy_closed']

/** Recorded operations: a check, or one that changes buckets between checks. Only checks count in totals. */
export type Operation = 'check' | 'refund' | 'reset'

export const OPERATIONS: readonly Operation[] = ['check', 'refund', 'reset']

/**
 * One decision, or a refund or reset. Client keys are in plain text, or `hmac:` and a keyed hash; API keys are always
 * hashed.
 */
export type DecisionEvent = {
  /** UUID, version 7: sorts by time. */
  readonly event_id: string
  /** Milliseconds since the epoch. */
  readonly timestamp: number
  readonly operation: Operation
  /** Store time in microseconds. Estimated from earlier decisions if the operation returned none. 0: unknown. */
  readonly store_time_us: number
  /** Number of the event in its process, from 1, without gaps: a missing number is a lost event. */
  readonly sequence: number
  readonly request_id: string
  readonly client_id: string | null
  readonly api_key: string | null
  readonly ip: string | null
  readonly tenant: string | null
  readonly plan: string | null
  readonly method: string | null
  /** Path of the request. With hashed keys: the matched pattern. */
  readonly endpoint: string | null
  /** Most specific pattern of the rules that matched; `none` if no rule with a pattern matched. */
  readonly endpoint_pattern: string
  /** The deciding rule; null if no rule matched. */
  readonly rule_id: string | null
  readonly limit_name: string | null
  readonly scope: string | null
  /** `shadow`: only rules in shadow mode matched. null: no rule matched. */
  readonly mode: 'enforce' | 'shadow' | null
  /** Rule in shadow mode that would have refused the request. */
  readonly shadow_refused_by: string | null
  readonly bucket_key: string
  /** Override that changed the decision. */
  readonly override_id: string | null
  /** Bypass token that the request used. */
  readonly bypass_id: string | null
  /** Kind of the abuse signal that tightened a rule. */
  readonly signal: string | null
  readonly allowed: boolean
  /** Units in use after the decision: `limit_count - remaining`, at least 0. */
  readonly current_count: number | null
  readonly limit_count: number | null
  readonly remaining: number | null
  /** Units that the deciding limit charged. */
  readonly cost: number
  /** Cost of the request itself. For a refund: units per limit, null for all of them. */
  readonly request_cost: number | null
  /** Attributes that the active rules use, as JSON. With hashed keys: null. */
  readonly attributes: string | null
  /** null: waiting will not help, or no rule matched. */
  readonly retry_after_ms: number | null
  readonly version: number
  readonly source: EventSource
  readonly region: string | null
  /** Name of the node that decided, with the number of its worker. */
  readonly node: string
  readonly decision_us: number
  /** Probability with which this event was recorded: 1 for refusals. */
  readonly sample_rate: number
  /** Sample rate of admissions at that time: all requests of clients below it were recorded. 0: unknown. */
  readonly admission_rate: number
  /** Position of the client in [0, 1), the same for all its events. null: no client. */
  readonly sample_position: number | null
}

/** Values of a dimension beyond its cap are counted under this name. */
export const OTHER = 'other'
/** Name of an absent value: no rule decided, or the request had no plan. */
export const NONE = 'none'

/** Decisions of one second with the same properties. Every decision is counted in exactly one row. */
export type CountRow = {
  /** Start of the second, or of the minute if rows were merged, in seconds since the epoch. */
  readonly time: number
  readonly rule: string
  readonly endpoint: string
  readonly plan: string
  readonly tenant: string
  readonly result: Result
  readonly source: EventSource
  count: number
}

/** Outcomes of one limit in one second. A decision counts once per limit that it evaluated. */
export type LimitRow = {
  readonly time: number
  readonly rule: string
  readonly limit: string
  readonly mode: 'enforce' | 'shadow'
  allowed: number
  /** For a limit in shadow mode: would have been refused. */
  refused: number
  /** Admissions (counted in `allowed` too) with at least 80 % of the limit in use. */
  near_limit: number
}

export type ClientKind = 'user' | 'api_key' | 'ip'

/**
 * Decisions of one client in one second, for clients with many decisions. Counts are lower bounds: a client that is not
 * among the top ones is missing.
 */
export type ClientRow = {
  readonly time: number
  readonly kind: ClientKind
  readonly client: string
  allowed: number
  refused: number
  near_limit: number
}

/** Decisions of one second whose duration was at most `le_us` and above the next lower bound. -1: no upper bound. */
export type LatencyRow = { readonly time: number; readonly le_us: number; count: number }

export type Rollups = {
  readonly counts: readonly CountRow[]
  readonly limits: readonly LimitRow[]
  readonly clients: readonly ClientRow[]
  readonly latency: readonly LatencyRow[]
}

export type Batch = Rollups & { readonly events: readonly DecisionEvent[] }
