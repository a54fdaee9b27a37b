// Queries over stored events and rollups. The embedded database and ClickHouse implement the same contract, and one
// test suite runs on both. Times are milliseconds since the epoch; ranges include `fromMs` and exclude `toMs`. A minute
// of a rollup belongs to a range if its start does; its decisions are never divided. Names sort by the bytes of their
// UTF-8.

import type { ClientKind, DecisionEvent, EventSource, Result } from './event.ts'

/** Rollups are queried per minute. */
export const STEP_MS_MIN = 60_000

export type Dimension = 'rule' | 'endpoint' | 'plan' | 'tenant' | 'result' | 'source' | 'limit'

/**
 * Absent: any value. `limit` is `rule/limit name`, and selects the series of outcomes per limit. A filter by `result`
 * makes the counts of the other result 0. With a filter that the series does not have, queries reject: see `rollupOf`.
 */
export type Filter = {
  readonly rule?: string | undefined
  readonly endpoint?: string | undefined
  readonly plan?: string | undefined
  readonly tenant?: string | undefined
  readonly result?: Result | undefined
  readonly source?: EventSource | undefined
  readonly limit?: string | undefined
}

export type Range = { readonly fromMs: number; readonly toMs: number }

export type RollupName = 'counts' | 'limits' | 'clients'

/** Dimensions by which a rollup can be filtered and divided. */
const ROLLUP_DIMENSIONS: Readonly<Record<RollupName, readonly Dimension[]>> = {
  counts: ['rule', 'endpoint', 'plan', 'tenant', 'result', 'source'],
  limits: ['rule', 'limit', 'result'],
  clients: ['result'],
}

/** The query asks for something that is not recorded. The message names it; show it to the user. */
export class QueryInvalid extends Error {
  override readonly name = 'QueryInvalid'
}

/** Returns the rollup that answers a query. Throws QueryInvalid if none has all its dimensions. */
export function rollupOf(filter: Filter, by: Dimension | 'client' | undefined): RollupName {
  const used = (Object.keys(filter) as Dimension[]).filter((name) => filter[name] !== undefined)
  const perLimit = by === 'limit' || filter.limit !== undefined
  const rollup = by === 'client' ? 'clients' : perLimit ? 'limits' : 'counts'
  const known = ROLLUP_DIMENSIONS[rollup]
  const isDivisible =
    by === undefined || by === 'client' || (by === 'result' ? rollup === 'counts' : known.includes(by))
  const missing = used.find((name) => !known.includes(name)) ?? (isDivisible ? undefined : by)
  if (missing === undefined) return rollup
  const subject = rollup === 'clients' ? 'clients' : 'limits'
  throw new QueryInvalid(`${missing}: ${subject} are not counted by ${missing}; only by ${known.join(', ')}`)
}

/** Returns a step in seconds. Throws QueryInvalid unless it is a multiple of STEP_MS_MIN. */
export function stepSeconds(stepMs: number): number {
  if (Number.isSafeInteger(stepMs) && stepMs > 0 && stepMs % STEP_MS_MIN === 0) return stepMs / 1000
  throw new QueryInvalid(`step: ${stepMs} ms is not a multiple of ${STEP_MS_MIN} ms`)
}

export type TimelineQuery = Range & {
  readonly filter: Filter
  /** Multiple of STEP_MS_MIN. Points start at multiples of it. */
  readonly stepMs: number
  /** One series per value of this dimension; undefined: one series called `all`. */
  readonly by: Dimension | undefined
  /**
   * Cap on series: those with the most decisions, then by name; the rest is summed as `other`. The name `other` itself
   * has no rank: it always belongs to the rest. Series come in this order, `other` last; without decisions, none.
   */
  readonly seriesMax: number
}

/** `atMs` is the start of the step, which may be before the range. In order; steps without decisions are absent. */
export type Point = { readonly atMs: number; readonly allowed: number; readonly refused: number }
export type Series = { readonly name: string; readonly points: readonly Point[] }

/** Rows with 0 in the column `by` are left out. Order: `by` descending, then name, then kind. */
export type TopQuery = Range & {
  readonly filter: Filter
  readonly of: 'client' | 'rule' | 'endpoint' | 'plan' | 'tenant' | 'limit'
  readonly by: 'refused' | 'allowed' | 'near_limit'
  /** Only names that contain this text, in any case. */
  readonly search?: string | undefined
  readonly limit: number
}

/** `kind` for clients only. `near_limit` for clients and limits only, else 0. */
export type TopRow = {
  readonly name: string
  readonly kind?: ClientKind
  readonly allowed: number
  readonly refused: number
  readonly near_limit: number
}

/** Clients by refusals that match a filter. Ranges are exact, not rounded to minutes: it reads events. */
export type RefusedClientsQuery = Range & {
  readonly filter: Omit<Filter, 'limit' | 'result'>
  readonly limit: number
}

/** `kind` and `name` as in the top of clients: the user, else the API key, else the address. */
export type RefusedClient = { readonly name: string; readonly kind: ClientKind; readonly refused: number }

export type ClientQuery = Range & {
  readonly kind: ClientKind
  /** As stored: in plain text or hashed. */
  readonly client: string
  readonly stepMs: number
  /** Cap on the events in the report. */
  readonly events: number
}

export type ClientReport = {
  readonly allowed: number
  readonly refused: number
  readonly near_limit: number
  readonly points: readonly Point[]
  /** Newest first, then by event id, descending. */
  readonly events: readonly DecisionEvent[]
}

/** Histogram of one step: decisions by upper bound in microseconds, ascending; -1 has none and comes last. */
export type LatencyPoint = {
  readonly atMs: number
  readonly buckets: readonly (readonly [leUs: number, count: number])[]
}

export type Summary = {
  readonly allowed: number
  readonly refused: number
  /** Most decisions first, then by name; without those that have none. Empty with a filter by `limit`. */
  readonly sources: readonly { readonly name: EventSource; readonly count: number }[]
}

/**
 * `rule`, `plan` and `tenant` `none` select events without one; `endpoint` is compared with the matched pattern.
 * With `result`, only checks; without, refunds and resets too. `client` without `kind`: a client of any kind. `kind`
 * without `client`: events that have such a client.
 */
export type EventsQuery = {
  readonly filter: Omit<Filter, 'limit'> & {
    readonly kind?: ClientKind | undefined
    readonly client?: string | undefined
  }
  readonly fromMs: number
  readonly toMs: number
  /** Last event of the previous page. */
  readonly before?: Pick<DecisionEvent, 'timestamp' | 'event_id'> | undefined
  readonly limit: number
}

export interface Analytics {
  readonly name: 'embedded' | 'clickhouse'
  timeline(query: TimelineQuery): Promise<readonly Series[]>
  top(query: TopQuery): Promise<readonly TopRow[]>
  /** From the stored events, because refusals are never sampled. Most refusals first, then by name, then by kind. */
  refusedClients(query: RefusedClientsQuery): Promise<readonly RefusedClient[]>
  client(query: ClientQuery): Promise<ClientReport>
  latency(query: Range & { readonly stepMs: number }): Promise<readonly LatencyPoint[]>
  summary(query: Range & { readonly filter: Filter }): Promise<Summary>
  /** Newest first, then by event id, descending. */
  events(query: EventsQuery): Promise<readonly DecisionEvent[]>
}
