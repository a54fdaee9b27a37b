// Public API of the library. Optional features have their own subpaths: sluice/redis, sluice/express, …

export type { Limit, LimitNumbers } from './algorithms/limit.ts'
export { compileLimit } from './algorithms/limit.ts'
export {
  ALGORITHM_NAMES,
  ALGORITHMS,
  type AlgorithmName,
  type AlgorithmTraits,
  hasPermits,
} from './algorithms/traits.ts'
export { type Clock, systemClock, wallClock } from './clock.ts'
export { bucketOf, type DecidingBucket, type Decision, type Outcome } from './decision.ts'
export { ERRORS, type ErrorCode, type FieldError, LimiterError } from './errors.ts'
export type { HotKey } from './hot-keys/hot-keys.ts'
export { type Counter, TopSketch } from './hot-keys/top-sketch.ts'
export {
  createLimiter,
  type Explanation,
  type Limiter,
  type LimiterOptions,
  type PreparedRules,
} from './limiter.ts'
export { andThen, isPromise, type MaybePromise } from './maybe-promise.ts'
export { nearest, suggestion } from './nearest.ts'
export type { Receipt, ReceiptItem, Redeemed } from './receipt.ts'
export { REASONS, type Reason, type RuleExplanation } from './rules/explain.ts'
export { parseRules } from './rules/parse.ts'
export { plainRule, type Rule, type RuleCondition, type RuleLimit } from './rules/rule.ts'
export type { ConditionInput, LimitInput, PlanInput, RuleInput, RulesInput } from './rules/rule-input.ts'
export { inSlices, mapped, type Sliced } from './slices.ts'
export { type HashSeed, KeyHash, seedOf } from './store/half-sip-hash.ts'
export { type MemoryStoreOptions, memoryStore } from './store/memory.ts'
export { type SomeStats, type StoreStats, storeStats } from './store/stats.ts'
export type {
  BucketName,
  Charge,
  ChargeKind,
  Give,
  GiveResult,
  Grant,
  IdempotencyKey,
  Op,
  Short,
  Source,
  Store,
  Take,
  Taken,
} from './store/store.ts'
export type { Subject } from './subject.ts'
