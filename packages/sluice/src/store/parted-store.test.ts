import { expect, test } from 'vitest'
import { createLimiter } from '../limiter.ts'
import { memoryStore } from './memory.ts'

const RULES = [
  { rule_id: 'local', consistency: 'local', scope: 'per_user', limit: 10, window: '1h', algorithm: 'fixed_window' },
  { rule_id: 'loose', consistency: 'approximate', scope: 'per_ip', limit: 10, window: '1h', algorithm: 'fixed_window' },
]

test.each([
  [1, 10],
  [4, 2],
  [20, 1],
])('of %i nodes, each counts local rules against its part; approximate ones are whole in memory', (nodes, part) => {
  const limiter = createLimiter({ rules: RULES, store: memoryStore({ nodes }) })
  const admitted = (subject: object) => {
    const decisions = Array.from({ length: 15 }, () => limiter.checkSync(subject))
    return decisions.filter((decision) => decision?.allowed).length
  }
  expect([admitted({ user: 'alice' }), admitted({ ip: '192.0.2.1' })]).toEqual([part, 10])
})

test('what is given back, peeked at or reset is of the part', async () => {
  const limiter = createLimiter({ rules: RULES, store: memoryStore({ nodes: 2 }) })
  const first = await limiter.check({ user: 'alice' })
  await limiter.check({ user: 'alice' })
  expect((await limiter.peek({ user: 'alice' })).remaining).toBe(3)
  await limiter.give(first)
  expect((await limiter.peek({ user: 'alice' })).remaining).toBe(4)
  await limiter.reset('local', 'alice')
  expect((await limiter.peek({ user: 'alice' })).remaining).toBe(5)
})

test('a number of nodes that is none is refused', () => {
  expect(() => memoryStore({ nodes: 0 })).toThrow('nodes')
})
