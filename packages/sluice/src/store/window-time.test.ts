import { expect, test } from 'vitest'
import { seededRandom } from '../testing/seeded-random.ts'
import { WindowTime } from './window-time.ts'

const WINDOW_US = 60_000_000
const START_US = Date.UTC(2030, 0, 1) * 1000

/** Lengths of the first windows in seconds, if wall-clock time is set ahead by `aheadUs` at second 10. */
function lengths(aheadUs: number): number[] {
  const time = new WindowTime(WINDOW_US, 0)
  const ends: number[] = []
  let index = Math.floor(time.at(START_US) / WINDOW_US)
  for (let second = 1; second <= 300; second += 1) {
    if (second === 10) time.follow(aheadUs, START_US + second * 1e6)
    const now = Math.floor(time.at(START_US + second * 1e6) / WINDOW_US)
    if (now > index) ends.push(second)
    index = now
  }
  return ends.slice(0, 4).map((end, place) => end - (ends[place - 1] ?? 0))
}

test.each([
  ['by whole windows', 3_600_000_000, [60, 60, 60, 60]],
  ['back by whole windows', -3_600_000_000, [60, 60, 60, 60]],
  ['by 45 s', 45_000_000, [60, 75, 60, 60]],
  ['by 10 s', 10_000_000, [60, 110, 60]],
  ['by 2 s', 2_000_000, [60, 58, 60, 60]],
  ['back by 10 s', -10_000_000, [60, 70, 60, 60]],
])('clock set %s: the current window keeps its end, and the next one is aligned to the day', (_, aheadUs, expected) => {
  expect(lengths(aheadUs).slice(0, expected.length)).toEqual(expected)
})

test('window time never goes back, waits are exact, and windows are realigned without being cut short', () => {
  for (let seed = 1; seed <= 40; seed += 1) {
    const random = seededRandom(seed)
    const windowUs = random.pick([1_000_000, 7_000_000, 60_000_000])
    const time = new WindowTime(windowUs, 0)
    let [nowUs, aheadUs, settled] = [START_US, 0, true]
    let [index, sinceUs] = [Math.floor(nowUs / windowUs), nowUs - (nowUs % windowUs)]
    for (let step = 0; step < 300; step += 1) {
      if (random.next() < 0.05) {
        aheadUs = random.between(-4e9, 4e9)
        settled = false
      }
      if (!settled) settled = time.follow(aheadUs, nowUs)
      const beforeUs = time.at(nowUs)
      const waitUs = random.between(1, windowUs / 2)
      expect(time.at(nowUs + time.until(nowUs, waitUs)), `seed ${seed}`).toBeGreaterThanOrEqual(beforeUs + waitUs)
      nowUs += random.between(0, windowUs / 20)
      const afterUs = time.at(nowUs)
      expect(afterUs, `seed ${seed}`).toBeGreaterThanOrEqual(beforeUs)
      if (Math.floor(afterUs / windowUs) === index) continue
      expect(Math.floor(afterUs / windowUs), `seed ${seed}`).toBe(index + 1)
      // Window ends are seen up to a twentieth of a window late.
      expect(nowUs - sinceUs, `seed ${seed}`).toBeGreaterThanOrEqual(windowUs * 0.9)
      expect(nowUs - sinceUs, `seed ${seed}`).toBeLessThanOrEqual(windowUs * 2.1)
      index += 1
      sinceUs = nowUs
    }
    if (!settled) continue
    nowUs += 3 * windowUs
    expect(Math.abs((time.at(nowUs) - nowUs - aheadUs) % windowUs), `seed ${seed}`).toBe(0)
  }
})
