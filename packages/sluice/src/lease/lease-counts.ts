// Counts that a lease store adds to the statistics of a node.

import type { StoreStats } from '../store/stats.ts'

type Counted =
  | 'leased'
  | 'store_queries'
  | 'refused_by_lease'
  | 'lease_misses'
  | 'lease_refills'
  | 'units_charged'
  | 'returned'

export type LeaseCounts = Record<Counted & keyof StoreStats, number>

export const NO_COUNTS: Readonly<LeaseCounts> = {
  leased: 0,
  store_queries: 0,
  refused_by_lease: 0,
  lease_misses: 0,
  lease_refills: 0,
  units_charged: 0,
  returned: 0,
}
