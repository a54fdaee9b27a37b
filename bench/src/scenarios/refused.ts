// Requests to Redis per refused check for one abusive key, far over its limit.

import { leasedLimiter, perSecond, runLoad } from '../leased-load.ts'
import { progress, resultOf } from '../measure.ts'
import { withRedis } from '../redis-server.ts'
import type { Scenario } from '../report.ts'

const CHECKS = 500_000

export const scenario: Scenario = {
  what: 'an abusive key, far over its limit',
  targets: { redis_charges_per_refused_check: { atMost: 0.01 } },
  run: ({ rounds = 5 }) =>
    withRedis(1, async ([server]) => {
      const leased = await leasedLimiter(String(server?.port), [perSecond(0, { consistency: 'strict' })])
      const charges: number[] = []
      const rates: number[] = []
      for (let round = 0; round <= rounds; round += 1) {
        const before = leased.store.stats?.().requests ?? 0
        const { checks, admitted, seconds } = await runLoad(leased, () => 1, CHECKS)
        const perRefused = ((leased.store.stats?.().requests ?? 0) - before) / (checks - admitted)
        progress(
          `round ${round}/${rounds}: ${Math.round(checks / seconds)} checks/s, ${perRefused} charges per refusal`,
        )
        if (round > 0) charges.push(perRefused)
        if (round > 0) rates.push(checks / seconds)
      }
      await leased.limiter.close()
      const result = resultOf('sluice, strict rule', charges, 'charges/refused check')
      return {
        results: [resultOf('sluice, strict rule', rates, 'checks/s'), result],
        ratios: { redis_charges_per_refused_check: result.median },
      }
    }),
}
