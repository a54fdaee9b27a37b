// Arrival times of requests: four patterns with the same average rate, except the last, the worst case for windows.

import { START_US } from './simulation.ts'

export const PATTERNS = {
  steady: 'Steady',
  random: 'Random',
  bursts: 'Bursts',
  edges: 'At window edges',
} as const
export type Pattern = keyof typeof PATTERNS

export type ArrivalSettings = {
  readonly pattern: Pattern
  readonly perSecond: number
  readonly limit: number
  readonly windowSeconds: number
}

const BURST_EVERY_SECONDS = 2
/** Time between the requests of a burst. */
const BURST_GAP_US = 5_000

/** Times after `fromUs`, up to `toUs`. `random` returns numbers from 0 to 1. */
export function arrivalsBetween(
  fromUs: number,
  toUs: number,
  settings: ArrivalSettings,
  random: () => number,
): number[] {
  const { pattern, perSecond, limit, windowSeconds } = settings
  if (pattern === 'edges') return edges(fromUs, toUs, limit, windowSeconds * 1_000_000)
  if (perSecond <= 0) return []
  if (pattern === 'bursts') {
    const count = Math.round(perSecond * BURST_EVERY_SECONDS)
    return repeated(fromUs, toUs, BURST_EVERY_SECONDS * 1_000_000, 0, count)
  }
  if (pattern === 'steady') return repeated(fromUs, toUs, 1_000_000 / perSecond, 0, 1)
  const times: number[] = []
  const expected = (perSecond * (toUs - fromUs)) / 1_000_000
  let left = poisson(expected, random)
  while (left-- > 0) times.push(Math.ceil(fromUs + random() * (toUs - fromUs)))
  return times.sort((a, b) => a - b)
}

/** A full limit just before every second window edge, and again just after it. */
function edges(fromUs: number, toUs: number, limit: number, windowUs: number): number[] {
  const before = repeated(fromUs, toUs, 2 * windowUs, windowUs - (limit + 1) * BURST_GAP_US, limit)
  const after = repeated(fromUs, toUs, 2 * windowUs, windowUs + BURST_GAP_US, limit)
  return [...before, ...after].sort((a, b) => a - b)
}

/** `count` requests at `offsetUs` of every period. */
function repeated(fromUs: number, toUs: number, periodUs: number, offsetUs: number, count: number): number[] {
  const times: number[] = []
  const lengthUs = count * BURST_GAP_US
  for (let n = Math.floor((fromUs - START_US - offsetUs - lengthUs) / periodUs); ; n++) {
    const startUs = START_US + n * periodUs + offsetUs
    if (startUs > toUs) return times
    for (let index = 0; index < count; index++) {
      const atUs = Math.round(startUs + index * BURST_GAP_US)
      if (atUs > fromUs && atUs <= toUs) times.push(atUs)
    }
  }
}

/** Number of events of a Poisson process with this mean, which is small. */
function poisson(mean: number, random: () => number): number {
  const floor = Math.exp(-mean)
  let [count, product] = [0, random()]
  while (product > floor) {
    count += 1
    product *= random()
  }
  return count
}
