// Leased checks on a Cluster over leased checks on one Redis, the same load: most checks ask nobody, so the difference
// is what finding a bucket's place costs, and batches that are cut up by slot.

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
        const { port } = servers[0] as RedisServer // one was started
        const placeOf = (name: string) => (name === '3 primaries' ? cluster.place : String(port))
        const samples = await withIsolated('./scenarios/cluster-leased.js', NAMES, placeOf, (all) =>
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

async function leased(place: string): Promise<Contender> {
  const limiter = await leasedLimiter(place, [perSecond(0)])
  const choose = zipf(KEYS, seeded(1))
  return { round: async () => sampleOf(await runLoad(limiter, choose, CHECKS)) }
}
