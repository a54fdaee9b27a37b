// Rates are exact: over a long virtual time, a saturated limit admits exactly limit × windows.

import { type AlgorithmName, compileLimit, memoryStore } from 'sluice'
import { fakeClock, seededRandom } from 'sluice/testing'
import { expect, test } from 'vitest'

const SECOND_US = 1_000_000
const SECONDS = 200
const RATES = [3, 7, 50_000, 3_000_000]

/** Takes all available units at irregular steps for `SECONDS` windows; the last step is 1 µs before the end. */
function admitted(algorithm: AlgorithmName, rate: number, burst: number | undefined): number {
  const clock = fakeClock()
  const store = memoryStore({ clock })
  const numbers = { id: 'r', algorithm, units: rate, windowUs: SECOND_US }
  const limit = compileLimit(burst === undefined ? numbers : { ...numbers, burst })
  const random = seededRandom(rate)
  const endUs = clock.nowUs() + SECONDS * SECOND_US
  let total = 0
  for (;;) {
    const take = store.takeSync?.({
      charges: [{ limit, owner: 'a', detail: '', min: 1, max: limit.capacity, kind: 'enforce' }],
    })
    total += take?.grants[0]?.units ?? 0
    const leftUs = endUs - clock.nowUs()
    if (leftUs <= 1) return total
    clock.advanceUs(Math.min(leftUs - 1, random.between(1, 20_011)))
  }
}

test.each(RATES)('a window of %i per second admits exactly limit × windows', (rate) => {
  expect(admitted('fixed_window', rate, undefined)).toBe(rate * SECONDS)
})

test.each(RATES)('a sliding window of %i per second never admits more than limit × windows', (rate) => {
  // Slightly less: the last unit of a window fits only when the previous window has no weight left.
  const total = admitted('sliding_window', rate, undefined)
  expect(total).toBeLessThanOrEqual(rate * SECONDS)
  expect(total).toBeGreaterThan((rate - 1) * 0.97 * SECONDS)
})

test.each(RATES)('a bucket of %i per second admits its burst and then exactly its rate', (rate) => {
  // The last step is 1 µs before the end: a unit due exactly at the end has not refilled yet.
  const refilled = Math.floor((rate * (SECONDS * SECOND_US - 1)) / SECOND_US)
  expect(admitted('token_bucket', rate, rate)).toBe(rate + refilled)
  expect(admitted('leaky_bucket', rate, 2 * rate)).toBe(2 * rate + refilled)
})

test.each([3, 7, 1000])(
  'a log of %i per second admits at most limit × windows, and at most two windows less',
  (rate) => {
    expect(admitted('sliding_window_log', rate, undefined)).toBeGreaterThan(rate * (SECONDS - 2))
    expect(admitted('sliding_window_log', rate, undefined)).toBeLessThanOrEqual(rate * SECONDS)
  },
)
