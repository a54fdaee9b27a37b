// Throughput of leased checks on a Cluster relative to one Redis, with the same load. Most checks need no round trip,
// so the difference is the cost of routing by slot and of batches split by slot.

import { type Contenders, withIsolated } from '../isolated.ts'
import { KEYS, leasedLimiter, perSecond, runLoad, sampleOf } from '../leased-load.ts'
import { alternate, type Contender, pairedRatio, resultsOf } from '../measure.ts'
import { withCluster } from '../redis-cluster.ts'
import { type RedisServer, withRedis } from '../redis-server.ts'
import type { Scenario } from '../report.ts'
import { seeded, zipf } from '../zipf.ts'

const CHECKS = 1_500_000
const NAMES = ['3 primaries', 'one Redis'] as const

export const scenario: Scenario = {
  what: 'leased checks on 3 primaries of a Cluster, 100 k Zipf keys',
  targets: { cluster_over_single: { atLeast: 0.8 } },
  run: ({ rounds = 5 }) =>
    withCluster((cluster) =>
      withRedis(1, async (servers) => {
        const { port } = servers[0] as RedisServer // exactly one
        const portsOf = (name: string) => (name === '3 primaries' ? cluster.ports : String(port))
        const samples = await withIsolated('./scenarios/cluster-leased.js', NAMES, portsOf, (all) =>
          alternate(all, { rounds, warmups: 3 }),
        )
        return {
          results: [...resultsOf(samples, 'checks/s', 'checks/s'), ...resultsOf(samples, 'local', 'of them local')],
          ratios: { cluster_over_single: pairedRatio(samples['3 primaries'], samples['one Redis'], 'checks/s') },
        }
      }),
    ),
}

export const contenders: Contenders = { '3 primaries': leased, 'one Redis': leased }

async function leased(ports: string): Promise<Contender> {
  const limiter = await leasedLimiter(ports, [perSecond(0)])
  const choose = zipf(KEYS, seeded(1))
  return { round: async () => sampleOf(await runLoad(limiter, choose, CHECKS)) }
}
