// Result of a replay, as plain data: the answer of the API, of the command and of a worker. Counts describe all
// traffic: with a sample, replayed counts divided by the sample rate. Numbers of single clients are as replayed.

import type { ClientKind } from './recorded-request.ts'

/**
 * Completeness of a replay, per rule. `exact`: every request of its buckets was replayed. `scaled`: its buckets belong
 * to single clients; the sampled ones were replayed exactly. `needs_full_sample`: clients share its buckets, and only
 * some clients were recorded, so the rule was left out. `missing_facts`: the recording lacks what the rule needs.
 * `incomplete`: events were lost, so it was replayed with gaps.
 */
export type Coverage = 'exact' | 'scaled' | 'needs_full_sample' | 'missing_facts' | 'incomplete'

export type RuleResult = {
  readonly rule_id: string
  readonly mode: 'enforce' | 'shadow'
  readonly coverage: Coverage
  /** Explanation for people; absent if the coverage is exact. */
  readonly reason?: string
  /** Requests that this rule refused or, in shadow mode, would have refused. null: the rule was left out. */
  readonly refused: number | null
  /** The same before the change. null: not known. */
  readonly now_refused: number | null
  readonly clients_refused: number | null
  readonly first_refused_at: string | null
  readonly last_refused_at: string | null
}

/** Counts of one client, not scaled. */
export type ClientResult = {
  readonly client: string
  readonly kind: ClientKind
  readonly requests: number
  readonly refused: number
  readonly now_refused: number | null
  readonly first_refused_at: string | null
  readonly last_refused_at: string | null
  /** Rules that refused it. */
  readonly rules: readonly string[]
}

export type Point = {
  readonly at: string
  readonly requests: number
  readonly refused: number
  readonly now_refused: number | null
}

/** A request that the new rules refuse. */
export type Refusal = {
  readonly at: string
  readonly client: string
  readonly kind: ClientKind
  readonly method: string | null
  readonly path: string | null
  readonly rule_id: string | null
  readonly retry_after_ms: number | null
}

export type Totals = { readonly allowed: number; readonly refused: number }

export type ReplayResult = {
  /** Requests that were replayed; `totals` divides them by the sample rate. */
  readonly replayed: number
  readonly from: string | null
  readonly to: string | null
  readonly sample_rate: number
  /** `now` and all fields that begin with it: another rule set, the recorded decisions, or nothing. */
  readonly against: 'rules' | 'recorded' | 'nothing'
  readonly new: Totals
  readonly now: Totals | null
  /** Requests and clients whose result changes. null: nothing to compare with. */
  readonly changes: {
    readonly newly_denied: number
    readonly newly_allowed: number
    /** Clients with at least one newly denied request. */
    readonly clients_newly_denied: number
    readonly clients_newly_allowed: number
  } | null
  readonly clients: { readonly seen: number; readonly refused: number; readonly now_refused: number | null }
  readonly rules: readonly RuleResult[]
  /** Clients with the most refused requests, before or after the change. */
  readonly top: readonly ClientResult[]
  readonly timeline: { readonly step_seconds: number; readonly points: readonly Point[] }
  /** The first newly denied requests; without a comparison, the first refused ones. */
  readonly refusals: readonly Refusal[]
  readonly operations: {
    readonly refunds: number
    readonly resets: number
    /** Refunds of requests and resets of rules that the replay does not have. */
    readonly unmatched: number
  }
  readonly inaccuracies: {
    /** Requests that the engine rejected, such as one with a malformed address. */
    readonly invalid: number
    /** The first reason, for people. */
    readonly invalid_reason: string | null
    /** Requests that came out of order by more than the reorder buffer; they were replayed late. */
    readonly late: number
    /** Requests of clients beyond the cap: counted in totals and rules, but not per client. */
    readonly untracked: number
    /** Requests whose recorded decision an override, bypass token or signal changed: these are not replayed. */
    readonly exceptions: number
    /** Takes from overflow buckets, because there were too many keys. */
    readonly overflowed: number
  }
}
