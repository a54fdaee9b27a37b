// Leases compared with a round trip per check: 100 k Zipf-distributed keys, 100 per second each with a burst of 100.

import { RateLimiterRedis } from 'rate-limiter-flexible'
import { type Contenders, withIsolated } from '../isolated.ts'
import { KEYS, leasedLimiter, perSecond, RATE, runLoad, sampleOf } from '../leased-load.ts'
import { alternate, median, pairedRatio, resultsOf, type Sample } from '../measure.ts'
import { flexibleOnRedis } from '../redis-contender.ts'
import { type RedisServer, withRedis } from '../redis-server.ts'
import type { Scenario } from '../report.ts'
import { seeded, zipf } from '../zipf.ts'

/** A round takes some seconds either way. */
const CHECKS = 1_500_000
const CALLS = 200_000
const NAMES = ['sluice, leased', 'rate-limiter-flexible'] as const

export const scenario: Scenario = {
  what: 'leased checks, 100 k Zipf keys, 100/s each',
  targets: {
    vs_rate_limiter_flexible_redis: { atLeast: 10 },
    local_share: { atLeast: 0.85 },
    over_admitted: { atMost: 0 },
    admitted_over_allowed: { atLeast: 0.95 },
  },
  run: ({ rounds = 5 }) =>
    withRedis(NAMES.length, async (servers) => {
      const portOf = (name: (typeof NAMES)[number]) => String((servers[NAMES.indexOf(name)] as RedisServer).port)
      const samples = await withIsolated('./scenarios/leased.js', NAMES, portOf, (all) =>
        alternate(all, { rounds, warmups: 4 }),
      )
      const ours = samples['sluice, leased']
      return {
        results: resultsOf(samples, 'checks/s', 'checks/s'),
        ratios: {
          vs_rate_limiter_flexible_redis: pairedRatio(ours, samples['rate-limiter-flexible'], 'checks/s'),
          local_share: median(valuesOf(ours, 'local')),
          over_admitted: valuesOf(ours, 'over').reduce((sum, count) => sum + count, 0),
          admitted_over_allowed: median(valuesOf(ours, 'admitted')),
        },
      }
    }),
}

function valuesOf(samples: readonly Sample[], field: string): number[] {
  return samples.map((sample) => sample[field] ?? Number.NaN)
}

export const contenders: Contenders = {
  'sluice, leased': async (port) => {
    const leased = await leasedLimiter(port, [perSecond(0)])
    const choose = zipf(KEYS, seeded(1))
    return { round: async () => sampleOf(await runLoad(leased, choose, CHECKS)) }
  },
  'rate-limiter-flexible': (port) =>
    flexibleOnRedis(
      port,
      CALLS,
      (storeClient) => new RateLimiterRedis({ storeClient, points: RATE, duration: 1 }),
      zipf(KEYS, seeded(1)),
    ),
}
