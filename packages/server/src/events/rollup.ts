// Counts every decision by its properties, per second. Memory is bounded: each dimension has a cap, and so has the
// number of rows.

import { type Decision, TopSketch } from 'sluice'
import { type Client, storable } from './client-key.ts'
import type { ClientRow, CountRow, EventSource, LatencyRow, LimitRow, Result, Rollups } from './event.ts'
import { EVENT_SOURCES, NONE, OTHER } from './event.ts'
import { Names } from './names.ts'

const CAPS = { rules: 500, endpoints: 500, plans: 50, tenants: 200 } as const
/** Rows per second and table; beyond it, decisions count as `other`. */
const ROWS_MAX = 5000
const TOP_CLIENTS = 200
/** At least this share of the capacity in use counts as near the limit. */
const NEAR = 0.8
/** Rows hold plans and tenants up to this length. */
export const PLAN_LENGTH_MAX = 64
export const TENANT_LENGTH_MAX = 128

/** Upper bounds in microseconds; -1 has none. */
export const LATENCY_BOUNDS_US: readonly number[] = [
  ...[5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000],
]

export type Counted = {
  readonly decision: Decision
  readonly endpoint: string
  readonly plan: string | undefined
  readonly tenant: string | undefined
  readonly client: Client | undefined
  readonly source: EventSource
  readonly atMs: number
  readonly decisionUs: number
}

type ClientCount = { flushed: number }

export class RollupCounter {
  readonly #rules = new Names(CAPS.rules)
  readonly #endpoints = new Names(CAPS.endpoints)
  readonly #plans = new Names(CAPS.plans)
  readonly #tenants = new Names(CAPS.tenants)
  #second = 0
  #minute = 0
  #counts = new Map<number, CountRow>()
  #limits = new Map<string, LimitRow>()
  #latency = new Map<number, LatencyRow>()
  #done: { counts: CountRow[]; limits: LimitRow[]; latency: LatencyRow[]; clients: ClientRow[] } = emptyRows()
  #sketches = newSketches()

  /** Decisions counted since the start. */
  counted = 0

  count(decided: Counted): void {
    const second = Math.floor(decided.atMs / 1000)
    if (second !== this.#second) this.#nextSecond(second)
    this.counted += 1
    this.#countDecision(decided, second)
    const isNear = this.#countLimits(decided.decision, second)
    this.#countLatency(decided.decisionUs, second)
    const { client, decision } = decided
    if (client === undefined) return
    const ranking = decision.allowed ? this.#sketches.allowed : this.#sketches.refused
    ranking.record(client.kind, client.name, { flushed: 0 })
    if (isNear) this.#sketches.near_limit.record(client.kind, client.name, { flushed: 0 })
  }

  /** Returns the rows since the last call. */
  take(): Rollups {
    this.#closeSecond()
    const rows = this.#done
    this.#done = emptyRows()
    return rows
  }

  #nextSecond(second: number): void {
    this.#closeSecond()
    this.#second = second
    const minute = Math.floor(second / 60)
    if (minute !== this.#minute) this.#sketches = newSketches() // rankings start again every minute
    this.#minute = minute
  }

  #closeSecond(): void {
    if (this.#counts.size === 0) return
    this.#done.counts.push(...this.#counts.values())
    this.#done.limits.push(...this.#limits.values())
    this.#done.latency.push(...this.#latency.values())
    this.#done.clients.push(...clientRows(this.#sketches, this.#second))
    this.#counts = new Map()
    this.#limits = new Map()
    this.#latency = new Map()
  }

  #countDecision({ decision, endpoint, plan, tenant, source, atMs }: Counted, time: number): void {
    const rule = this.#rules.idOf(decision.ruleId ?? NONE, atMs)
    const place = this.#endpoints.idOf(endpoint, atMs)
    const planId = this.#plans.idOf(plan === undefined ? NONE : storable(plan, PLAN_LENGTH_MAX), atMs)
    const tenantId = this.#tenants.idOf(tenant === undefined ? NONE : storable(tenant, TENANT_LENGTH_MAX), atMs)
    const sourceId = EVENT_SOURCES.indexOf(source)
    const result = decision.allowed ? 'allowed' : 'refused'
    const known = this.#counts.get(keyOf(rule, place, planId, tenantId, result, sourceId))
    if (known !== undefined) known.count += 1
    else if (this.#counts.size < ROWS_MAX) this.#addCount(time, rule, place, planId, tenantId, result, sourceId)
    else this.#countOther(time, result, sourceId)
  }

  #countOther(time: number, result: Result, source: number): void {
    const known = this.#counts.get(keyOf(0, 0, 0, 0, result, source))
    if (known !== undefined) known.count += 1
    else this.#addCount(time, 0, 0, 0, 0, result, source)
  }

  #addCount(
    time: number,
    rule: number,
    endpoint: number,
    plan: number,
    tenant: number,
    result: Result,
    source: number,
  ): void {
    this.#counts.set(keyOf(rule, endpoint, plan, tenant, result, source), {
      time,
      rule: this.#rules.name(rule),
      endpoint: this.#endpoints.name(endpoint),
      plan: this.#plans.name(plan),
      tenant: this.#tenants.name(tenant),
      result,
      source: EVENT_SOURCES[source] as EventSource, // its index
      count: 1,
    })
  }

  /** Returns whether an enforced limit that admitted the request is nearly used up. */
  #countLimits({ outcomes, allowed: granted }: Decision, time: number): boolean {
    let isNear = false
    for (const { ruleId, name, mode, allowed, remaining, burst } of outcomes) {
      const near = allowed && burst - remaining >= NEAR * burst
      const row = this.#limitRow(ruleId, name, mode, time)
      if (allowed) row.allowed += 1
      else row.refused += 1
      if (!near) continue
      row.near_limit += 1
      if (mode === 'enforce') isNear = true
    }
    return isNear && granted
  }

  #limitRow(rule: string, limit: string, mode: 'enforce' | 'shadow', time: number): LimitRow {
    const key = `${mode} ${rule}/${limit}` // ids and names contain neither spaces nor slashes
    const known = this.#limits.get(key)
    if (known !== undefined) return known
    if (this.#limits.size >= ROWS_MAX && rule !== OTHER) return this.#limitRow(OTHER, OTHER, mode, time)
    const row: LimitRow = { time, rule, limit, mode, allowed: 0, refused: 0, near_limit: 0 }
    this.#limits.set(key, row)
    return row
  }

  #countLatency(us: number, time: number): void {
    let index = 0
    while (index < LATENCY_BOUNDS_US.length && us > (LATENCY_BOUNDS_US[index] as number)) index += 1
    const row = this.#latency.get(index)
    if (row === undefined) this.#latency.set(index, { time, le_us: LATENCY_BOUNDS_US[index] ?? -1, count: 1 })
    else row.count += 1
  }
}

/** Below 2^53: each cap is below its factor. */
function keyOf(rule: number, endpoint: number, plan: number, tenant: number, result: Result, source: number): number {
  return ((((rule * 512 + endpoint) * 64 + plan) * 256 + tenant) * 2 + (result === 'allowed' ? 0 : 1)) * 8 + source
}

type Ranking = 'allowed' | 'refused' | 'near_limit'

function newSketches(): Readonly<Record<Ranking, TopSketch<ClientCount>>> {
  const sketch = () => new TopSketch<ClientCount>(TOP_CLIENTS)
  return { allowed: sketch(), refused: sketch(), near_limit: sketch() }
}

/**
 * Decisions of the tracked clients that earlier rows did not count. Leaves out a client whose count is mostly inherited
 * from the previous owner of its counter: a flood of made-up clients would otherwise add rows every second.
 */
function clientRows(sketches: Readonly<Record<Ranking, TopSketch<ClientCount>>>, time: number): ClientRow[] {
  const rows = new Map<string, ClientRow>()
  for (const ranking of ['allowed', 'refused', 'near_limit'] as const) {
    for (const { group, name, item, count, countMin } of sketches[ranking].counters) {
      const fresh = countMin - item.flushed
      if (fresh === 0 || 2 * countMin <= count) continue
      item.flushed = countMin
      const key = `${group} ${name}`
      const kind = group as ClientRow['kind'] // recorded with a kind as its group
      const row = rows.get(key) ?? { time, kind, client: name, allowed: 0, refused: 0, near_limit: 0 }
      row[ranking] += fresh
      rows.set(key, row)
    }
  }
  return [...rows.values()]
}

function emptyRows(): { counts: CountRow[]; limits: LimitRow[]; latency: LatencyRow[]; clients: ClientRow[] } {
  return { counts: [], limits: [], latency: [], clients: [] }
}
