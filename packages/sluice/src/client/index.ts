// `sluice/client`: fetch for APIs with rate limits. Imports neither the engine nor Node.js modules.

export type { Call, FetchInput } from './call.ts'
export { type ReportedLimit, type ReportedLimits, readLimits } from './limit-headers.ts'
export {
  type CallReport,
  type GaveUp,
  type PoliteEvent,
  type PoliteFetch,
  type PoliteOptions,
  type PoliteResponse,
  politeFetch,
} from './polite-fetch.ts'
