// Numbers that stores report for metrics. A name that is not listed here does not compile.

/** Every gauge and total that a store can report, with its default. */
export const EMPTY_STATS = {
  // Memory store
  keys: 0,
  overflowed: 0,
  // Redis
  batches: 0,
  requests: 0,
  errors: 0,
  dropped: 0,
  // Deadline and circuit breaker
  timeouts: 0,
  failures: 0,
  /** Requests that `on_fail` decided: the sum over the reasons that follow. */
  policy_decisions: 0,
  policy_timeout: 0,
  policy_unavailable: 0,
  policy_breaker_open: 0,
  policy_drill: 0,
  policy_store_full: 0,
  policy_too_many_waiting: 0,
  policy_closing: 0,
  late_replies: 0,
  late_returns: 0,
  breaker_open: 0,
  waiting: 0,
  // Scatter
  scattered: 0,
  rolled_back: 0,
  // Leases
  leases: 0,
  leases_dropped: 0,
  leased: 0,
  store_queries: 0,
  refused_by_lease: 0,
  /** Takes of leased limits that queried the store. */
  lease_misses: 0,
  /** Queries for units before they were needed. */
  lease_refills: 0,
  /** Leased units that expired before they were spent. */
  lease_units_expired: 0,
  /** Units that the store charged, leased units included. */
  units_charged: 0,
  returned: 0,
  // Approximate limits
  syncs: 0,
  syncs_over: 0,
  syncs_lost: 0,
  unsynced: 0,
  // Regions
  region_home_units: 0,
  region_borrowed_units: 0,
  region_pool_requests: 0,
  region_leases: 0,
  region_lag_ms: 0,
  region_isolated: 0,
  region_home_share: 0,
  region_pool_share: 0,
  region_clock_difference_ms: 0,
  region_window_excess: 0,
}

export type StoreStats = Readonly<typeof EMPTY_STATS>

/** The numbers that one store knows; a wrapper adds its own to those of the store it wraps. */
export type SomeStats = Partial<StoreStats>

/** All numbers of a store and the stores it wraps. */
export function storeStats(store: { stats?(): SomeStats }): StoreStats {
  return { ...EMPTY_STATS, ...store.stats?.() }
}

/** Adds up the numbers of several stores, name by name. */
export function sumStats(list: readonly SomeStats[]): StoreStats {
  const sums = { ...EMPTY_STATS }
  for (const stats of list) {
    for (const name of Object.keys(sums) as (keyof StoreStats)[]) sums[name] += stats[name] ?? 0
  }
  return sums
}
