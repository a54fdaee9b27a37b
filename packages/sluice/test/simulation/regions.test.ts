// Limits shared by regions, in many random runs with partitions, crashes, an unreachable global store, clock skew and
// changing shares. A failed run prints how to replay it. `npm run sim` includes these.

import { expect, test } from 'vitest'
import { simulateRegions } from './simulate-regions.ts'

/** Few enough to take seconds; `npm run sim` runs 200. */
const { SIM_SEEDS = '60', SIM_FIRST = '1' } = process.env

test(`regions never exceed a limit together in ${SIM_SEEDS} simulated runs`, { timeout: 1_200_000 }, async () => {
  const first = Number(SIM_FIRST)
  const spent = { borrowed: 0, home: 0 }
  for (let seed = first; seed < first + Number(SIM_SEEDS); seed += 1) {
    const { violations, borrowed, home } = await simulateRegions(seed)
    expect(violations, `seed ${seed}; replay: npm run sim -- --seeds 1 --first ${seed}`).toEqual([])
    spent.borrowed += borrowed
    spent.home += home
  }
  expect(Math.min(spent.borrowed, spent.home)).toBeGreaterThan(0) // both were used
})
