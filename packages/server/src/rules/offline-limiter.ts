// A limiter for rules that are looked at and not enforced: in memory, and with whatever stores and regions they name,
// because which of those there are is known to nodes alone.

import { createLimiter, type Limiter, memoryStore, parseRules, type Store } from 'sluice'

/** Throws RULE_INVALID with every fault it found. */
export function offlineLimiter(given: unknown): Limiter {
  const rules = parseRules(given)
  const named = [...new Set(rules.map((rule) => rule.store))]
  const store: Store = Object.assign(memoryStore(), { named, refusesSpread: () => undefined })
  return createLimiter({ rules, store })
}
