// Merges rollup rows of several batches into rows per minute. Memory is bounded: beyond the cap, the rows of the oldest
// minutes are dropped.

import type { ClientRow, CountRow, LatencyRow, LimitRow, Rollups } from './event.ts'

const ROWS_MAX = 50_000

/** `uncounted`: decisions in dropped rows. */
export function mergedRollups(all: readonly Rollups[]): { readonly rollups: Rollups; readonly uncounted: number } {
  const counts = byMinute(
    all.flatMap((one) => one.counts),
    ({ rule, endpoint, plan, tenant, result, source }) => [rule, endpoint, plan, tenant, result, source],
    (sum: CountRow, row) => {
      sum.count += row.count
    },
  )
  const limits = byMinute(
    all.flatMap((one) => one.limits),
    ({ rule, limit, mode }) => [rule, limit, mode],
    (sum: LimitRow, row) => addResults(sum, row),
  )
  const clients = byMinute(
    all.flatMap((one) => one.clients),
    ({ kind, client }) => [kind, client],
    (sum: ClientRow, row) => addResults(sum, row),
  )
  const latency = byMinute(
    all.flatMap((one) => one.latency),
    ({ le_us }) => [le_us],
    (sum: LatencyRow, row) => {
      sum.count += row.count
    },
  )
  const [kept, dropped] = newest(counts)
  const rollups = { counts: kept, limits: newest(limits)[0], clients: newest(clients)[0], latency }
  return { rollups, uncounted: dropped.reduce((sum, { count }) => sum + count, 0) }
}

function byMinute<R extends { readonly time: number }>(
  rows: readonly R[],
  key: (row: R) => readonly (string | number)[],
  add: (sum: R, row: R) => void,
): R[] {
  const merged = new Map<string, R>()
  for (const row of rows) {
    const time = minuteOf(row.time)
    const id = JSON.stringify([time, ...key(row)])
    const sum = merged.get(id)
    if (sum === undefined) merged.set(id, { ...row, time })
    else add(sum, row)
  }
  return [...merged.values()]
}

export function minuteOf(second: number): number {
  return second - (second % 60)
}

type Results = { allowed: number; refused: number; near_limit: number }

function addResults(sum: Results, { allowed, refused, near_limit }: Results): void {
  sum.allowed += allowed
  sum.refused += refused
  sum.near_limit += near_limit
}

function newest<R extends { readonly time: number }>(rows: readonly R[]): readonly [kept: R[], dropped: R[]] {
  const sorted = [...rows].sort((a, b) => b.time - a.time)
  return [sorted.slice(0, ROWS_MAX), sorted.slice(ROWS_MAX)]
}
