// Rollouts of a limiter: which version a key is under, on every node and at every step.

import { createLimiter, type Decision, type Limiter, memoryStore, pairsOf, type Rollout } from 'sluice'
import { fakeClock } from 'sluice/testing'
import { expect, onTestFinished, test } from 'vitest'
import { bench, rejection } from '../limiter-fixture.ts'
import { ALICE, denials, rolling, SALT, staged, times, USER } from './fixture.ts'

test('a shadow candidate never refuses a request, and its refusals are newly denied pairs', async () => {
  const { check } = await rolling([{ ...USER, limit: 4 }], staged({ candidate: { ...USER, limit: 2 }, share: 0 }))
  const decisions = times(6, () => check(ALICE))
  expect(decisions.map(({ allowed }) => allowed)).toEqual([true, true, true, true, false, false])
  expect(decisions.map(denials)).toEqual([
    [false, false],
    [false, false],
    [false, true],
    [false, true],
    [true, true],
    [true, true],
  ])
  expect(decisions[0]?.outcomes.map(({ variant, limit }) => [variant, limit])).toEqual([['current', 4]])
  expect(pairsOf(decisions[0] as Decision)[0]).toMatchObject({ ruleId: 'a', owner: 'alice', enforced: 'current' })
})

test('a key under the candidate gets its numbers on its own bucket', async () => {
  const { limiter, check } = bench([{ ...USER, limit: 10 }])
  for (const _ of times(6, () => 0)) check(ALICE)
  await limiter.setRollouts([staged({ candidate: { ...USER, limit: 8 }, share: 1 })])
  const decisions = times(3, () => check(ALICE))
  expect(decisions.map(({ allowed }) => allowed)).toEqual([true, true, false])
  expect(decisions.map(denials)).toEqual([
    [false, false],
    [false, false],
    [false, true],
  ])
  expect(decisions[2]?.outcomes[0]).toMatchObject({ variant: 'candidate', limit: 8 })
})

test('an invalid rollout is rejected and changes nothing', async () => {
  const { limiter, check } = await rolling(
    [{ ...USER, limit: 4 }],
    staged({ candidate: { ...USER, limit: 2 }, share: 1 }),
  )
  const invalid = [
    staged({ candidate: { ...USER, limit: -1 }, share: 1 }),
    staged({ candidate: { ...USER, limit: 1 }, share: 2 }),
    staged({ candidate: { ...USER, rule_id: 'b', limit: 1 }, share: 1 }),
    { ...staged({ candidate: null, share: 1 }), salt: 'not hex' },
    { ...staged({ candidate: null, share: 1 }), previous: null },
    { ruleId: 'a', salt: SALT, pairShare: 1 } as unknown as Rollout,
  ]
  for (const rollout of invalid) await expect(limiter.setRollouts([rollout])).rejects.toEqual(rejection('RULE_INVALID'))
  const twice = staged({ candidate: null, share: 1 })
  await expect(limiter.setRollouts([twice, twice])).rejects.toEqual(rejection('RULE_INVALID'))
  expect(check(ALICE).outcomes[0]).toMatchObject({ variant: 'candidate', limit: 2 })
})

test('rollouts stay in force when rules are set, prepared before or after them', async () => {
  const clock = fakeClock()
  const rules = [{ ...USER, limit: 10 }]
  const limiter = createLimiter({ rules, store: memoryStore({ clock }), clock })
  const prepared = await limiter.prepareRules([{ ...USER, limit: 11 }])
  await limiter.setRollouts([staged({ candidate: { ...USER, limit: 5 }, share: 1 })])
  const limitNow = async () => (await limiter.check(ALICE)).outcomes.map(({ variant, limit }) => [variant, limit])
  expect(await limitNow()).toEqual([['candidate', 5]])
  prepared.enforce()
  expect(await limitNow()).toEqual([['candidate', 5]])
  limiter.setRules([{ ...USER, limit: 12 }])
  expect(await limitNow()).toEqual([['candidate', 5]])
  await limiter.setRollouts([])
  expect(await limitNow()).toEqual([[undefined, 12]])
})

test('10,000 keys, 4 limiters, 3 steps: membership is the same on all and grows', async () => {
  const rules = [{ ...USER, limit: 10 }]
  const limiters = times(4, () => createLimiter({ rules, store: memoryStore() }))
  const keys = times(10_000, (index) => `user-${index}`)
  const isCandidate = (user: string) => (limiter: Limiter) =>
    limiter.checkSync({ user })?.outcomes[0]?.variant === 'candidate'
  let before: ReadonlySet<string> = new Set()
  for (const share of [0.01, 0.1, 0.5]) {
    for (const limiter of limiters)
      await limiter.setRollouts([staged({ candidate: { ...USER, limit: 20 }, share, pairShare: share / 2 })])
    const members = new Set(keys.filter((user) => isCandidate(user)(limiters[0] as Limiter)))
    for (const user of keys) expect(limiters.every((one) => isCandidate(user)(one) === members.has(user))).toBe(true)
    for (const user of before) expect(members.has(user)).toBe(true)
    // Four standard deviations of a binomial distribution.
    expect(Math.abs(members.size - 10_000 * share)).toBeLessThan(4 * Math.sqrt(10_000 * share * (1 - share)))
    before = members
  }
})

test('the paired keys are the first under the candidate, and another salt chooses others', async () => {
  const keys = times(2000, (index) => ({ user: `user-${index}` }))
  const chosen = async (salt: string, share: number, pairShare: number) => {
    const { check } = await rolling([{ ...USER, limit: 10 }], {
      ...staged({ candidate: { ...USER, limit: 20 }, share, pairShare }),
      salt,
    })
    const decisions = keys.map((subject) => check(subject))
    return {
      paired: keys.filter((_, index) => pairsOf(decisions[index] as Decision).length > 0),
      candidates: keys.filter((_, index) => decisions[index]?.outcomes[0]?.variant === 'candidate'),
    }
  }
  const { paired, candidates } = await chosen(SALT, 0.2, 0.1)
  expect(paired.length).toBeGreaterThan(100)
  for (const key of paired) expect(candidates).toContain(key)
  const { candidates: others } = await chosen(`${SALT}00`, 0.2, 0.1)
  const common = others.filter((key) => candidates.includes(key)).length
  expect(common).toBeLessThan(candidates.length / 2)
})

test('a refund returns the units of both versions, and a receipt survives the end of the rollout', async () => {
  const { limiter, check } = await rolling(
    [{ ...USER, limit: 2 }],
    staged({ candidate: { ...USER, limit: 1 }, share: 0 }),
  )
  const first = check(ALICE)
  await limiter.give(first)
  expect(denials(check(ALICE))).toEqual([false, false])
  const second = check(ALICE)
  const receipt = limiter.receipt(second)
  await limiter.setRollouts([])
  expect(await limiter.redeem(receipt)).toEqual({ outcome: 'given', leftOut: [] })
})

test('a receipt of either version is redeemed during the rollout', async () => {
  for (const share of [0, 1]) {
    const { limiter, check } = await rolling(
      [{ ...USER, limit: 4 }],
      staged({ candidate: { ...USER, limit: 3 }, share }),
    )
    const receipt = limiter.receipt(check(ALICE))
    expect(await limiter.redeem(receipt)).toEqual({ outcome: 'given', leftOut: [] })
    expect(check(ALICE).remaining).toBe(share === 0 ? 3 : 2)
  }
})

test('reset empties the buckets of both versions', async () => {
  const { limiter, check } = await rolling(
    [{ ...USER, limit: 2 }],
    staged({ candidate: { ...USER, limit: 1 }, share: 0 }),
  )
  for (const _ of times(3, () => 0)) check(ALICE)
  await limiter.reset('a', 'alice')
  expect(denials(check(ALICE))).toEqual([false, false])
})

test('explain names the version, and why a version does not apply', async () => {
  const rules = [
    { ...USER, limit: 4 },
    { ...USER, rule_id: 'b', limit: 4 },
  ]
  const { limiter } = await rolling(
    rules,
    staged({ candidate: { ...USER, limit: 2 }, share: 1 }),
    staged({ candidate: null, share: 1 }, 'b'),
    staged({ candidate: { ...USER, rule_id: 'c', limit: 4 }, share: 0 }, 'c'),
  )
  const { rules: explained } = await limiter.explain(ALICE)
  expect(explained).toMatchObject([
    { ruleId: 'a', variant: 'candidate', reason: null, detail: expect.stringContaining('2') },
    { ruleId: 'b', variant: 'candidate', reason: 'rollout' },
    { ruleId: 'c', variant: 'current', reason: 'rollout' },
  ])
})

test('the kill switch disables both versions', async () => {
  const { limiter, check } = await rolling(
    [{ ...USER, limit: 1 }],
    staged({ candidate: { ...USER, limit: 0 }, share: 1 }),
  )
  limiter.disable(['a'])
  expect(check(ALICE)).toMatchObject({ allowed: true, outcomes: [] })
  expect(pairsOf(check(ALICE))).toEqual([])
})

test('rules without a rollout get the same charges as before', async () => {
  const rules = [
    { ...USER, limit: 4 },
    { rule_id: 'b', endpoint_pattern: '/b', scope: 'per_ip', limit: 4, window_seconds: 60 },
  ]
  const { check } = await rolling(rules, staged({ candidate: { ...USER, endpoint_pattern: '/a', limit: 2 }, share: 1 }))
  const decision = check({ ip: '192.0.2.1', path: '/b' })
  expect(decision.outcomes).toHaveLength(1)
  expect(decision.outcomes[0]).not.toHaveProperty('variant')
  expect(pairsOf(decision)).toBe(pairsOf(check({})))
})

test('two limiters that disagree about the version never answer stale_rules', async () => {
  const clock = fakeClock()
  const store = memoryStore({ clock })
  const rules = [{ ...USER, limit: 10, version: 5 }]
  const [ahead, behind] = times(2, () => createLimiter({ rules, store, clock })) as [Limiter, Limiter]
  await ahead.setRollouts([staged({ candidate: { ...USER, limit: 6, version: 9 }, share: 1, pairShare: 0 })])
  let admitted = 0
  for (const index of times(30, (at) => at)) {
    const decision = await (index % 2 === 0 ? ahead : behind).check(ALICE)
    if (decision.allowed) admitted += 1
    expect(decision.outcomes[0]?.short).not.toBe('stale_rules')
  }
  expect(admitted).toBeLessThanOrEqual(10)
})

test('each rollout, and each attempt, compares anew: what an earlier candidate refused does not count', async () => {
  const clock = fakeClock()
  const rule = { rule_id: 'r', scope: 'per_user', limit: 100, window_seconds: 600 }
  const limiter = createLimiter({ rules: [rule], store: memoryStore({ clock }), clock })
  onTestFinished(() => limiter.close())
  const newlyDenied = async (salt: string, attempt: number, limit: number) => {
    await limiter.setRollouts([{ ruleId: 'r', salt, attempt, pairShare: 1, candidate: { ...rule, limit }, share: 0 }])
    const pairs = Array.from({ length: 5 }, () => limiter.checkSync({ user: 'a' })).flatMap(
      (one) => one && pairsOf(one),
    )
    return pairs.filter((pair) => pair?.candidateDenied).length
  }
  expect(await newlyDenied('aa', 1, 2)).toBe(3)
  expect(await newlyDenied('bb', 1, 99)).toBe(0)
  expect(await newlyDenied('cc', 1, 12)).toBe(3) // seeded from the live bucket, which has admitted 10
  expect(await newlyDenied('bb', 1, 99)).toBe(0)
  expect(await newlyDenied('aa', 2, 99)).toBe(0)
})
