// The options of a region, and the refusal of those that do not exist.

import type { Clock, Timers } from '../clock.ts'
import { type KnownFields, requireKnown, requireStore } from '../known-fields.ts'
import type { Store } from '../store/store.ts'
import type { Shares } from './shares.ts'

export type RegionOptions = {
  /** The region this node is in: one of those that have a weight. */
  readonly name: string
  readonly shares: Shares
  /** The shares that are to come: until they replace the others, each part is the smaller of both. */
  readonly nextShares?: Shares | undefined
  /** Where this region counts. */
  readonly regional: Store
  /** Where the pools are: one for all regions. It needs no leases of its own, and patience with the distance. */
  readonly global: Store
  /** A global store that answers within so many milliseconds is asked at once; one that is farther, ahead of need. */
  readonly nearMs?: number | undefined
  /** Of this node: only spans of time are read off it. */
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
