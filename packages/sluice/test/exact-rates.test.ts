// Exact at any rate: over a long virtual time a saturated limit admits exactly limit × windows, not a unit more or
// less.

import { type AlgorithmName, compileLimit, memoryStore } from 'sluice'
import { fakeClock, seededRandom } from 'sluice/testing'
import { expect, test } from 'vitest'

const SECOND_US = 1_000_000
const SECONDS = 200
const RATES = [3, 7, 50_000, 3_000_000]

/** Takes all there is at steps of odd lengths, for `SECONDS` windows; the last step is the end of the last window. */
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
  // A greedy client gets a little less: the last unit of a window only fits when the window before has faded wholly.
  const total = admitted('sliding_window', rate, undefined)
  expect(total).toBeLessThanOrEqual(rate * SECONDS)
  expect(total).toBeGreaterThan((rate - 1) * 0.97 * SECONDS)
})

test.each(RATES)('a bucket of %i per second admits its burst and then exactly its rate', (rate) => {
  // The last step is one microsecond before the end: a unit that is due at the very end has not flowed back yet.
  const flowed = Math.floor((rate * (SECONDS * SECOND_US - 1)) / SECOND_US)
  expect(admitted('token_bucket', rate, rate)).toBe(rate + flowed)
  expect(admitted('leaky_bucket', rate, 2 * rate)).toBe(2 * rate + flowed)
})

test.each([3, 7, 1000])('a log of %i per second never admits more than limit × windows, and hardly less', (rate) => {
  expect(admitted('sliding_window_log', rate, undefined)).toBeGreaterThan(rate * (SECONDS - 2))
  expect(admitted('sliding_window_log', rate, undefined)).toBeLessThanOrEqual(rate * SECONDS)
})
