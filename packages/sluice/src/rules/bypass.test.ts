import { describe, expect, test } from 'vitest'
import { createLimiter } from '../limiter.ts'
import { memoryStore } from '../store/memory.ts'
import type { Store } from '../store/store.ts'
import type { Subject } from '../subject.ts'
import type { Bypass } from './bypass.ts'
import type { RuleInput } from './rule-input.ts'

const TOKENS: ReadonlyMap<string, Bypass> = new Map([
  ['all', { id: 't-all', rules: undefined, paths: undefined, limitPerMinute: 5 }],
  ['one', { id: 't-one', rules: ['per_user'], paths: undefined, limitPerMinute: 5 }],
  ['path', { id: 't-path', rules: undefined, paths: ['/health', '/batch/**'], limitPerMinute: 5 }],
])

const PER_USER: RuleInput = { rule_id: 'per_user', scope: 'per_user', limit: 2, window: '1m' }
const PER_IP: RuleInput = { rule_id: 'per_ip', scope: 'per_ip', limit: 3, window: '1m' }
const CLOCK = { nowUs: () => 1_700_000_000_000_000 }
const ADA = { user: 'ada', ip: '10.0.0.1' }

function limiterOf(rules: readonly RuleInput[] = [PER_USER, PER_IP], store: Store = memoryStore({ clock: CLOCK })) {
  return createLimiter({ rules, store, bypass: (token) => TOKENS.get(token) })
}

type Tested = ReturnType<typeof limiterOf>

/** Number of the first `count` requests that are admitted. */
async function admitted(limiter: Tested, count: number, subject: Subject): Promise<number> {
  let allowed = 0
  for (let sent = 0; sent < count; sent += 1) if ((await limiter.check(subject)).allowed) allowed += 1
  return allowed
}

describe('a valid bypass token', () => {
  test('charges its own limit instead of the rules, and then the rules apply', async () => {
    const limiter = limiterOf()
    const first = await limiter.check({ ...ADA, bypassToken: 'all' })
    expect(first).toMatchObject({ allowed: true, ruleId: null, limit: null, outcomes: [] })
    expect(first.exceptions).toEqual([
      { kind: 'bypass', id: 't-all', ruleId: 'per_user', effect: { exempt: true } },
      { kind: 'bypass', id: 't-all', ruleId: 'per_ip', effect: { exempt: true } },
    ])
    expect(await admitted(limiter, 4, { ...ADA, bypassToken: 'all' })).toBe(4)
    const over = await limiter.check({ ...ADA, bypassToken: 'all' })
    expect(over).toMatchObject({ allowed: true, ruleId: 'per_user', remaining: 1, exceptions: [] })
  })

  test('leaves rules out of its scope in force, and takes nothing if they refuse', async () => {
    const limiter = limiterOf()
    const subject = { ...ADA, bypassToken: 'one' }
    expect(await limiter.check(subject)).toMatchObject({ allowed: true, ruleId: 'per_ip', remaining: 2 })
    expect(await admitted(limiter, 5, subject)).toBe(2)
    expect(await limiter.check(subject)).toMatchObject({ allowed: false, ruleId: 'per_ip' })
    // Two units of the token are left; then the request is charged to both rules.
    expect(await admitted(limiter, 9, { ...subject, ip: '10.0.0.2' })).toBe(3)
  })

  test.each([
    ['/health', true],
    ['/batch/7/run', true],
    ['/Health/', true],
    ['/other', false],
    ['/batch/..%2fother', false],
    ['/batch;/../other', false],
  ])('with path patterns covers %s: %s', async (path, isCovered) => {
    const decision = await limiterOf().check({ ...ADA, path, bypassToken: 'path' })
    expect(decision.exceptions.length > 0).toBe(isCovered)
  })

  test('never lifts a ban, of an override or of a limit of 0', async () => {
    const closed: RuleInput = { rule_id: 'closed', endpoint_pattern: '/closed', limit: 0, window: '1m' }
    const limiter = limiterOf([PER_USER, closed])
    const key = { fact: 'user', owner: 'ada', expiresAtMs: null }
    limiter.changeOverrides({ set: [{ id: 'b1', ruleId: 'per_user', ...key, effect: { ban: 403 } }] })
    expect(await limiter.check({ user: 'ada', bypassToken: 'all' })).toMatchObject({ allowed: false, status: 403 })
    limiter.changeOverrides({ set: [{ id: 'b1', ruleId: null, ...key, effect: { ban: 429 } }] })
    expect(await limiter.check({ user: 'ada', bypassToken: 'all' })).toMatchObject({ allowed: false, limit: 0 })
    expect(await limiter.check({ path: '/closed', bypassToken: 'all' })).toMatchObject({ allowed: false })
    expect(await admitted(limiter, 7, { user: 'bob', bypassToken: 'all' })).toBe(7)
  })

  test('works for keys that are compared with a candidate of limit 0, and never lifts such a ban', async () => {
    const limiter = limiterOf([PER_USER])
    const rollout = { ruleId: 'per_user', salt: '5a17', candidate: { ...PER_USER, limit: 0 }, pairShare: 1 }
    await limiter.setRollouts([{ ...rollout, share: 0 }])
    expect(await limiter.check({ user: 'ada', bypassToken: 'all' })).toMatchObject({ allowed: true, ruleId: null })
    await limiter.setRollouts([{ ...rollout, share: 1 }])
    expect(await limiter.check({ user: 'ada', bypassToken: 'all' })).toMatchObject({ allowed: false, limit: 0 })
  })

  test('is refunded with its request, by decision and by receipt, and holds the permits of other rules', async () => {
    const store = memoryStore({ clock: CLOCK })
    const limiter = limiterOf([PER_USER, { rule_id: 'open', algorithm: 'concurrency', limit: 1, window: '1m' }], store)
    const subject = { user: 'ada', bypassToken: 'one' }
    for (let round = 0; round < 8; round += 1) {
      const decision = await limiter.check(subject)
      expect(decision).toMatchObject({ allowed: true, ruleId: 'open', remaining: 0 })
      if (round % 2 === 0) await limiter.give(decision)
      else
        expect(await limiterOf([PER_USER], store).redeem(limiter.receipt(decision))).toMatchObject({ outcome: 'given' })
      if (round % 2 === 1) await limiter.release(decision)
    }
    expect((await limiter.explain(subject)).rules.map(({ reason }) => reason)).toEqual(['bypassed', null])
  })

  test('is charged the cost of the request; a cost above its limit leaves the rules in force', async () => {
    const limiter = limiterOf([{ ...PER_USER, limit: 10 }])
    expect((await limiter.check({ user: 'ada', cost: 5, bypassToken: 'all' })).ruleId).toBe(null)
    expect((await limiter.check({ user: 'ada', bypassToken: 'all' })).ruleId).toBe('per_user')
    expect((await limiter.check({ user: 'ada', cost: 6, bypassToken: 'one' })).ruleId).toBe('per_user')
  })

  test('is honoured by every form of check, and a peek consumes nothing', async () => {
    const limiter = limiterOf()
    const subject = { ...ADA, bypassToken: 'all' }
    for (let peeks = 0; peeks < 9; peeks += 1) expect((await limiter.peek(subject)).exceptions).toHaveLength(2)
    expect(limiter.checkSync(subject)?.exceptions).toHaveLength(2)
    expect((await limiter.decide(subject)).exceptions).toHaveLength(2)
    expect(await admitted(limiter, 3, subject)).toBe(3)
    expect(limiter.checkSync(subject)?.ruleId).toBe('per_user')
    expect((await limiter.peek(subject)).ruleId).toBe('per_user')
  })
})

test.each(['wrong', '', 'x'.repeat(600)])('a wrong token gets the same answers as none: %s', async (bypassToken) => {
  const limiters = [limiterOf(), limiterOf()]
  for (let round = 0; round < 4; round += 1) {
    const [without, wrong] = await Promise.all([limiters[0]?.check(ADA), limiters[1]?.check({ ...ADA, bypassToken })])
    const plain = (decision: unknown) => ({ ...JSON.parse(JSON.stringify(decision)), requestId: '' })
    expect(plain(wrong)).toEqual(plain(without))
  }
})

describe('bad input', () => {
  test('an asynchronous verifier is an error, not a bypass', async () => {
    const limiter = createLimiter({ rules: [PER_USER], bypass: (async () => undefined) as never })
    await expect(limiter.check({ user: 'ada', bypassToken: 'x' })).rejects.toThrow('bypass: return { id,')
  })

  test('names the field and the fix, and never prints a token', async () => {
    expect(() => createLimiter({ rules: [], bypass: 'token' as never })).toThrow('bypass: pass a function')
    const subject = { user: 'ada', bypassToken: 7 as never }
    await expect(limiterOf().check(subject)).rejects.toThrow('bypassToken: give a string')
  })
})
