// Units in the hands of one node are not in those of another: under more load than there is room for, that costs no
// more than 5 % of the limit, and a client that is far below its limit pays nothing, however many nodes it meets.
// Measured on eight processes and a real Redis: docs/guides/leases.md.

import { expect, test } from 'vitest'
import { LEASED, LOAD_NAMES, LOADS, largest, leasedLimit, pressed } from './loads.ts'
import { shareAdmitted } from './saturated-fleet.ts'

const WINDOW_US = 1_500_000
const LEAST_SHARE = 0.95
/** It pays 4 % for looking back further before it strands anything. */
const LEAST_SHARE_OF_LOG = 0.945

const TRIALS = LOAD_NAMES.flatMap((load) =>
  LEASED.flatMap((algorithm) => [10, 100, largest(algorithm)].map((units) => ({ load, algorithm, units }))),
)

test.each(TRIALS)('load $load: nearly all of $units are admitted by a $algorithm', async (trial) => {
  const { load, algorithm, units } = trial
  const limit = leasedLimit(algorithm, units, WINDOW_US)
  const phases = LOADS[load].map((shares) => shares.map((share) => pressed(share)(limit)))
  // A log lets such a load pass in bursts, one every 1.04 windows: 26 of these are a whole number of bursts.
  const share = await shareAdmitted({ limit, phases, windows: units === 10_000 ? 4 : 26, draining: 1 })
  expect(share).toBeGreaterThanOrEqual(algorithm === 'sliding_window_log' ? LEAST_SHARE_OF_LOG : LEAST_SHARE)
})

const FLEETS = LEASED.flatMap((algorithm) => [8, 16, 40].map((nodes) => ({ algorithm, nodes })))

test.each(FLEETS)('a client at a fifth of its $algorithm is never refused by $nodes nodes', async (trial) => {
  const { algorithm, nodes } = trial
  const limit = { ...leasedLimit(algorithm, 100, 1_000_000), lease: {} }
  const each = Array.from({ length: nodes }, () => 20 / nodes)
  expect(await shareAdmitted({ limit, phases: [each], windows: 40, draining: 1 })).toBe(1)
})

test.each(FLEETS)(
  'a client that asks for a fifth of its $algorithm at once is not refused by $nodes nodes',
  async (trial) => {
    const { algorithm, nodes } = trial
    const limit = { ...leasedLimit(algorithm, 1000, 10_000_000), lease: {} }
    const burst = Array.from({ length: nodes }, () => 2000 / nodes) // for a tenth of a second
    const phases = Array.from({ length: 100 }, (_, phase) => (phase === 0 ? burst : burst.map(() => 0)))
    expect(await shareAdmitted({ limit, phases, windows: 1, draining: 0 })).toBe(1)
  },
)
