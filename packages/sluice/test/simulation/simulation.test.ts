// Guarantees of leases and guards, checked in many random runs. A failed run prints how to replay it.
// `npm run sim -- --seeds 1000` runs more seeds; `npm run sim -- --mutants` proves that they detect broken code.

import { expect, test } from 'vitest'
import { simulate } from './simulate.ts'

/** Few enough to take seconds; `npm run sim` runs 200. */
const { SIM_SEEDS = '60', SIM_FIRST = '1' } = process.env

test(`every guarantee holds in ${SIM_SEEDS} simulated runs`, { timeout: 1_200_000 }, async () => {
  const first = Number(SIM_FIRST)
  for (let seed = first; seed < first + Number(SIM_SEEDS); seed += 1) {
    const violations = await simulate(seed)
    expect(violations, `seed ${seed}; replay: npm run sim -- --seeds 1 --first ${seed}`).toEqual([])
  }
})
