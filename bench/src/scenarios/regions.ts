// Cost of limits that regions share: leased checks with `spread: global` compared with `spread: regional`, on the same
// regional and global Redis.

import { Redis } from 'ioredis'
import { createLimiter } from 'sluice'
import { redisStore } from 'sluice/redis'
import { regionStore } from 'sluice/regions'
import { type Contenders, withIsolated } from '../isolated.ts'
import { KEYS, perSecond, runLoad, sampleOf } from '../leased-load.ts'
import { alternate, type Contender, pairedRatio, resultsOf } from '../measure.ts'
import { type RedisServer, withRedis } from '../redis-server.ts'
import type { Scenario } from '../report.ts'
import { seeded, zipf } from '../zipf.ts'

const CHECKS = 1_500_000
const NAMES = ['spread: global', 'spread: regional'] as const
const SHARES = { weights: { eu: 0.6, us: 0.4 } }

export const scenario: Scenario = {
  what: 'leased checks shared by regions, 100 k Zipf keys',
  targets: { global_over_regional: { atLeast: 0.9 } },
  run: ({ rounds = 5 }) =>
    withRedis(2 * NAMES.length, async (servers) => {
      const portsOf = (name: (typeof NAMES)[number]) => {
        const first = 2 * NAMES.indexOf(name)
        return servers
          .slice(first, first + 2)
          .map(({ port }: RedisServer) => port)
          .join()
      }
      const samples = await withIsolated('./scenarios/regions.js', NAMES, portsOf, (all) =>
        alternate(all, { rounds, warmups: 4 }),
      )
      const [global, regional] = NAMES
      const ratio = pairedRatio(samples[global], samples[regional], 'checks/s')
      return { results: resultsOf(samples, 'checks/s', 'checks/s'), ratios: { global_over_regional: ratio } }
    }),
}

/** `ports` of the regional and of the global Redis. */
async function contender(ports: string, spread: 'global' | 'regional'): Promise<Contender> {
  const [regional, global] = ports.split(',').map((port) => new Redis(Number(port), { lazyConnect: true })) as [
    Redis,
    Redis,
  ]
  const home = redisStore(regional, { deadlineMs: 1000 })
  const pool = redisStore(global, { deadlineMs: 1000, leases: false })
  await Promise.all([home.ready(), pool.ready()])
  const store = regionStore({ name: 'eu', shares: SHARES, regional: home, global: pool })
  const limiter = createLimiter({ rules: [perSecond(0, { spread })], store })
  const choose = zipf(KEYS, seeded(1))
  return { round: async () => sampleOf(await runLoad({ limiter }, choose, CHECKS)) }
}

export const contenders: Contenders = {
  'spread: global': (ports) => contender(ports, 'global'),
  'spread: regional': (ports) => contender(ports, 'regional'),
}
