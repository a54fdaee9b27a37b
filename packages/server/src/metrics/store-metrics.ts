// Metrics of the store: each exposes one field of its `stats()`.

import type { Registry } from 'prom-client'
import type { StoreStats } from 'sluice'
import { type CounterDefinition, type GaugeDefinition, registerCounters, registerGauges } from './registration.ts'

/** `latest` returns the stats read at the beginning of the scrape. */
export function registerStore(registry: Registry, latest: () => StoreStats): void {
  registerCounters(registry, latest, COUNTERS)
  registerGauges(registry, latest, GAUGES)
}

const COUNTERS: readonly CounterDefinition<StoreStats>[] = [
  {
    name: 'sluice_lease_hits_total',
    help: 'Checks paid from leases, without a round trip.',
    read: ({ leased }) => leased,
  },
  {
    name: 'sluice_lease_refusals_total',
    help: 'Checks refused without a round trip, because a refusal of the store still holds.',
    read: ({ refused_by_lease }) => refused_by_lease,
  },
  {
    name: 'sluice_lease_misses_total',
    help: 'Checks of leased limits that waited for the store.',
    read: ({ lease_misses }) => lease_misses,
  },
  {
    name: 'sluice_lease_refills_total',
    help: 'Leases refilled before they were empty; no check waited for it.',
    read: ({ lease_refills }) => lease_refills,
  },
  {
    name: 'sluice_lease_units_expired_total',
    help: 'Leased units that expired before they were spent.',
    read: ({ lease_units_expired }) => lease_units_expired,
  },
  {
    name: 'sluice_units_charged_total',
    help: 'Units that Redis charged for this node, including leased units.',
    read: ({ units_charged }) => units_charged,
  },
  {
    name: 'sluice_leases_evicted_total',
    help: 'Leases returned early to make room for others.',
    read: ({ leases_dropped }) => leases_dropped,
  },
  {
    name: 'sluice_scattered_checks_total',
    help: 'Checks that span several cluster slots or servers.',
    read: ({ scattered }) => scattered,
  },
  {
    name: 'sluice_takes_rolled_back_total',
    help: 'Takes rolled back because another cluster slot or server refused.',
    read: ({ rolled_back }) => rolled_back,
  },
  {
    name: 'sluice_store_queue_full_total',
    help: 'Checks not sent because the queue for Redis was full; on_fail applied.',
    read: ({ dropped }) => dropped,
  },
  {
    name: 'sluice_store_late_replies_total',
    help: 'Replies of Redis that arrived after the deadline and were settled in the background.',
    read: ({ late_replies }) => late_replies,
  },
  {
    name: 'sluice_approximate_syncs_total',
    help: 'Syncs of approximate rules that Redis answered.',
    read: ({ syncs }) => syncs,
  },
  {
    name: 'sluice_approximate_syncs_over_limit_total',
    help: 'Syncs of approximate rules that found the limit exceeded.',
    read: ({ syncs_over }) => syncs_over,
  },
  {
    name: 'sluice_approximate_syncs_lost_total',
    help: 'Syncs of approximate rules that Redis did not answer in time.',
    read: ({ syncs_lost }) => syncs_lost,
  },
  {
    name: 'sluice_overflow_checks_total',
    help: 'Checks of new keys that used an overflow bucket because the key cap was reached.',
    read: ({ overflowed }) => overflowed,
  },
  {
    name: 'sluice_region_home_units_total',
    help: 'Units taken from the home of this region.',
    read: ({ region_home_units }) => region_home_units,
  },
  {
    name: 'sluice_region_borrowed_units_total',
    help: 'Units taken from the pool that all regions share.',
    read: ({ region_borrowed_units }) => region_borrowed_units,
  },
  {
    name: 'sluice_region_pool_requests_total',
    help: 'Charges that waited for the global Redis.',
    read: ({ region_pool_requests }) => region_pool_requests,
  },
]
const GAUGES: readonly GaugeDefinition<StoreStats>[] = [
  { name: 'sluice_leases', aggregator: 'sum', help: 'Leases held by this node.', read: ({ leases }) => leases },
  {
    name: 'sluice_memory_keys',
    aggregator: 'sum',
    help: 'Keys held in the memory of this node.',
    read: ({ keys }) => keys,
  },
  {
    name: 'sluice_approximate_unsynced_units',
    aggregator: 'sum',
    help: 'Units of approximate rules admitted by this node and not yet acknowledged by Redis.',
    read: ({ unsynced }) => unsynced,
  },
  {
    name: 'sluice_region_home_ratio',
    aggregator: 'first',
    help: 'Share of each limit in the home of this region, from 0 to 1.',
    read: ({ region_home_share }) => region_home_share,
  },
  {
    name: 'sluice_region_pool_ratio',
    aggregator: 'first',
    help: 'Share of each limit in the pool that all regions share, from 0 to 1.',
    read: ({ region_pool_share }) => region_pool_share,
  },
  {
    name: 'sluice_region_pool_leases',
    aggregator: 'sum',
    help: 'Leases of pools held by this node.',
    read: ({ region_leases }) => region_leases,
  },
  {
    name: 'sluice_region_isolated',
    aggregator: 'max',
    help: '1 while the global Redis does not answer.',
    read: ({ region_isolated }) => region_isolated,
  },
  {
    name: 'sluice_region_lag_seconds',
    aggregator: 'max',
    help: 'Last round trip to the global Redis, or time since its last reply.',
    read: ({ region_lag_ms }) => region_lag_ms / 1000,
  },
  {
    name: 'sluice_region_clock_difference_seconds',
    aggregator: 'first',
    help: 'Clock of the global Redis minus the clock of the regional Redis.',
    read: ({ region_clock_difference_ms }) => region_clock_difference_ms / 1000,
  },
  {
    name: 'sluice_region_window_excess_ratio',
    aggregator: 'max',
    help: 'Fraction by which a window may exceed its limit because of clock differences.',
    read: ({ region_window_excess }) => region_window_excess,
  },
]
