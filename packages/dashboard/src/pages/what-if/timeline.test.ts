import { expect, test } from 'vitest'
import { withZeros } from './timeline.ts'

const at = (second: number, requests: number) => {
  const time = new Date(Date.UTC(2030, 0, 1, 0, 0, second)).toISOString()
  return { at: time, requests, refused: 0, now_refused: 0 }
}

test('draws zero in steps without requests, at both ends of a gap', () => {
  const points = [at(0, 5), at(1, 5), at(3, 5), at(59, 5)]
  const filled = [at(0, 5), at(1, 5), at(2, 0), at(3, 5), at(4, 0), at(58, 0), at(59, 5)]
  expect(withZeros({ step_seconds: 1, points })).toEqual(filled)
  expect(withZeros(undefined)).toEqual([])
})
