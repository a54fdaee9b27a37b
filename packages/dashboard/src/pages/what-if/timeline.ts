// Timeline of a replay, as a chart needs it.

import type { ReplayResult } from 'sluice/replay'

type Timeline = ReplayResult['timeline']

/** The timeline leaves out steps without requests: adds a zero at both ends of each gap, for a line along the axis. */
export function withZeros(
  { step_seconds: step, points }: Timeline = { step_seconds: 1, points: [] },
): Timeline['points'] {
  const zeroAt = (ms: number, hasNow: boolean) => {
    return { at: new Date(ms).toISOString(), requests: 0, refused: 0, now_refused: hasNow ? 0 : null }
  }
  return points.flatMap((point, index) => {
    const next = points[index + 1]
    if (next === undefined) return [point]
    const [from, to] = [Date.parse(point.at) + step * 1000, Date.parse(next.at) - step * 1000]
    const ends = to < from ? [] : to === from ? [from] : [from, to]
    return [point, ...ends.map((ms) => zeroAt(ms, point.now_refused !== null))]
  })
}
