// Options of a region store, and their validation.

import type { Clock, Timers } from '../clock.ts'
import { type KnownFields, requireKnown, requireStore } from '../known-fields.ts'
import type { Store } from '../store/store.ts'
import type { Shares } from './shares.ts'

export type RegionOptions = {
  /** The region of this node, one of those in `weights`. */
  readonly name: string
  readonly shares: Shares
  /** Shares to change to. Until they replace `shares`, each sublimit is the smaller of both. */
  readonly nextShares?: Shares | undefined
  /** The store of this region. */
  readonly regional: Store
  /** The store of the pools, one for all regions: with `leases: false`, and a deadline that fits the distance. */
  readonly global: Store
  /** A global store with a round trip up to this is tried before the home. Default: 5. */
  readonly nearMs?: number | undefined
  /** Clock of this node; used for durations only. */
  readonly clock?: Clock | undefined
  readonly timers?: Timers | undefined
}

const OPTIONS: KnownFields<RegionOptions> = {
  name: true,
  shares: true,
  nextShares: true,
  regional: true,
  global: true,
  nearMs: true,
  clock: true,
  timers: true,
}

export function checkRegionOptions(options: RegionOptions): void {
  requireKnown(options, OPTIONS, '{ name, shares, regional, global }')
  requireStore('regional', options.regional ?? null) // null: a store is required here
  requireStore('global', options.global ?? null)
}
