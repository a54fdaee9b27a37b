// `sluice/client`: for those who are limited by others. It stands alone: nothing of the engine, nothing of Node.js.

export type { Call, FetchInput } from './call.ts'
export {
  type CallReport,
  type GaveUp,
  type PoliteEvent,
  type PoliteFetch,
  type PoliteOptions,
  type PoliteResponse,
  politeFetch,
} from './polite-fetch.ts'
export { readLimits, type Told, type ToldLimit } from './told-limits.ts'
