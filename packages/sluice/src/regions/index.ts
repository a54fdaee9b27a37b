// `sluice/regions`: limits that several regions share.

export type { Split } from './region-limits.ts'
export type { RegionOptions } from './region-options.ts'
export { type RegionStore, regionStore } from './region-store.ts'
export type { Shares } from './shares.ts'
