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
])('each of %i nodes counts local rules against its share, and approximate ones in full', (nodes, share) => {
  const limiter = createLimiter({ rules: RULES, store: memoryStore({ nodes }) })
  const admitted = (subject: object) => {
    const decisions = Array.from({ length: 15 }, () => limiter.checkSync(subject))
    return decisions.filter((decision) => decision?.allowed).length
  }
  expect([admitted({ user: 'alice' }), admitted({ ip: '192.0.2.1' })]).toEqual([share, 10])
})

test('give, peek and reset use the node share', async () => {
  const limiter = createLimiter({ rules: RULES, store: memoryStore({ nodes: 2 }) })
  const first = await limiter.check({ user: 'alice' })
  await limiter.check({ user: 'alice' })
  expect((await limiter.peek({ user: 'alice' })).remaining).toBe(3)
  await limiter.give(first)
  expect((await limiter.peek({ user: 'alice' })).remaining).toBe(4)
  await limiter.reset('local', 'alice')
  expect((await limiter.peek({ user: 'alice' })).remaining).toBe(5)
})

test('an invalid number of nodes is rejected', () => {
  expect(() => memoryStore({ nodes: 0 })).toThrow('nodes')
})
