// In-memory limiter for validating and trying out rules without a node. Accepts every store and region that a rule
// names, because only a node knows which ones exist.

import { createLimiter, type Limiter, memoryStore, parseRules, type Store } from 'sluice'

/** Throws RULE_INVALID with every field error. */
export function offlineLimiter(given: unknown): Limiter {
  const rules = parseRules(given)
  const named = [...new Set(rules.map((rule) => rule.store))]
  const store: Store = Object.assign(memoryStore(), { named, refusesSpread: () => undefined })
  return createLimiter({ rules, store })
}
