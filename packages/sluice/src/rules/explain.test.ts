import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createLimiter } from '../limiter.ts'
import type { Limiter } from '../limiter-api.ts'
import type { LimiterOptions } from '../limiter-options.ts'
import type { Subject } from '../subject.ts'
import { fakeClock } from '../testing/fake-clock.ts'
import { REASONS, type Reason } from './explain.ts'
import type { Rollout } from './rollout.ts'

type Fields = Record<string, unknown>

const LIMIT = { limit: 1000, window_seconds: 60 }
const NOW = Date.UTC(2030, 0, 1)
const YESTERDAY = '2029-12-31T00:00:00.000Z'

function limiterOf(rules: readonly Fields[], options: Partial<LimiterOptions> = {}): Limiter {
  return createLimiter({ rules, clock: fakeClock(NOW * 1000), layer: 'edge', ...options })
}

async function reasonOf(rule: Fields, subject: Subject): Promise<string> {
  const limiter = limiterOf([{ rule_id: 'rule', ...LIMIT, ...rule }])
  const [only] = (await limiter.explain(subject)).rules
  return `${only?.reason ?? 'applies'}: ${only?.detail}`
}

describe('an explanation of a rule that does not apply', () => {
  test.each<[Fields, Subject, string]>([
    [{}, {}, 'applies: it applies: 1000 per 60 s, up to 1999 in the worst 60 s (token_bucket)'],
    [{ enabled: false }, {}, 'disabled: enabled is false'],
    [{ enforce_at: 'service' }, {}, 'layer: enforce_at is service, which is not the layer of this limiter'],
    [{ endpoint_pattern: '/a/:b' }, { path: '/a?x' }, 'path: /a/:b does not match /a'],
    [{ endpoint_pattern: '/' }, { path: '/a' }, 'path: / does not match /a'],
    [{ method: ['GET', 'PUT'] }, { method: 'post' }, 'method: it is for GET, PUT, and the request has post'],
    [{ method: 'GET' }, {}, 'method: it is for GET, and the request has no method'],
    [{ plan: 'free' }, { plan: 'pro' }, 'plan: it is for the plan free, and the request has "pro"'],
    [{ when: { country: ['NL', 'B*'] } }, {}, 'when: country must be NL or B*, and the request has none'],
    [
      { when: { ip: { not: '10.0.0.0/8' } } },
      { ip: '10.1.1.1' },
      'when: ip must be other than 10.0.0.0/8, and the request has "10.1.1.1"',
    ],
    [{ expires_at: YESTERDAY }, {}, `expired: it expired at ${YESTERDAY}`],
    [{ scope: 'per_user' }, {}, 'missing_fact: the request has no user, and on_missing is skip'],
    [
      { scope: ['ip', 'tenant'] },
      { ip: '10.1.1.1' },
      'missing_fact: the request has no tenant, and on_missing is skip',
    ],
    [{ limit: 'unlimited', window_seconds: undefined }, {}, 'unlimited: it sets no limit for this request'],
  ])('%j %j', async (rule, subject, expected) => {
    expect(await reasonOf(rule, subject)).toBe(expected)
  })

  test('names the rule that takes precedence: one of its group, or one with a limit of 0', async () => {
    const limiter = limiterOf([
      { rule_id: 'low', ...LIMIT, group: 'g', priority: 1 },
      { rule_id: 'high', ...LIMIT, group: 'g', priority: 2 },
      { rule_id: 'ban', ...LIMIT, limit: 0 },
    ])
    const { decision, rules } = await limiter.explain({})
    expect(rules).toEqual([
      { ruleId: 'low', reason: 'group', detail: 'in group g, high has priority' },
      { ruleId: 'high', reason: 'barred', detail: 'ban refuses every request, so no other rule is charged' },
      { ruleId: 'ban', reason: null, detail: 'it applies: nothing is allowed' },
    ])
    expect(decision).toMatchObject({ allowed: false, ruleId: 'ban' })
  })
})

describe('a disabled rule', () => {
  const RULES = ['a', 'b'].map((rule_id) => ({ rule_id, ...LIMIT, limit: 1 }))
  const charged = (limiter: Limiter) => limiter.checkSync({})?.outcomes.map(({ ruleId }) => ruleId)

  test('stops applying immediately, stays disabled when the rules change, and can be enabled again', () => {
    const limiter = limiterOf(RULES)
    limiter.disable(['a'])
    expect(charged(limiter)).toEqual(['b'])
    limiter.setRules([...RULES, { rule_id: 'c', ...LIMIT }])
    expect(charged(limiter)).toEqual(['b', 'c'])
    limiter.disable('everything')
    expect(charged(limiter)).toEqual([])
    limiter.disable([])
    expect(charged(limiter)).toEqual(['a', 'b', 'c'])
  })

  test('is replaced by the next rule of its group', () => {
    const [low, high] = RULES.map((rule, priority) => ({ ...rule, group: 'g', priority }))
    const limiter = limiterOf([low as Fields, high as Fields])
    expect(charged(limiter)).toEqual(['b'])
    limiter.disable(['b'])
    expect(charged(limiter)).toEqual(['a'])
  })

  test('is explained as disabled by the kill switch', async () => {
    const limiter = limiterOf(RULES)
    limiter.disable(['b'])
    expect((await limiter.explain({})).rules).toMatchObject([{ reason: null }, { reason: 'kill_switch' }])
  })
})

const client = fc.constantFrom('ios', 'ios-17', 'web')
const values = fc.array(fc.oneof(client, fc.constantFrom('ios*', '*')), { minLength: 1, maxLength: 2 })
const condition = fc.oneof(values, fc.record({ not: values }))
const address = fc.constantFrom('10.0.0.1', '11.0.0.1', '2001:db8::1')
const range = fc.constantFrom('10.0.0.0/8', '2001:db8::/32')

/** Omits a field most of the time; otherwise hardly any rule would match a request. */
function rarely(value: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> {
  return fc.oneof({ weight: 4, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: value })
}

const rule: fc.Arbitrary<Fields> = fc.record({
  endpoint_pattern: fc.constantFrom('/**', '/**', '/', '/a', '/a/:x', '/a/**', '/*/b'),
  method: rarely(fc.subarray(['GET', 'POST'], { minLength: 1 })),
  plan: rarely(fc.constantFrom('free', 'pro')),
  when: rarely(fc.record({ client: condition, ip: fc.oneof(range, fc.record({ not: range })) }, { requiredKeys: [] })),
  scope: fc.constantFrom('global', 'global', 'per_user', 'per_ip', 'per_endpoint', ['user', 'method']),
  on_missing: fc.constantFrom('skip', 'refuse', 'by_ip'),
  limit: fc.constantFrom(0, 5, 5, 5, 5, 5, 'unlimited'),
  group: fc.constantFrom(undefined, 'g', 'h'),
  priority: rarely(fc.integer({ min: 0, max: 2 })),
  mode: rarely(fc.constant('shadow')),
  enforce_at: rarely(fc.constantFrom('edge', 'service')),
  expires_at: rarely(fc.constantFrom(YESTERDAY, '2031-01-01T00:00:00Z')),
  enabled: rarely(fc.constant(false)),
})

const request: fc.Arbitrary<Subject> = fc.record(
  {
    path: fc.constantFrom('/', '/a', '/A/b', '/a/b/c', '//a/./b?q', '/a/../b', '/a;x/b', '/a%2fb', '/a/'),
    method: fc.constantFrom('GET', 'HEAD', 'post', 'PUT'),
    plan: fc.constantFrom('free', 'pro'),
    user: fc.constantFrom('alice', 'bob'),
    ip: address,
    cost: fc.integer({ min: 1, max: 8 }),
    bypassToken: fc.constant('secret'),
    attributes: fc.record({ client }, { requiredKeys: [] }),
  },
  { requiredKeys: [] },
)

/** Removes each reason: the rule then applies, or another reason takes its place. */
const REPAIRS: Readonly<Record<Reason, (rule: Fields, fact: string) => Fields>> = {
  disabled: (broken) => ({ ...broken, enabled: true }),
  layer: (broken) => ({ ...broken, enforce_at: 'any' }),
  path: (broken) => ({ ...broken, endpoint_pattern: '/**' }),
  method: ({ method: _, ...rest }) => rest,
  plan: ({ plan: _, ...rest }) => rest,
  when: ({ when, ...rest }, fact) => {
    const { [fact]: _, ...others } = when as Fields
    return { ...rest, when: others }
  },
  expired: ({ expires_at: _, ...rest }) => rest,
  group: ({ group: _, ...rest }) => rest,
  missing_fact: (broken) => ({ ...broken, scope: 'global' }),
  unlimited: (broken) => ({ ...broken, limit: 5 }),
  exempt: (broken) => ({ ...broken, rule_id: 'renamed' }),
  bypassed: (broken) => ({ ...broken, rule_id: 'renamed' }),
  barred: (broken) => ({ ...broken, limit: 0, priority: 9, mode: 'enforce', scope: 'global' }),
  kill_switch: (broken) => ({ ...broken, rule_id: 'renamed' }),
  rollout: (broken) => ({ ...broken, rule_id: 'renamed' }),
}

/** A valid rule: without undefined fields and fields that have no effect. */
function complete(fields: Fields, index: number): Fields {
  const { on_missing, ...rest } = Object.fromEntries(Object.entries(fields).filter(([, held]) => held !== undefined))
  const unlimited = rest.limit === 'unlimited'
  const missing = rest.scope === 'global' || unlimited ? {} : { on_missing }
  return { rule_id: `r${index}`, ...rest, ...missing, ...(unlimited ? {} : { window_seconds: 60 }) }
}

function repaired(rules: readonly Fields[], index: number, reason: Reason, fact: string): Fields[] {
  return rules.map((fields, at) => (at === index ? complete(REPAIRS[reason](fields, fact), index) : fields))
}

test('explanations agree with the index, and every reason is true', async () => {
  const seen = new Map<string, number>()
  const explained = async (
    rules: readonly Fields[],
    disabled: readonly string[],
    rollouts: readonly Rollout[],
    subject: Subject,
  ) => {
    const limiter = limiterOf(rules, {
      bypass: () => ({ id: 't', rules: ['r2'], paths: undefined, limitPerMinute: 9 }),
    })
    limiter.disable(disabled)
    await limiter.setRollouts(rollouts)
    const key = { fact: 'user', owner: 'alice', expiresAtMs: null }
    limiter.changeOverrides({ set: [{ id: 'o', ruleId: 'r1', ...key, effect: { exempt: true } }] })
    return { ...(await limiter.explain(subject)), checked: limiter.checkSync(subject) }
  }
  const property = fc.asyncProperty(
    fc.array(rule, { minLength: 4, maxLength: 12 }),
    request,
    fc.constantFrom<string[][]>([], [], ['r0', 'r3']),
    fc.constantFrom<Rollout[][]>([], [], [{ ruleId: 'r1', salt: '1', candidate: null, share: 1, pairShare: 1 }]),
    async (list, subject, disabled, rollouts) => {
      const rules = list.map((fields, index) => complete(fields, index))
      const { decision, rules: explanations, checked } = await explained(rules, disabled, rollouts, subject)
      expect(decision.allowed).toBe(checked?.allowed)
      const applying = explanations.filter(({ reason }) => reason === null).map(({ ruleId }) => ruleId)
      expect(applying.sort()).toEqual([...new Set(checked?.outcomes.map(({ ruleId }) => ruleId))].sort())
      for (const [index, { reason, fact = '', detail }] of explanations.entries()) {
        seen.set(`${reason}`, (seen.get(`${reason}`) ?? 0) + 1)
        if (reason === null) continue
        const again = await explained(repaired(rules, index, reason, fact), disabled, rollouts, subject)
        expect(again.rules[index]?.detail, `${reason}: ${detail}`).not.toBe(detail)
      }
    },
  )
  await fc.assert(property, { numRuns: 250 })
  for (const reason of ['null', ...REASONS]) {
    expect(seen.get(reason), `${reason} was tested`).toBeGreaterThan(0)
  }
})
