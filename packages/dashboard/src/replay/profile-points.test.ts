import { expect, test } from 'vitest'
import { downsampled, POINTS_MAX } from './profile-points.ts'

test('hundreds of thousands of windows become few points, each the largest of its windows', () => {
  const busiest = new Map(Array.from({ length: 200_000 }, (_, window) => [1000 + window, window === 777 ? 9 : 1]))
  const points = downsampled(busiest, 60)
  expect(points.length).toBeLessThanOrEqual(POINTS_MAX)
  expect(Math.max(...points.map(({ units }) => units))).toBe(9)
  expect(points[0]).toMatchObject({ atMs: 1000 * 60_000 })
  expect(downsampled(new Map(), 60)).toEqual([])
})
