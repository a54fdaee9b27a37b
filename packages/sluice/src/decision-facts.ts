// Facts about a decision that are not fields of it: they identify the client or the rule set, and could end up in logs.

import { type DecidingBucket, type DecidingLimit, type Decision, LimiterDecision } from './decision.ts'
import { NO_PAIRS, type Pair } from './pairs.ts'

/** Bucket of the reported limit; undefined if no rule matched, and for a copy of a decision. */
export function bucketOf(decision: Decision): DecidingBucket | undefined {
  return decision instanceof LimiterDecision ? decision.bucket : undefined
}

/** Requests of rules under rollout that both versions decided. Not a field, like `bucketOf`. Empty for a copy. */
export function pairsOf(decision: Decision): readonly Pair[] {
  return decision instanceof LimiterDecision ? decision.pairs : NO_PAIRS
}

/** The reported limit, the same object for all decisions by it; undefined if no rule matched, and for a copy. */
export function limitOf(decision: Decision): DecidingLimit | undefined {
  return decision instanceof LimiterDecision ? decision.compiledLimit : undefined
}

/** Store time at which it was decided, in microseconds; undefined if it did not need the store, and for a copy. */
export function storeTimeOf(decision: Decision): number | undefined {
  return decision instanceof LimiterDecision ? decision.storeTimeUs : undefined
}
