import { expect, test } from 'vitest'
import { scaleOf } from './scale.ts'

const profile = (...units: number[]) => ({ points: units.map((count, index) => ({ atMs: index, units: count })) })

test.each([
  ['has room above the limit without traffic', profile(), 100, { max: 160, reach: 160 }],
  ['has room above the highest bar', profile(40, 120), 100, { max: 180, reach: 180 }],
  ['cuts off bars above four limits', profile(...Array(99).fill(50), 90_000), 100, { max: 400, reach: 140_000 }],
  ['shows half of the bars', profile(0, 0, 0, 30, 100, 110, 170), 20, { max: 120, reach: 260 }],
  ['shows small limits', profile(1, 2), 1, { max: 4, reach: 4 }],
])('the scale %s', (_name, points, limit, scale) => {
  expect(scaleOf(points, limit)).toEqual(scale)
})
