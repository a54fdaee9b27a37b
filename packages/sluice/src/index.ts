// The public face of the engine. Optional parts have subpaths of their own: sluice/redis, sluice/express, …

export type { AlgorithmName, Limit, LimitNumbers } from './algorithms/limit.ts'
export { ALGORITHMS, compileLimit } from './algorithms/limit.ts'
export { type Clock, systemClock, wallClock } from './clock.ts'
export { bucketOf, type DecidingBucket, type Decision, type Outcome } from './decision.ts'
export { ERRORS, type ErrorCode, type Fault, LimiterError } from './errors.ts'
export type { HotKey } from './hot-keys/hot-keys.ts'
export {
  createLimiter,
  type Explanation,
  type Limiter,
  type LimiterOptions,
  type PreparedRules,
} from './limiter.ts'
export { nearest, suggestion } from './nearest.ts'
export type { Receipt, ReceiptItem, Redeemed } from './receipt.ts'
export { REASONS, type Reason, type RuleExplanation } from './rules/explain.ts'
export { parseRules } from './rules/parse.ts'
export { plainRule, type Rule, type RuleCondition, type RuleLimit } from './rules/rule.ts'
export type { ConditionInput, LimitInput, PlanInput, RuleInput, RulesInput } from './rules/rule-input.ts'
export { inSlices, mapped, type Sliced } from './slices.ts'
export { type MemoryStoreOptions, memoryStore } from './store/memory.ts'
export type {
  BucketName,
  Charge,
  ChargeKind,
  Give,
  Given,
  Grant,
  Once,
  Op,
  Short,
  Source,
  Store,
  Take,
  Taken,
} from './store/store.ts'
export type { Subject } from './subject.ts'
