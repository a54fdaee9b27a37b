// One strict rule on Redis over one connection: checks per second, CPU time of Redis per check, memory per key.

import type { Contenders } from '../isolated.ts'
import { pairedRatio, resultOf, resultsOf } from '../measure.ts'
import { flexibleRedis } from '../peers.ts'
import { compareOnRedis } from '../redis-comparison.ts'
import { flexibleOnRedis, sluiceOnRedis } from '../redis-contender.ts'
import type { Scenario } from '../report.ts'

const CALLS = 100_000
const NAMES = ['sluice', 'rate-limiter-flexible'] as const

export const scenario: Scenario = {
  what: 'one strict rule on Redis, 200 in flight, 100 k keys',
  targets: {
    vs_rate_limiter_flexible: { atLeast: 2 },
    redis_cpu_vs_rate_limiter_flexible: { atMost: 0.65 },
    redis_bytes_per_key: { atMost: 200 },
  },
  async run({ rounds = 7 }) {
    const { samples, bytesPerKey } = await compareOnRedis('./scenarios/redis.js', NAMES, rounds)
    const { sluice, 'rate-limiter-flexible': flexible } = samples
    return {
      results: [
        ...resultsOf(samples, 'checks/s', 'checks/s'),
        ...resultsOf(samples, 'redis µs', 'µs of Redis/check'),
        ...NAMES.map((name) => resultOf(name, [bytesPerKey[name]], 'B/key')),
      ],
      ratios: {
        vs_rate_limiter_flexible: pairedRatio(sluice, flexible, 'checks/s'),
        redis_cpu_vs_rate_limiter_flexible: pairedRatio(sluice, flexible, 'redis µs'),
        redis_bytes_per_key: bytesPerKey.sluice,
      },
    }
  },
}

export const contenders: Contenders = {
  sluice: (port) => sluiceOnRedis(port, CALLS, 1),
  'rate-limiter-flexible': (port) => flexibleOnRedis(port, CALLS, (client) => flexibleRedis(client)),
}
