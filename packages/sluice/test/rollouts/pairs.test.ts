// Pairs: both versions of a rule decide the same request, each as if it were alone.

import { canaryProblem, type Decision, isPairable, pairsOf, parseRules, type Rollout, type Rule } from 'sluice'
import { expect, test } from 'vitest'
import { bench, type Fields } from '../limiter-fixture.ts'
import { ALICE, denials, rolling, SALT, staged, times, USER } from './fixture.ts'

test('a flood that both versions refuse yields no newly denied pair', async () => {
  const { check, clock } = await rolling(
    [{ ...USER, limit: 10, window_seconds: 10 }],
    staged({ candidate: { ...USER, limit: 10, burst: 12, window_seconds: 10 }, share: 1 }),
  )
  const decisions: Decision[] = []
  for (const _ of times(3000, () => 0)) {
    decisions.push(check(ALICE))
    clock.advanceMs(10)
  }
  const pairs = decisions.flatMap((decision) => pairsOf(decision))
  expect(pairs).toHaveLength(3000)
  expect(pairs.filter(({ currentDenied }) => currentDenied).length).toBeGreaterThan(2900)
  expect(pairs.filter(({ currentDenied, candidateDenied }) => candidateDenied && !currentDenied)).toEqual([])
})

test('a flood counts against each version alone: the halved limit is seen, whichever is enforced', async () => {
  for (const share of [0, 1]) {
    const { check, clock } = await rolling(
      [{ ...USER, algorithm: 'fixed_window', limit: 10, window_seconds: 1 }],
      staged({ candidate: { ...USER, algorithm: 'fixed_window', limit: 5, window_seconds: 1 }, share }),
    )
    const allowed = { current: 0, candidate: 0 }
    for (const _ of times(10 * 20, () => 0)) {
      for (const { currentDenied, candidateDenied } of pairsOf(check(ALICE))) {
        if (!currentDenied) allowed.current += 1
        if (!candidateDenied) allowed.candidate += 1
      }
      clock.advanceMs(50)
    }
    expect(allowed).toEqual({ current: 100, candidate: 50 })
  }
})

test('a candidate with limit 0 refuses its keys, and the current version goes on counting', async () => {
  const rules = [{ ...USER, limit: 3 }]
  const { limiter, check } = await rolling(rules, staged({ candidate: { ...USER, limit: 0 }, share: 1 }))
  const decisions = times(4, () => check(ALICE))
  expect(decisions.map(({ allowed }) => allowed)).toEqual([false, false, false, false])
  expect(decisions.map(denials)).toEqual([
    [false, true],
    [false, true],
    [false, true],
    [true, true],
  ])
  expect(decisions[0]?.retryAfterMs).toBe(null)
  await limiter.setRollouts([])
  expect(check(ALICE)).toMatchObject({ allowed: true, remaining: 2 }) // the live bucket was not touched
})

test('a candidate with limit 0 keeps the history of the live bucket', async () => {
  const { limiter, check } = bench([{ ...USER, limit: 3 }])
  check(ALICE)
  await limiter.setRollouts([staged({ candidate: { ...USER, limit: 0 }, share: 1 })])
  expect(times(3, () => denials(check(ALICE)))).toEqual([
    [false, true],
    [false, true],
    [true, true],
  ])
  await limiter.setRollouts([])
  expect(check(ALICE)).toMatchObject({ allowed: true, remaining: 1 })
})

test('an unpaired key under a candidate with limit 0 is refused without the store', async () => {
  const { check } = await rolling(
    [{ ...USER, limit: 3 }],
    staged({ candidate: { ...USER, limit: 0 }, share: 1, pairShare: 0 }),
  )
  expect(check(ALICE)).toMatchObject({ allowed: false, source: 'local', ruleId: 'a' })
  expect(pairsOf(check(ALICE))).toEqual([])
})

test('a new rule applies to the keys under the candidate only', async () => {
  const other = { ...USER, rule_id: 'b', limit: 100 }
  const added = { ...USER, limit: 1 }
  const shadow = await rolling([other], staged({ candidate: added, share: 0 }))
  expect(times(2, () => shadow.check(ALICE)).map(({ allowed }) => allowed)).toEqual([true, true])
  expect(denials(shadow.check(ALICE))).toEqual([false, true])
  expect(shadow.check(ALICE).outcomes.map(({ ruleId }) => ruleId)).toEqual(['b'])
  const canary = await rolling([other], staged({ candidate: added, share: 1 }))
  expect(times(2, () => canary.check(ALICE)).map(({ allowed }) => allowed)).toEqual([true, false])
  expect(denials(canary.check(ALICE))).toEqual([false, true])
  const banning = await rolling([], staged({ candidate: { ...USER, limit: 0 }, share: 1 }))
  expect(denials(banning.check(ALICE))).toEqual([false, true])
})

test('a deleted rule no longer applies to the keys under the candidate', async () => {
  const rules = [{ ...USER, limit: 1 }]
  const shadow = await rolling(rules, staged({ candidate: null, share: 0 }))
  expect(times(2, () => denials(shadow.check(ALICE)))).toEqual([
    [false, false],
    [true, false],
  ])
  const canary = await rolling(rules, staged({ candidate: null, share: 1 }))
  const decisions = times(2, () => canary.check(ALICE))
  expect(decisions.map(({ allowed, outcomes }) => [allowed, outcomes.length])).toEqual([
    [true, 0],
    [true, 0],
  ])
  expect(decisions.map(denials)).toEqual([
    [false, false],
    [true, false],
  ])
})

test('an applied change is enforced for every key, and compared with the previous version', async () => {
  const applied = (previous: Fields | null): Rollout => ({ ruleId: 'a', salt: SALT, pairShare: 1, previous })
  const edited = await rolling([{ ...USER, limit: 1, version: 7 }], applied({ ...USER, limit: 2, version: 6 }))
  expect(times(3, () => edited.check(ALICE)).map((one) => [one.allowed, ...(denials(one) ?? [])])).toEqual([
    [true, false, false],
    [false, false, true],
    [false, true, true],
  ])
  const created = await rolling([{ ...USER, limit: 1 }], applied(null))
  expect(times(2, () => denials(created.check(ALICE)))).toEqual([
    [false, false],
    [false, true],
  ])
  const deleted = await rolling([], applied({ ...USER, limit: 1 }))
  expect(times(2, () => [deleted.check(ALICE).allowed, denials(deleted.check(ALICE))])).toEqual([
    [true, [true, false]],
    [true, [true, false]],
  ])
  // Without the fact of the key there is no pair, and an applied change holds.
  const anonymous = edited.check({ ip: '192.0.2.1' })
  expect([anonymous.outcomes, pairsOf(anonymous)]).toEqual([[], []])
})

test('the owner under the current scope decides, also when the candidate has another scope', async () => {
  const candidate = { ...USER, scope: 'per_ip', limit: 1 }
  const { check } = await rolling([{ ...USER, limit: 2 }], staged({ candidate, share: 0 }))
  const [first, second, third] = [
    check({ user: 'alice', ip: '192.0.2.1' }),
    check({ user: 'bob', ip: '192.0.2.1' }),
    check({ user: 'bob', ip: '192.0.2.2' }),
  ]
  expect([first, second, third].map((one) => pairsOf(one)[0])).toMatchObject([
    { owner: 'alice', currentDenied: false, candidateDenied: false },
    { owner: 'bob', currentDenied: false, candidateDenied: true },
    { owner: 'bob', currentDenied: false, candidateDenied: false },
  ])
  const withoutUser = check({ ip: '192.0.2.3' })
  expect([withoutUser.outcomes, pairsOf(withoutUser)]).toEqual([[], []])
})

test('the current version starts from its own bucket when a key moves to a candidate with another scope', async () => {
  const { limiter, check } = bench([{ ...USER, limit: 2 }])
  const subject = { user: 'alice', ip: '192.0.2.1' }
  check(subject)
  await limiter.setRollouts([staged({ candidate: { ...USER, scope: 'per_ip', limit: 9 }, share: 1 })])
  expect(times(2, () => denials(check(subject)))).toEqual([
    [false, false],
    [true, false],
  ])
})

test('a request that only one version matches is still a pair; the other version denies nothing', async () => {
  const candidate = { ...USER, endpoint_pattern: '/a', limit: 1 }
  const { check } = await rolling([{ ...USER, limit: 1 }], staged({ candidate, share: 0 }))
  expect(times(2, () => denials(check({ ...ALICE, path: '/b' })))).toEqual([
    [false, false],
    [true, false],
  ])
})

test('a group resolves after the choice of the version, and other members make versions incomparable', async () => {
  const group = { group: 'g', scope: 'per_user', window_seconds: 60 }
  const rules = [
    { ...group, rule_id: 'a', priority: 2, limit: 1 },
    { ...group, rule_id: 'b', priority: 1, limit: 5 },
  ]
  const lowered = { ...group, rule_id: 'a', priority: 0, limit: 1 }
  const canary = await rolling(rules, staged({ candidate: lowered, share: 1 }))
  expect(canary.check(ALICE).outcomes.map(({ ruleId }) => ruleId)).toEqual(['b'])
  expect(pairsOf(canary.check(ALICE))).toEqual([])
  const same = await rolling(rules, staged({ candidate: { ...lowered, priority: 3, limit: 9 }, share: 0 }))
  expect(times(2, () => denials(same.check(ALICE)))).toEqual([
    [false, false],
    [true, false],
  ])
})

test('a request that another rule refuses is denied under both versions', async () => {
  const rules = [
    { ...USER, limit: 9 },
    { rule_id: 'b', scope: 'per_ip', limit: 1, window_seconds: 60 },
  ]
  const { check } = await rolling(rules, staged({ candidate: { ...USER, limit: 1 }, share: 0 }))
  const subject = { ...ALICE, ip: '192.0.2.1' }
  expect(times(2, () => denials(check(subject)))).toEqual([
    [false, false],
    [true, true],
  ])
})

test('several rules roll out together, each with its own pairs', async () => {
  const rules = [
    { ...USER, limit: 9 },
    { ...USER, rule_id: 'b', limit: 9 },
  ]
  const { check } = await rolling(
    rules,
    staged({ candidate: { ...USER, limit: 1 }, share: 0 }),
    staged({ candidate: { ...USER, rule_id: 'b', limit: 2 }, share: 1 }, 'b'),
  )
  const seen = times(3, () => pairsOf(check(ALICE)))
  expect(seen.map((pairs) => pairs.map((one) => [one.ruleId, one.currentDenied, one.candidateDenied]))).toEqual([
    [
      ['a', false, false],
      ['b', false, false],
    ],
    [
      ['a', false, true],
      ['b', false, false],
    ],
    [
      ['a', true, true],
      ['b', false, true],
    ],
  ])
})

test('a global bucket: every request is paired, and pairs name the client', async () => {
  const all = { rule_id: 'a', scope: 'global', limit: 2, window_seconds: 60 }
  const { check } = await rolling([all], staged({ candidate: { ...all, limit: 1 }, share: 0, pairShare: 0.001 }))
  const owners = ['alice', 'bob'].flatMap((user) => pairsOf(check({ user })))
  expect(owners).toMatchObject([
    { owner: 'alice', candidateDenied: false },
    { owner: 'bob', candidateDenied: true },
  ])
  const [global, perUser, perPlan] = parseRules([
    all,
    { ...USER, rule_id: 'b', limit: 1 },
    { ...all, rule_id: 'c', scope: ['plan', 'user'] },
  ])
  expect([global, perUser, perPlan].map((rule) => canaryProblem(rule as Rule))).toEqual([
    'one bucket for all clients: use shadow steps',
    undefined,
    'one bucket for all clients: use shadow steps',
  ])
})

test.each([{ algorithm: 'concurrency' }, { consistency: 'local' }, { shards: 2 }])(
  '%j rolls out without pairs',
  async (fields) => {
    const rule = { ...USER, limit: 4, ...fields }
    const { check } = await rolling([rule], staged({ candidate: { ...rule, limit: 2 }, share: 1 }))
    expect(parseRules([rule]).map(isPairable)).toEqual([false])
    expect(pairsOf(check(ALICE))).toEqual([])
    expect(check(ALICE).outcomes[0]).toMatchObject({ variant: 'candidate', limit: 2 })
  },
)
