// decideAll: one check of several subjects, all or nothing.

import { createLimiter, memoryStore } from 'sluice'
import { fakeClock } from 'sluice/testing'
import { expect, it } from 'vitest'

const FIXED = { algorithm: 'fixed_window', window: '1m' } as const
const PER_USER = { rule_id: 'per_user', scope: 'per_user', limit: 3, ...FIXED } as const
const PER_IP = { rule_id: 'per_ip', scope: 'per_ip', limit: 2, ...FIXED } as const
const ALL = { rule_id: 'all', scope: 'global', limit: 10, ...FIXED } as const

function limiter(...rules: readonly object[]) {
  const clock = fakeClock()
  return createLimiter({ rules: rules as [], store: memoryStore({ clock }), clock })
}

it('takes from all subjects or from none', async () => {
  const limits = limiter(PER_USER, PER_IP)
  const subjects = [{ user: 'ann' }, { ip: '203.0.113.7', cost: 2 }]
  const first = await limits.decideAll(subjects)
  expect(first.decision.allowed).toBe(true)
  expect(first.decisions.map(({ ruleId, remaining }) => [ruleId, remaining])).toEqual([
    ['per_user', 2],
    ['per_ip', 0],
  ])
  const second = await limits.decideAll(subjects)
  expect(second.decision).toMatchObject({ allowed: false, ruleId: 'per_ip' })
  expect(second.decisions.map(({ allowed }) => allowed)).toEqual([true, false])
  expect(second.decidedBy).toBe(1)
  expect(await limits.peek({ user: 'ann' })).toMatchObject({ remaining: 2 })
})

it('charges a bucket that subjects share once, with the largest cost, and refunds it once', async () => {
  const limits = limiter(ALL)
  const { decision, decisions } = await limits.decideAll([{ user: 'ann', cost: 2 }, { user: 'bob', cost: 5 }, {}])
  expect(decisions.map(({ remaining }) => remaining)).toEqual([5, 5, 5])
  await limits.give(decision)
  expect(await limits.peek({})).toMatchObject({ remaining: 10 })
})

it('a ban of one subject refuses all', async () => {
  const limits = limiter(PER_USER, PER_IP)
  limits.changeOverrides({
    set: [{ id: 'o1', ruleId: null, fact: 'user', owner: 'eve', effect: { ban: 429 }, expiresAtMs: null }],
  })
  const { decision, decisions } = await limits.decideAll([{ ip: '203.0.113.7' }, { user: 'eve' }])
  expect(decision.allowed).toBe(false)
  expect(decisions.map(({ allowed }) => allowed)).toEqual([true, false])
  expect(await limits.peek({ ip: '203.0.113.7' })).toMatchObject({ remaining: 2 })
})

it('rejects a bypass token, and decides about no subject at all', async () => {
  const limits = limiter(ALL)
  expect(() => limits.decideAll([{ bypassToken: 'x' }])).toThrow('bypassToken')
  expect(await limits.decideAll([])).toMatchObject({ decision: { allowed: true }, decisions: [] })
})
