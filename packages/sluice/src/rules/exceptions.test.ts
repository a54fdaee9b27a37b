import { describe, expect, test } from 'vitest'
import { createLimiter } from '../limiter.ts'
import type { Limiter } from '../limiter-api.ts'
import { memoryStore } from '../store/memory.ts'
import { type Override, type OverrideEffect, SEVERITIES } from './exception.ts'
import type { RuleInput } from './rule-input.ts'

const NOW_MS = 1_700_000_000_000

/** A limiter on a clock that the test moves. */
function limiterAt(rules: readonly RuleInput[]) {
  const time = { ms: NOW_MS }
  const clock = { nowUs: () => time.ms * 1000 }
  return { time, limiter: createLimiter({ rules, clock, store: memoryStore({ clock }) }) }
}

const PER_USER: RuleInput = { rule_id: 'per_user', scope: 'per_user', limit: 10, window: '1m' }
let ids = 0

function override(effect: OverrideEffect, change: Partial<Override> = {}): Override {
  ids += 1
  const key = { ruleId: 'per_user', fact: 'user', owner: 'ada' }
  return { id: `o${ids}`, ...key, effect, expiresAtMs: null, ...change }
}

/** Result of a check as text: the limit that decided, `none` if no rule charged it, or the status of a refusal. */
async function resultOf(limiter: Limiter, subject: object = { user: 'ada' }): Promise<string> {
  const { allowed, limit, status = 429 } = await limiter.check(subject)
  return allowed ? String(limit ?? 'none') : String(status)
}

describe('precedence of overrides', () => {
  const [LIMIT, LOWER] = [{ limit: 50 }, { limit: 5 }]
  const [BAN, FORBID, EXEMPT] = [{ ban: 429 }, { ban: 403 }, { exempt: true }] as const
  const all = { ruleId: null }
  test.each<[string, Override[], string]>([
    ['none', [], '10'],
    ['a raised limit', [override(LIMIT)], '50'],
    ['a lowered limit', [override(LOWER)], '5'],
    ['a factor', [override({ factor: 0.25 })], '2'],
    ['a factor that leaves less than 1', [override({ factor: 0.001 })], '1'],
    ['a factor whose product is not exact', [override({ factor: 0.7 })], '7'],
    ['an exemption', [override(EXEMPT)], 'none'],
    ['a ban', [override(BAN)], '429'],
    ['a ban with 403', [override(FORBID)], '403'],
    ['the smaller of two limits', [override(LIMIT), override({ factor: 0.2 })], '2'],
    ['an exemption over a limit', [override(LOWER), override(EXEMPT)], 'none'],
    ['a ban over an exemption', [override(EXEMPT), override(BAN)], '429'],
    ['all rules: a limit', [override(LOWER, all)], '5'],
    ['all rules: an exemption', [override(EXEMPT, all)], 'none'],
    ['all rules: a ban', [override(FORBID, all)], '403'],
    ['a limit of the rule over one of all rules', [override(LIMIT), override(LOWER, all)], '50'],
    ['a limit of the rule over an exemption from all rules', [override(LIMIT), override(EXEMPT, all)], '50'],
    ['a ban from all rules over an exemption from the rule', [override(EXEMPT), override(BAN, all)], '429'],
    ['another rule', [override(BAN, { ruleId: 'other' })], '10'],
    ['another key', [override(BAN, { owner: 'bob' }), override(BAN, { owner: 'bob', ruleId: null })], '10'],
    ['another fact', [override(BAN, { fact: 'tenant' }), override(BAN, { fact: 'ip', owner: '10.0.0.1' })], '10'],
    ['an expired ban', [override(BAN, { expiresAtMs: NOW_MS })], '10'],
    ['a ban that is about to expire', [override(BAN, { expiresAtMs: NOW_MS + 1 })], '429'],
    [
      'an expired limit of the rule: that of all rules',
      [override(LIMIT, { expiresAtMs: 0 }), override(LOWER, all)],
      '5',
    ],
  ])('%s', async (_name, set, expected) => {
    const { limiter } = limiterAt([PER_USER])
    limiter.changeOverrides({ set })
    expect(await resultOf(limiter)).toBe(expected)
    expect(await resultOf(limiter, { user: 'eve' })).toBe('10')
  })
})

test('an override ends when it expires, is removed, or is replaced', async () => {
  const { limiter, time } = limiterAt([{ ...PER_USER, algorithm: 'fixed_window' }])
  const lower = override({ limit: 3 }, { expiresAtMs: NOW_MS + 1000 })
  limiter.changeOverrides({ set: [lower] })
  expect(await resultOf(limiter)).toBe('3')
  time.ms += 1000
  expect(await resultOf(limiter)).toBe('10')
  limiter.changeOverrides({ set: [{ ...lower, expiresAtMs: null, effect: { limit: 4 } }] })
  expect(await resultOf(limiter)).toBe('4')
  limiter.changeOverrides({ remove: [lower.id, 'unknown'] })
  expect(await resultOf(limiter)).toBe('10')
  limiter.changeOverrides({ set: [lower, override({ ban: 429 }, { owner: 'bob' })] })
  limiter.changeOverrides({ set: [override({ limit: 6 })], replaceAll: true })
  expect(await resultOf(limiter)).toBe('6')
  expect(await resultOf(limiter, { user: 'bob' })).toBe('10')
})

test('a key keeps the units that it has used when an override starts and ends', async () => {
  const { limiter } = limiterAt([{ ...PER_USER, algorithm: 'fixed_window' }])
  for (let used = 0; used < 8; used += 1) await limiter.check({ user: 'ada' })
  const lower = override({ limit: 9 })
  limiter.changeOverrides({ set: [lower] })
  expect((await limiter.check({ user: 'ada' })).remaining).toBe(0)
  expect((await limiter.check({ user: 'ada' })).allowed).toBe(false)
  limiter.changeOverrides({ remove: [lower.id] })
  expect((await limiter.check({ user: 'ada' })).remaining).toBe(0)
})

test('a ban from all rules refuses every request of the key, also if no rule has the fact or matches', async () => {
  const { limiter } = limiterAt([{ ...PER_USER, endpoint_pattern: '/api/**' }])
  const ban = { ruleId: null, fact: 'ip' }
  limiter.changeOverrides({ set: [override({ ban: 403 }, { ...ban, owner: '2001:DB8::1' })] })
  const refused = await limiter.check({ ip: '2001:db8::2', user: 'ada', path: '/api/x' })
  expect(refused).toMatchObject({ allowed: false, status: 403, ruleId: null, limit: null, retryAfterMs: null })
  expect(await resultOf(limiter, { ip: '2001:db8::2', path: '/other' })).toBe('403')
  expect(await resultOf(limiter, { ip: '2001:db9::2', path: '/api/x', user: 'ada' })).toBe('10')
  limiter.disable('everything')
  expect(await resultOf(limiter, { ip: '2001:db8::2', user: 'ada', path: '/api/x' })).toBe('none')
})

test('signals tighten the rules that list their kind, by the strongest, until they expire', async () => {
  const onSignal = { stuffing: { factor: 0.5 }, scraping: { factor: 0.2, min_severity: 'high' } }
  const { limiter, time } = limiterAt([{ ...PER_USER, limit: 100, on_signal: onSignal }])
  const signal = { fact: 'user', owner: 'ada', kind: 'stuffing', severity: 'low', expiresAtMs: NOW_MS + 2000 } as const
  limiter.setSignals([signal])
  expect(await resultOf(limiter)).toBe('50')
  limiter.setSignals(SEVERITIES.slice(0, 2).map((severity) => ({ ...signal, kind: 'scraping', severity })))
  expect(await resultOf(limiter)).toBe('100')
  limiter.setSignals([signal, { ...signal, kind: 'scraping', severity: 'critical', expiresAtMs: NOW_MS + 1000 }])
  expect(await resultOf(limiter)).toBe('20')
  limiter.changeOverrides({ set: [override({ limit: 200 })] })
  expect(await resultOf(limiter)).toBe('40')
  limiter.changeOverrides({ set: [override({ exempt: true })] })
  expect(await resultOf(limiter)).toBe('none')
  limiter.changeOverrides({ replaceAll: true })
  time.ms += 1000
  expect(await resultOf(limiter)).toBe('50')
  time.ms += 1000
  expect(await resultOf(limiter)).toBe('100')
})

test('signals and the global factor with expiresAtMs null stay forever', async () => {
  const { limiter, time } = limiterAt([{ ...PER_USER, limit: 100, on_signal: { stuffing: { factor: 0.5 } } }])
  limiter.setSignals([{ fact: 'user', owner: 'ada', kind: 'stuffing', severity: 'low', expiresAtMs: null }])
  limiter.setGlobalFactor({ factor: 0.5, expiresAtMs: null })
  time.ms += 1e12
  expect([await resultOf(limiter), await resultOf(limiter, { user: 'bob' })]).toEqual(['25', '50'])
})

test('the global factor multiplies every limit down to 1, lifts no ban, and expires', async () => {
  const rules = [PER_USER, { rule_id: 'tiny', scope: 'per_ip', limit: 1, window: '1m' }]
  const { limiter, time } = limiterAt([
    ...rules,
    { rule_id: 'closed', endpoint_pattern: '/closed', limit: 0, window: '1m' },
  ])
  limiter.setGlobalFactor({ factor: 0.5, expiresAtMs: NOW_MS + 1000 })
  expect(await resultOf(limiter)).toBe('5')
  expect(await resultOf(limiter, { ip: '10.0.0.1' })).toBe('1')
  limiter.setGlobalFactor({ factor: 3, expiresAtMs: NOW_MS + 1000 })
  expect(await resultOf(limiter, { user: 'bob' })).toBe('30')
  expect(await resultOf(limiter, { path: '/closed' })).toBe('429')
  limiter.changeOverrides({ set: [override({ ban: 429 })] })
  expect(await resultOf(limiter)).toBe('429')
  time.ms += 1000
  expect(await resultOf(limiter, { user: 'bob' })).toBe('10')
})
