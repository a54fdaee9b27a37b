// Buckets touched in Redis per check, with 1, 2, 4 and 8 processes.

import type { Contenders } from '../isolated.ts'
import { isolated } from '../isolated.ts'
import { KEYS, leasedLimiter, perSecond, runLoad } from '../leased-load.ts'
import { progress, resultOf } from '../measure.ts'
import { withRedis } from '../redis-server.ts'
import type { Scenario } from '../report.ts'
import { seeded, zipf } from '../zipf.ts'

/** Checks of all nodes in a round. */
const CHECKS = 1_500_000
const WARMUPS = 2

export const scenario: Scenario = {
  what: 'leased checks, 8 processes on one Redis',
  targets: { redis_charges_per_check: { atMost: 0.2 } },
  async run({ rounds = 3 }) {
    const results = []
    let charges = Number.NaN
    for (const nodes of [1, 2, 4, 8]) {
      const { rates, perCheck } = await runNodes(nodes, rounds)
      charges = perCheck
      progress(`${nodes} nodes: ${perCheck.toFixed(3)} charges per check`)
      results.push(
        resultOf(`${nodes} nodes`, rates, 'checks/s'),
        resultOf(`${nodes} nodes`, [perCheck], 'charges/check'),
      )
    }
    return { results, ratios: { redis_charges_per_check: charges } }
  },
}

function runNodes(count: number, rounds: number): Promise<{ rates: number[]; perCheck: number }> {
  return withRedis(1, async ([server]) => {
    const starting = Array.from({ length: count }, () =>
      isolated('./scenarios/leased-nodes.js', 'node', `${server?.port} ${CHECKS / count}`),
    )
    const nodes = await Promise.all(starting)
    const rates: number[] = []
    let checks = 0
    let charges = 0
    for (let round = -WARMUPS; round < rounds; round += 1) {
      const samples = await Promise.all(nodes.map((node) => node.round()))
      if (round < 0) continue
      const sum = (field: string) => samples.reduce((total, sample) => total + (sample[field] ?? 0), 0)
      rates.push(sum('checks/s'))
      checks += sum('checks')
      charges += sum('charges')
    }
    await Promise.all(nodes.map((node) => node.close?.()))
    return { rates, perCheck: charges / checks }
  })
}

export const contenders: Contenders = {
  node: async (argument) => {
    const [port = '', share] = argument.split(' ')
    const leased = await leasedLimiter(port, [perSecond(0)])
    const choose = zipf(KEYS, seeded(process.pid))
    let charged = 0
    return {
      async round() {
        const { checks, seconds } = await runLoad(leased, choose, Number(share))
        const now = leased.store.stats?.().requests ?? 0
        const charges = now - charged
        charged = now
        return { checks, charges, 'checks/s': checks / seconds }
      },
    }
  },
}
