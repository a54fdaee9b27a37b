// Cost of a check with 100,000 overrides relative to none, with 10,000 rules of which three match (as in `rules`). The
// overrides are for other keys. "of one rule each": every rule has ten. "of all rules": each check looks up its key
// three times.

import type { Limiter, Override } from 'sluice'
import { type Contenders, withIsolated } from '../isolated.ts'
import { alternate, pairedRatio, resultsOf } from '../measure.ts'
import type { Scenario } from '../report.ts'
import { rounds as roundsOf } from './rules.ts'

const RULES = 10_000
const OVERRIDES = 100_000
const NAMES = ['no overrides', '100,000 of one rule each', '100,000 of all rules'] as const

export const scenario: Scenario = {
  what: '100,000 overrides against none, 10,000 rules',
  targets: { overrides_over_none: { atMost: 1.05 }, overrides_of_all_rules_over_none: { atMost: 1.05 } },
  async run({ rounds = 21 }) {
    const samples = await withIsolated('./scenarios/exceptions.js', NAMES, String, (all) =>
      alternate(all, { rounds, warmups: 4 }),
    )
    const none = samples['no overrides']
    return {
      results: resultsOf(samples, 'ns', 'ns/check'),
      ratios: {
        overrides_over_none: pairedRatio(samples['100,000 of one rule each'], none, 'ns'),
        overrides_of_all_rules_over_none: pairedRatio(samples['100,000 of all rules'], none, 'ns'),
      },
    }
  },
}

export const contenders: Contenders = {
  'no overrides': () => roundsOf(RULES, false),
  '100,000 of one rule each': () => roundsOf(RULES, false, (limiter) => addOverrides(limiter, ruleOf)),
  '100,000 of all rules': () => roundsOf(RULES, false, (limiter) => addOverrides(limiter, () => null)),
}

function ruleOf(number: number): string {
  return `rule_${number % RULES}`
}

function addOverrides(limiter: Limiter, ruleIdOf: (number: number) => string | null): void {
  const set = Array.from({ length: OVERRIDES }, (_, number): Override => {
    const key = { fact: 'user', owner: `other-${number}` }
    return {
      id: `o${number}`,
      ruleId: ruleIdOf(number),
      ...key,
      effect: { limit: 1 + (number % 100) },
      expiresAtMs: null,
    }
  })
  limiter.changeOverrides({ set })
}
