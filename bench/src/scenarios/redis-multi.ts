// Five rules per user on Redis: all-or-nothing in one round trip, compared with the five separate counters of the peer.

import type { Contenders } from '../isolated.ts'
import { pairedRatio, resultsOf } from '../measure.ts'
import { flexibleUnion } from '../peers.ts'
import { compareOnRedis } from '../redis-comparison.ts'
import { flexibleOnRedis, sluiceOnRedis } from '../redis-contender.ts'
import type { Scenario } from '../report.ts'

const CALLS = 20_000
const RULES = 5
const NAMES = ['sluice', 'RateLimiterUnion'] as const

export const scenario: Scenario = {
  what: 'five strict rules on Redis, 200 in flight, 100 k keys',
  targets: { vs_rate_limiter_flexible_union: { atLeast: 4 } },
  async run({ rounds = 7 }) {
    const { samples } = await compareOnRedis('./scenarios/redis-multi.js', NAMES, rounds)
    const { sluice, RateLimiterUnion: union } = samples
    return {
      results: [...resultsOf(samples, 'checks/s', 'checks/s'), ...resultsOf(samples, 'redis µs', 'µs of Redis/check')],
      ratios: { vs_rate_limiter_flexible_union: pairedRatio(sluice, union, 'checks/s') },
    }
  },
}

export const contenders: Contenders = {
  sluice: (port) => sluiceOnRedis(port, CALLS, RULES),
  RateLimiterUnion: (port) => flexibleOnRedis(port, CALLS, (client) => flexibleUnion(client, RULES)),
}
