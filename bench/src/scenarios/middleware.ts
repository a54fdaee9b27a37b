// CPU time that a middleware with a memory store adds to an Express request: ours with all headers, relative to no
// middleware; and ours with the headers of express-rate-limit, relative to express-rate-limit.

import { withExpress } from '../express-load.ts'
import { alternate, pairedRatio, resultsOf } from '../measure.ts'
import type { Scenario } from '../report.ts'

const NAMES = ['bare', 'sluice', 'sluice-legacy', 'express-rate-limit'] as const

export const scenario: Scenario = {
  what: 'Express with a middleware in memory, CPU time of the server',
  targets: { cpu_over_bare: { atMost: 1.15 }, cpu_vs_express_rate_limit: { atMost: 1 } },
  run: ({ rounds = 9 }) =>
    withExpress(
      NAMES,
      () => '',
      async (contenders) => {
        const samples = await alternate(contenders, { rounds, warmups: 3 })
        return {
          results: resultsOf(samples, 'cpu µs', 'µs of CPU/request'),
          ratios: {
            cpu_over_bare: pairedRatio(samples.sluice, samples.bare, 'cpu µs'),
            cpu_vs_express_rate_limit: pairedRatio(samples['sluice-legacy'], samples['express-rate-limit'], 'cpu µs'),
          },
        }
      },
    ),
}
