// Requests that an Express application on Redis answers: ours with leases, the default, against express-rate-limit with
// rate-limit-redis, which asks Redis for each. Each has a Redis of its own.

import { withExpress } from '../express-load.ts'
import { alternate, pairedRatio, resultsOf } from '../measure.ts'
import { type RedisServer, withRedis } from '../redis-server.ts'
import type { Scenario } from '../report.ts'

const NAMES = ['sluice-redis', 'express-rate-limit-redis'] as const

export const scenario: Scenario = {
  what: 'Express with a middleware on Redis, leased',
  targets: { vs_express_rate_limit_redis: { atLeast: 2 } },
  run: ({ rounds = 9 }) =>
    withRedis(NAMES.length, (servers) => {
      const portOf = (name: (typeof NAMES)[number]) => String((servers[NAMES.indexOf(name)] as RedisServer).port)
      return withExpress(NAMES, portOf, async (contenders) => {
        const samples = await alternate(contenders, { rounds, warmups: 4 })
        const [ours, theirs] = NAMES.map((name) => samples[name])
        return {
          results: [
            ...resultsOf(samples, 'requests/s', 'requests/s'),
            ...resultsOf(samples, 'cpu µs', 'µs of CPU/request'),
          ],
          ratios: { vs_express_rate_limit_redis: pairedRatio(ours ?? [], theirs ?? [], 'requests/s') },
        }
      })
    }),
}
