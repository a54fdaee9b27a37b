import { expect, test } from 'vitest'
import { steadyClock } from './clock.ts'

const START_US = Date.UTC(2030, 0, 1) * 1000
const HOUR_US = 3_600_000_000

function clocks() {
  const wall = { us: START_US }
  const elapsed = { ms: 12.5 }
  const clock = steadyClock({ nowUs: () => wall.us }, () => elapsed.ms)
  const pass = (ms: number) => {
    wall.us += ms * 1000
    elapsed.ms += ms
  }
  return { clock, wall, elapsed, pass, aheadUs: () => clock.wallAheadUs?.() }
}

test('starts at wall-clock time and counts elapsed time in whole microseconds', () => {
  const { clock, elapsed } = clocks()
  expect(clock.nowUs()).toBe(START_US)
  elapsed.ms += 1.0016
  expect(clock.nowUs()).toBe(START_US + 1001)
})

test.each([
  ['ahead', HOUR_US],
  ['back', -HOUR_US],
])('setting wall-clock time %s changes only the offset', (_, byUs) => {
  const { clock, wall, pass, aheadUs } = clocks()
  clock.nowUs()
  wall.us += byUs
  expect([clock.nowUs(), aheadUs()]).toEqual([START_US, byUs])
  pass(1000)
  expect([clock.nowUs(), aheadUs()]).toEqual([START_US + 1_000_000, byUs])
  wall.us -= byUs
  expect([clock.nowUs(), aheadUs()]).toEqual([START_US + 1_000_000, 0])
})

test('the offset ignores jitter', () => {
  const { clock, wall, aheadUs } = clocks()
  clock.nowUs()
  wall.us += 49_000
  expect(aheadUs()).toBe(0)
  wall.us += 1000
  expect(aheadUs()).toBe(50_000)
  wall.us -= 49_000
  expect(aheadUs(), 'a smaller step is ignored').toBe(50_000)
})

test('in a runtime without a clock during module load, the clock starts at the first valid reading', () => {
  const { clock, wall, elapsed, pass } = clocks()
  wall.us = elapsed.ms = 0
  expect(clock.nowUs()).toBe(0)
  wall.us = START_US
  expect(clock.nowUs()).toBe(START_US)
  pass(1)
  expect(clock.nowUs()).toBe(START_US + 1000)
})
