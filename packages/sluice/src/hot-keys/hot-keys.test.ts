import { fakeClock, seededRandom } from 'sluice/testing'
import { describe, expect, test } from 'vitest'
import { RuleSet } from '../rules/rule-set.ts'
import { runSync } from '../slices.ts'
import type { Subject } from '../subject.ts'
import { HotKeys } from './hot-keys.ts'

const PER_USER = { rule_id: 'per_user', scope: 'per_user', limit: 100, window_seconds: 60 }

/** Hot keys with a `load` function that adds checks at a steady rate on a fake clock. */
function watch(rules: readonly object[] = [PER_USER], seed = 1) {
  const clock = fakeClock()
  const hotKeys = new HotKeys(clock, seededRandom(seed).next)
  const options = { layer: undefined, ipv6Prefix: 64, stores: [] }
  const ruleSet = runSync(RuleSet.of(rules, 1, options, clock))
  const chargesOf = (subject: Subject) => ruleSet.chargesFor(subject, 'request')
  const load = (checks: number, perSecond: number, subjectOf: (index: number) => Subject) => {
    for (let index = 0; index < checks; index += 1) {
      clock.advanceUs(1e6 / perSecond)
      hotKeys.checked(chargesOf(subjectOf(index)))
    }
  }
  const isHot = (user: string) => hotKeys.list().some(({ owner }) => owner === user)
  return { clock, hotKeys, load, isHot }
}

/** Every nth check is of `user`; all others are of users seen once. */
function everyNth(n: number, user: string): (index: number) => Subject {
  return (index) => ({ user: index % n === 0 ? user : `once-${index}` })
}

describe('rates', () => {
  test.each([10_000, 50_000])('cover the last half minute, at %i checks per second', (perSecond) => {
    const { hotKeys, load } = watch()
    const users = ['alice', 'alice', 'alice', 'bob', 'bob', 'carol']
    load(300_000, perSecond, (index) => ({ user: index % 10 < 6 ? users[index % 10] : `once-${index}` }))
    const list = hotKeys.list()
    expect(list.map(({ owner }) => owner)).toEqual(['alice', 'bob', 'carol'])
    for (const [index, share] of [0.3, 0.2, 0.1].entries()) {
      const { checksPerSecond = 0, share: estimate = 0 } = list[index] ?? {}
      expect(Math.abs(estimate / share - 1), `share of ${users[index]}`).toBeLessThan(0.15)
      expect(Math.abs(checksPerSecond / (share * perSecond) - 1), `rate of ${users[index]}`).toBeLessThan(0.15)
    }
  })

  test('are not inflated in the first second', () => {
    const { hotKeys, load } = watch()
    load(4000, 1e6, () => ({ user: 'alice' }))
    const [alice] = hotKeys.list()
    expect(alice).toMatchObject({ owner: 'alice', share: 1 })
    expect(alice?.checksPerSecond).toBeLessThan(6000)
  })

  test('survive a clock that is set back', () => {
    const { hotKeys, load, clock } = watch()
    load(20_000, 1000, () => ({ user: 'alice' }))
    clock.advanceMs(-3_600_000)
    load(20_000, 1000, () => ({ user: 'alice' }))
    const [alice] = hotKeys.list()
    expect(Math.abs((alice?.checksPerSecond ?? 0) / 1000 - 1)).toBeLessThan(0.5)
  })
})

describe('a key is hot', () => {
  test('with at least one in a hundred checks, and not with fewer', () => {
    for (const [n, hot] of [
      [50, ['alice']],
      [400, []],
    ] as const) {
      const { hotKeys, load, isHot } = watch()
      load(400_000, 50_000, everyNth(n, 'alice'))
      expect(hotKeys.list().map(({ owner }) => owner)).toEqual(hot)
      expect(isHot('alice')).toBe(hot.length > 0)
      expect(isHot('once-1')).toBe(false)
    }
  })

  test('only after enough samples', () => {
    const { hotKeys, load, isHot } = watch()
    load(15, 1000, () => ({ user: 'alice' }))
    expect(hotKeys.list()).toEqual([])
    load(6000, 1000, () => ({ user: 'alice' }))
    expect(isHot('alice')).toBe(true)
  })

  test('no longer an hour later, nor a minute after other keys replaced it', () => {
    const { hotKeys, load, clock, isHot } = watch()
    load(60_000, 1000, () => ({ user: 'alice' }))
    expect(isHot('alice')).toBe(true)
    load(120_000, 1000, () => ({ user: 'bob' }))
    expect(hotKeys.list()).toMatchObject([{ owner: 'bob' }])
    expect(isHot('alice')).toBe(false)
    clock.advanceMs(3_600_000)
    expect(hotKeys.list()).toEqual([])
  })

  test.each([8, 32, 63, 64, 65])('also when it is every %ith check', (n) => {
    const { hotKeys, load } = watch()
    load(400_000, 80_000, everyNth(n, 'alice'))
    const [{ owner, share } = { owner: '', share: 0 }] = hotKeys.list()
    expect(owner).toBe('alice')
    expect(Math.abs(share * n - 1)).toBeLessThan(0.35)
  })
})

test('each limit of a check counts as its own bucket, and keys are reported in full', () => {
  const limits = [
    { name: 'short', limit: 10, window: '1s' },
    { name: 'long', limit: 100, window: '1m' },
  ]
  const { hotKeys, load } = watch([
    { rule_id: 'both', scope: ['user', 'method'], limits },
    { ...PER_USER, rule_id: 'all', scope: 'global' },
    { ...PER_USER, rule_id: 'banned', scope: 'global', plan: 'none', limit: 0 },
  ])
  load(5000, 1000, () => ({ user: 'alice', method: 'GET' }))
  load(5000, 1000, () => ({ plan: 'none' })) // a ban has no buckets, but counts as checks
  const alice = { fact: 'user', owner: 'alice', detail: 'GET' }
  const list = hotKeys.list().map(({ share, ...key }) => ({ ...key, halves: Math.round(share * 2) }))
  expect(list).toEqual([
    { ruleId: 'both', name: 'short', ...alice, halves: 1, checksPerSecond: expect.any(Number) },
    { ruleId: 'both', name: 'long', ...alice, halves: 1, checksPerSecond: expect.any(Number) },
    { ruleId: 'all', name: 'default', fact: '', owner: '', detail: '', halves: 1, checksPerSecond: expect.any(Number) },
  ])
})
