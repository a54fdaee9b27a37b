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
export type { DecidingBucket, DecidingLimit, Decision, Outcome } from './decision.ts'
export { bucketOf, limitOf, pairsOf, storeTimeOf } from './decision-facts.ts'
export { ERRORS, type ErrorCode, type FieldError, jsonStart, LimiterError } from './errors.ts'
export type { HotKey } from './hot-keys/hot-keys.ts'
export { type Counter, TopSketch } from './hot-keys/top-sketch.ts'
export type { JointDecision } from './joint-check.ts'
export { createLimiter } from './limiter.ts'
export type { Explanation, Limiter, PreparedRules, RemoteState, RemoteView } from './limiter-api.ts'
export type { LimiterOptions } from './limiter-options.ts'
export { andThen, isPromise, type MaybePromise } from './maybe-promise.ts'
export { nearest, suggestion } from './nearest.ts'
export type { Pair } from './pairs.ts'
export type { Receipt, ReceiptItem, Redeemed } from './receipt.ts'
export type { Bypass } from './rules/bypass.ts'
export type { Variant } from './rules/compile.ts'
export { type Condition, conditionsOf } from './rules/condition.ts'
export {
  type AppliedException,
  type GlobalFactor,
  OVERRIDES_MAX,
  type Override,
  type OverrideChanges,
  type OverrideEffect,
  SEVERITIES,
  type Severity,
  SIGNALS_MAX,
  type Signal,
} from './rules/exception.ts'
export { REASONS, type Reason, type RuleExplanation } from './rules/explain.ts'
export { featuresOf, RULE_FEATURES } from './rules/features.ts'
export type { LimitName } from './rules/limit-names.ts'
export { parseRules, writtenRule } from './rules/parse.ts'
export { canaryProblem, isPairable, type Rollout } from './rules/rollout.ts'
export { plainRule, type Rule, type RuleCondition, type RuleLimit, type SignalReaction } from './rules/rule.ts'
export type { ConditionInput, LimitInput, PlanInput, RuleInput, RulesInput } from './rules/rule-input.ts'
export { inSlices, mapped, type Sliced } from './slices.ts'
export { HalfSipHash, type HashSeed, seedOf } from './store/half-sip-hash.ts'
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
  PolicyReason,
  Short,
  Source,
  Store,
  Take,
  Taken,
} from './store/store.ts'
export { POLICY_REASONS } from './store/store.ts'
export type { Subject } from './subject.ts'
