// CPU time of Redis for a strict check on a Cluster, where only checks of one slot group share a script call, compared
// with one Redis without batching.

import { type Contenders, withIsolated } from '../isolated.ts'
import { alternate, type Contender, pairedRatio, resultsOf } from '../measure.ts'
import { withCluster } from '../redis-cluster.ts'
import { watch } from '../redis-comparison.ts'
import { sluiceOnRedis, sluiceUnbatched } from '../redis-contender.ts'
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
        const server = servers[0] as RedisServer // exactly one
        const portsOf = (name: string) => (name === '3 primaries' ? cluster.ports : String(server.port))
        const samples = await withIsolated('./scenarios/cluster.js', NAMES, portsOf, async (all) => {
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
          // Checks per CPU second of Redis.
          ratios: { cluster_over_single_unbatched: pairedRatio(single, ours, 'redis µs') },
        }
      }),
    ),
}

export const contenders: Contenders = {
  '3 primaries': (ports) => sluiceOnRedis(ports, CALLS, 1),
  'one Redis, unbatched': (ports) => sluiceUnbatched(ports, CALLS),
}
