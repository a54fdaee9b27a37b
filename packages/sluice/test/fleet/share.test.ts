// Units on lease at one node are missing at the others. Under saturating load that costs at most 5 % of the limit, and
// a client far below its limit is never refused, however many nodes it uses. docs/guides/leases.md has figures of eight
// processes on a real Redis.

import { expect, test } from 'vitest'
import { LEASED, LOAD_NAMES, LOADS, largest, leasedLimit, pressed } from './loads.ts'
import { shareAdmitted } from './saturated-fleet.ts'

const WINDOW_US = 1_500_000
const LEAST_SHARE = 0.95
/** A leased log has a window longer by 4 %, and every node asks again within 200 ms, before any unit is stranded. */
const LEAST_SHARE_OF_LOG = 0.94

const TRIALS = LOAD_NAMES.flatMap((load) =>
  LEASED.flatMap((algorithm) => [10, 100, largest(algorithm)].map((units) => ({ load, algorithm, units }))),
)

test.each(TRIALS)('load $load: a $algorithm of $units admits nearly the whole limit', async (trial) => {
  const { load, algorithm, units } = trial
  const limit = leasedLimit(algorithm, units, WINDOW_US)
  const phases = LOADS[load].map((shares) => shares.map((share) => pressed(share)(limit)))
  // A log admits such a load in bursts, one every 1.04 windows: 26 windows are a whole number of bursts.
  const share = await shareAdmitted({ limit, phases, windows: units === 10_000 ? 4 : 26, draining: 1 })
  expect(share).toBeGreaterThanOrEqual(algorithm === 'sliding_window_log' ? LEAST_SHARE_OF_LOG : LEAST_SHARE)
})

const FLEETS = LEASED.flatMap((algorithm) => [8, 16, 40].map((nodes) => ({ algorithm, nodes })))

test.each(FLEETS)('$nodes nodes never refuse a client at a fifth of its $algorithm', async (trial) => {
  const { algorithm, nodes } = trial
  const limit = { ...leasedLimit(algorithm, 100, 1_000_000), lease: {} }
  const each = Array.from({ length: nodes }, () => 20 / nodes)
  expect(await shareAdmitted({ limit, phases: [each], windows: 40, draining: 1 })).toBe(1)
})

test.each(FLEETS)('$nodes nodes do not refuse a burst of a fifth of a $algorithm', async (trial) => {
  const { algorithm, nodes } = trial
  const limit = { ...leasedLimit(algorithm, 1000, 10_000_000), lease: {} }
  const burst = Array.from({ length: nodes }, () => 2000 / nodes) // for a tenth of a second
  const phases = Array.from({ length: 100 }, (_, phase) => (phase === 0 ? burst : burst.map(() => 0)))
  expect(await shareAdmitted({ limit, phases, windows: 1, draining: 0 })).toBe(1)
})
