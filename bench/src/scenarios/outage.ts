// Throughput while Redis is down, relative to while it is up: leased rules, `on_fail: open`.

import { KEYS, leasedLimiter, perSecond, runLoad } from '../leased-load.ts'
import { median, progress, resultOf } from '../measure.ts'
import { startRedis } from '../redis-server.ts'
import type { Scenario } from '../report.ts'
import { seeded, zipf } from '../zipf.ts'

const CHECKS = 1_000_000

export const scenario: Scenario = {
  what: 'throughput with Redis down, leased, `on_fail: open`',
  targets: { dead_over_up: { atLeast: 0.8 } },
  async run({ rounds = 5 }) {
    const up: number[] = []
    const dead: number[] = []
    for (let round = 1; round <= rounds; round += 1) {
      const server = await startRedis()
      const leased = await leasedLimiter(String(server.port), [perSecond(0)], 15)
      const choose = zipf(KEYS, seeded(round))
      await runLoad(leased, choose, CHECKS) // warm-up
      const before = await runLoad(leased, choose, CHECKS)
      await server.stop()
      const after = await runLoad(leased, choose, CHECKS)
      up.push(before.checks / before.seconds)
      dead.push(after.checks / after.seconds)
      progress(
        `round ${round}/${rounds}: ${Math.round(up.at(-1) ?? 0)} checks/s up, ${Math.round(dead.at(-1) ?? 0)} down`,
      )
      await leased.limiter.close()
    }
    return {
      results: [resultOf('Redis up', up, 'checks/s'), resultOf('Redis down', dead, 'checks/s')],
      ratios: { dead_over_up: median(dead.map((rate, index) => rate / (up[index] ?? Number.NaN))) },
    }
  },
}
