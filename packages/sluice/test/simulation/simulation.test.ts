// The promises of leases and guards, on every step of many random runs. A run that breaks one prints how to replay it.
// `npm run sim -- --seeds 1000` runs more of them, `npm run sim -- --mutants` proves that they notice.

import { expect, test } from 'vitest'
import { simulate } from './simulate.ts'

const { SIM_SEEDS = '200', SIM_FIRST = '1' } = process.env

test(`no promise is broken in ${SIM_SEEDS} simulated runs`, { timeout: 1_200_000 }, async () => {
  const first = Number(SIM_FIRST)
  for (let seed = first; seed < first + Number(SIM_SEEDS); seed += 1) {
    const violations = await simulate(seed)
    expect(violations, `seed ${seed}; replay: npm run sim -- --seeds 1 --first ${seed}`).toEqual([])
  }
})
