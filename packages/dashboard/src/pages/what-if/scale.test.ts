import { expect, test } from 'vitest'
import { scaleMax } from './scale.ts'

const profile = (...units: number[]) => ({ points: units.map((count, index) => ({ atMs: index, units: count })) })

test.each([
  ['has room above the limit without traffic', profile(), 100, 150],
  ['has room above the highest bar', profile(40, 120), 100, 200],
  ['shows four limits, and cuts off the bars above', profile(...Array(99).fill(50), 90_000), 100, 400],
  ['shows most bars, however far above the limit', profile(...Array(96).fill(900), ...Array(4).fill(90_000)), 10, 900],
  ['shows small limits', profile(1, 2), 1, 4],
])('the scale %s', (_name, points, limit, max) => {
  expect(scaleMax(points, limit)).toBe(max)
})
