// What a strict check costs Redis on a Cluster: there each check is a script of its own, since a script may touch one
// slot only. The fair comparison is one Redis on which nothing is batched either.

import { type Contenders, withIsolated } from '../isolated.ts'
import { alternate, type Contender, pairedRatio, resultsOf } from '../measure.ts'
import { withCluster } from '../redis-cluster.ts'
import { sluiceOnRedis, sluiceUnbatched } from '../redis-contender.ts'
import { watch } from '../redis-duel.ts'
import { type RedisServer, withRedis } from '../redis-server.ts'
import type { Scenario } from '../report.ts'

const CALLS = 100_000
const NAMES = ['3 primaries', 'one Redis, unbatched'] as const

export const scenario: Scenario = {
  what: 'one strict rule on 3 primaries of a Cluster, CPU time of Redis',
  targets: { cluster_over_single_unbatched: { atLeast: 0.9 } },
  run: ({ rounds = 7 }) =>
    withCluster((cluster) =>
      withRedis(1, async (servers) => {
        const server = servers[0] as RedisServer // one was started
        const placeOf = (name: string) => (name === '3 primaries' ? cluster.place : String(server.port))
        const samples = await withIsolated('./scenarios/cluster.js', NAMES, placeOf, async (all) => {
          const watched: Record<(typeof NAMES)[number], Contender> = {
            '3 primaries': watch(all['3 primaries'], cluster),
            'one Redis, unbatched': watch(all['one Redis, unbatched'], server),
          }
          return alternate(watched, { rounds, warmups: 2 })
        })
        const { '3 primaries': ours, 'one Redis, unbatched': single } = samples
        return {
          results: [
            ...resultsOf(samples, 'redis µs', 'µs of Redis/check'),
            ...resultsOf(samples, 'checks/s', 'checks/s'),
          ],
          // Checks for each CPU second of Redis: the inverse of its time for each check.
          ratios: { cluster_over_single_unbatched: pairedRatio(single, ours, 'redis µs') },
        }
      }),
    ),
}

export const contenders: Contenders = {
  '3 primaries': (place) => sluiceOnRedis(place, CALLS, 1),
  'one Redis, unbatched': (place) => sluiceUnbatched(place, CALLS),
}
