// Points of the drag chart: the busiest key per window, with few enough points to draw.

import type { Profile } from './protocol.ts'

export const POINTS_MAX = 240

/** At most POINTS_MAX points, each the largest of its windows; windows without requests are 0. */
export function downsampled(busiest: ReadonlyMap<number, number>, windowSeconds: number): Profile['points'] {
  if (busiest.size === 0) return []
  let [first, last] = [Number.POSITIVE_INFINITY, 0]
  for (const window of busiest.keys()) {
    first = Math.min(first, window)
    last = Math.max(last, window)
  }
  const group = Math.ceil((last - first + 1) / POINTS_MAX)
  const points: { atMs: number; units: number }[] = []
  for (let start = first; start <= last; start += group) points.push({ atMs: start * windowSeconds * 1000, units: 0 })
  for (const [window, units] of busiest) {
    const point = points[Math.floor((window - first) / group)]
    if (point !== undefined) point.units = Math.max(point.units, units)
  }
  return points
}
