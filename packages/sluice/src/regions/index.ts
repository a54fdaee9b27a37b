// `sluice/regions`: limits that several regions share.

export type { Split } from './region-parts.ts'
export { type RegionOptions, type RegionStore, regionStore } from './region-store.ts'
export type { Shares } from './shares.ts'
