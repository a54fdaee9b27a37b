import { readdirSync, readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ALGORITHM_NAMES, ALGORITHMS, type AlgorithmName } from '../algorithms/traits.ts'
import { parseRules } from './parse.ts'
import { plainRule, type Rule } from './rule.ts'

type Fixture = { dialect: string; what: string; given: unknown; parsed: Rule[] }
type Fields = Record<string, unknown>

const FIXTURES = new URL('fixtures/', import.meta.url)
const fixtures = readdirSync(FIXTURES).map((name): Fixture => JSON.parse(readFileSync(new URL(name, FIXTURES), 'utf8')))

const BASE = { rule_id: 'a', limit: 10, window_seconds: 60 }
const FIFTY = { limit: 50, window_seconds: 60 }
const LISTED = { rule_id: 'a', limits: [{ name: 'only', limit: 1, window_seconds: 7 }] }

function parsed(fields: Fields): Rule {
  return parseRules([{ ...BASE, ...fields }])[0] as Rule // one rule in, one rule out
}

describe('rules in the formats of other systems parse unchanged', () => {
  test('there is a fixture for each of the five formats', () => {
    expect(fixtures.length).toBe(5)
  })

  test.each(fixtures)('$dialect: $what', ({ given, parsed }) => {
    expect(parseRules(given)).toEqual(parsed)
  })
})

describe('a rule', () => {
  test('has every field after parsing', () => {
    expect(parsed({})).toEqual({
      rule_id: 'a',
      version: 0,
      endpoint_pattern: '/**',
      method: [],
      when: {},
      scope: [],
      on_missing: 'skip',
      algorithm: 'token_bucket',
      limits: [{ name: 'default', limit: 10, window_seconds: 60 }],
      by_plan: {},
      cost: 1,
      priority: 0,
      consistency: 'leased',
      intent: 'fairness',
      on_fail: 'open',
      shards: 1,
      store: 'default',
      spread: 'regional',
      enforce_at: 'any',
      mode: 'enforce',
      enabled: true,
    })
  })

  test.each<[Fields, Partial<Rule>]>([
    [{ endpoint_pattern: '*' }, { endpoint_pattern: '/**' }],
    [{ shards: 10 }, { shards: 10 }],
    [{ endpoint_pattern: '**' }, { endpoint_pattern: '/**' }],
    [{ method: 'post' }, { method: ['POST'] }],
    [{ method: ['GET', 'head'] }, { method: ['GET', 'HEAD'] }],
    [{ method: '*' }, { method: [] }],
    [{ scope: 'global' }, { scope: [] }],
    [{ scope: 'per_user' }, { scope: ['user'] }],
    [{ scope: 'user' }, { scope: ['user'] }],
    [{ scope: 'per_tenant' }, { scope: ['tenant'] }],
    [{ scope: ['user', 'endpoint'] }, { scope: ['user', 'endpoint'] }],
    [{ scope: 'attributes.session' }, { scope: ['attributes.session'] }],
    [{ when: { country: 'fr' } }, { when: { country: ['fr'] } }],
    [{ when: { level: 3, beta: true } }, { when: { level: ['3'], beta: ['true'] } }],
    [{ when: { country: { not: ['fr', 'de'] } } }, { when: { country: { not: ['fr', 'de'] } } }],
    [{ when: { method: 'post' } }, { when: { method: ['POST'] } }],
    [{ intent: 'abuse' }, { intent: 'abuse', on_fail: 'closed' }],
    [
      { intent: 'abuse', on_fail: 'local' },
      { intent: 'abuse', on_fail: 'local' },
    ],
    [{ on_fail: 'fail_local' }, { on_fail: 'local' }],
    [{ algorithm: 'concurrency' }, { algorithm: 'concurrency', consistency: 'strict' }],
    [{ algorithm: 'leaky_bucket' }, { algorithm: 'leaky_bucket', consistency: 'strict' }],
    [{ cost: 'attributes.size' }, { cost: 'attributes.size' }],
    [{ lease: { max_units: 5, max_share: 0.5 } }, { lease: { max_units: 5, max_share: 0.5 } }],
    [{ expires_at: '2030-01-31' }, { expires_at: '2030-01-31T00:00:00.000Z' }],
    [{ expires_at: '2030-01-31T10:00' }, { expires_at: '2030-01-31T10:00:00.000Z' }],
    [{ expires_at: '2030-01-31T10:00:00+02:00' }, { expires_at: '2030-01-31T08:00:00.000Z' }],
    [{ expires_at: '2030-01-31 10:00:00.5-0530' }, { expires_at: '2030-01-31T15:30:00.500Z' }],
    [{ expires_at: new Date(0) }, { expires_at: '1970-01-01T00:00:00.000Z' }],
    [{ name: null, plan: null, burst: null, group: undefined, http_method: null }, {}],
  ])('%j', (fields, canonical) => {
    expect(parsed(fields)).toEqual({ ...parsed({}), ...canonical })
  })

  test.each<[Fields, number, number]>([
    [{ limit: 10, window_seconds: 0.001 }, 10, 0.001],
    [{ limit: 10, window_seconds: 31_622_400 }, 10, 31_622_400],
    [{ limit: 10, window: '500ms' }, 10, 0.5],
    [{ limit: 10, window: '30s' }, 10, 30],
    [{ limit: 10, window: '366d' }, 10, 31_622_400],
    [{ limit: 0, window: '1m' }, 0, 60],
    [{ rate: 10 }, 10, 1],
    [{ rate: 10, per: 'second' }, 10, 1],
    [{ rate: 10, per: 'hour' }, 10, 3600],
    [{ rate: 10, per: 'day' }, 10, 86_400],
    [{ rate: 10, window_seconds: 5 }, 10, 5],
    [{ rate: 10, window: '5s' }, 10, 5],
    [{ limit: 10, per: 'minute' }, 10, 60],
    [{ rate_per_second: 50_000 }, 50_000, 1],
    [{ rate_per_second: 0.5 }, 1, 2],
    [{ rate_per_second: 0.1 }, 1, 10],
    [{ rate_per_second: 2.5 }, 5, 2],
    [{ rate_per_second: 1 / 3 }, 1, 3],
    [{ rate_per_second: 1 / 3600 }, 1, 3600],
  ])('%j is %d units in %d s', (fields, limit, window_seconds) => {
    const [rule] = parseRules([{ rule_id: 'a', ...fields }])
    expect(rule?.limits).toEqual([{ name: 'default', limit, window_seconds }])
  })

  test('names each of several unnamed limits after its window', () => {
    const limits = [86_400, 3600, 90, 60, 1, 0.25, 1.5].map((window_seconds) => ({ limit: 5, window_seconds }))
    const [rule] = parseRules([{ rule_id: 'a', limits }])
    expect(rule?.limits.map(({ name }) => name)).toEqual(['1d', '1h', '90s', '1m', '1s', '250ms', '1500ms'])
  })

  test.each<[string, Fields, Fields, unknown]>([
    ['takes the window of the rule', BASE, { limit: 50 }, [{ limit: 50, window_seconds: 60 }]],
    ['takes the limit of the rule', BASE, { window: '1h' }, [{ limit: 10, window_seconds: 3600 }]],
    ['takes the numbers of an only limit in a list', LISTED, { limit: 50 }, [{ limit: 50, window_seconds: 7 }]],
    ['does not take the burst with another limit', { ...BASE, burst: 99 }, { limit: 50 }, [FIFTY]],
    ['takes the burst with the same limit', { ...BASE, burst: 99 }, {}, [{ limit: 10, window_seconds: 60, burst: 99 }]],
    ['may have several limits', BASE, { limits: [{ ...FIFTY, name: 'm' }] }, [{ ...FIFTY, name: 'm' }]],
    ['may have no limit', BASE, { limit: 'unlimited' }, []],
    ['may have the only limit', { rule_id: 'a', limit: 'unlimited' }, FIFTY, [FIFTY]],
  ])('a plan %s', (_promise, rule, pro, limits) => {
    const [found] = parseRules([{ ...rule, by_plan: { pro } }])
    const named = (limits as Fields[]).map((limit) => ({ name: 'default', ...limit }))
    expect(found?.by_plan).toEqual({ pro: named })
  })

  test('accepts attributes and plans named like members of Object.prototype', () => {
    const text = '{ "when": { "prototype": "x", "constructor": "y" }, "by_plan": { "__proto__": "unlimited" } }'
    const rule = parsed(JSON.parse(text))
    expect(Object.entries(rule.when)).toEqual([
      ['prototype', ['x']],
      ['constructor', ['y']],
    ])
    expect(Object.entries(rule.by_plan)).toEqual([['__proto__', []]])
  })
})

describe('a rule set', () => {
  test.each([
    ['a list', [BASE]],
    ['an object with the list', { rules: [BASE] }],
    ['a response of the rules API', { version: 7, rules: [BASE] }],
    ['a file with a place for YAML anchors', { 'x-defaults': { limit: 5 }, rules: [BASE] }],
  ])('may be %s', (_form, input) => {
    expect(parseRules(input)).toEqual([parsed({})])
  })

  test('may be empty', () => expect(parseRules([])).toEqual([]))

  test('keeps its order', () => {
    const ids = ['b', 'a', 'c']
    expect(parseRules(ids.map((rule_id) => ({ ...BASE, rule_id }))).map((rule) => rule.rule_id)).toEqual(ids)
  })
})

const seconds = fc.oneof(
  fc.integer({ min: 1, max: 31_622_400 }),
  fc.integer({ min: 1, max: 31_622_399_999 }).map((ms) => ms / 1000),
)
const text = fc.oneof(fc.string({ minLength: 1, maxLength: 9 }), fc.constantFrom('é', '🦦', 'constructor', 'a b'))
const attribute = text.filter((name) => name !== '__proto__')
const literal = text.map((given) => given.replaceAll('*', '-'))
const condition = fc.oneof(literal, fc.array(literal, { minLength: 1, maxLength: 3 }), fc.record({ not: literal }))
const time = fc
  .date({ noInvalidDate: true, min: new Date(0), max: new Date('9999-01-01') })
  .map((at) => at.toISOString())

function limitOf(algorithm: AlgorithmName): fc.Arbitrary<Fields> {
  const burst = ALGORITHMS[algorithm].burst
    ? { burst: fc.option(fc.integer({ min: 1, max: 5000 }), { nil: undefined }) }
    : {}
  return fc.record({ limit: fc.integer({ min: 0, max: 1000 }), window_seconds: seconds, ...burst })
}

function numbersOf(algorithm: AlgorithmName): fc.Arbitrary<Fields> {
  const named = fc.tuple(fc.stringMatching(/^[a-z0-9_.-]{1,32}$/), limitOf(algorithm))
  const several = fc
    .uniqueArray(named, { minLength: 1, maxLength: 4, selector: ([name]) => name })
    .map((list) => ({ limits: list.map(([name, limit]) => ({ name, ...limit })) }))
  const byPlan = fc.dictionary(text, fc.oneof(fc.constant('unlimited'), limitOf(algorithm), several), { maxKeys: 3 })
  const own = fc.oneof(limitOf(algorithm), several, fc.constant({ limit: 'unlimited' }))
  return fc.tuple(own, byPlan).map(([numbers, by_plan]) => ({ ...numbers, by_plan }))
}

const fact = fc.oneof(
  fc.constantFrom('ip', 'user', 'endpoint', 'plan'),
  attribute.map((name) => `attributes.${name}`),
)

function ruleOf(algorithm: AlgorithmName): fc.Arbitrary<Fields> {
  const strict = algorithm === 'leaky_bucket' || algorithm === 'concurrency'
  const required = { rule_id: fc.stringMatching(/^[a-z0-9_.-]{1,64}$/), algorithm: fc.constant(algorithm) }
  const optional = {
    name: text,
    description: text,
    created_at: time,
    expires_at: time,
    version: fc.nat(),
    endpoint_pattern: fc.constantFrom('/', '/a', '/users/:id', '/files/*', '/v1/**', '/**', '*'),
    method: fc.oneof(fc.constantFrom('GET', 'post', '*'), fc.subarray(['GET', 'PUT', 'delete'])),
    plan: text,
    when: fc.dictionary(
      text.map((name) => `x${name}`),
      condition,
      { maxKeys: 4 },
    ),
    scope: fc.oneof(fc.constantFrom('global', 'per_user', 'ip', 'user_endpoint'), fc.array(fact, { maxLength: 4 })),
    on_missing: fc.constantFrom('skip', 'refuse', 'by_ip'),
    cost: fc.oneof(fc.integer({ min: 1, max: 1e9 }), attribute),
    group: text,
    priority: fc.integer({ min: -1e6, max: 1e6 }),
    consistency: strict ? fc.constant('strict') : fc.constantFrom('strict', 'leased', 'approximate', 'local'),
    lease: fc.record({ max_units: fc.integer({ min: 1, max: 9 }), ttl_ms: fc.integer({ min: 1, max: 9 }) }),
    approximate: fc.record(
      { sync_ms: fc.integer({ min: 20, max: 99 }), max_unsynced: fc.integer({ min: 1, max: 9 }) },
      { requiredKeys: [] },
    ),
    intent: fc.constantFrom('fairness', 'abuse'),
    on_fail: fc.constantFrom('open', 'fail_closed', 'local'),
    store: text,
    spread: fc.constantFrom('regional', 'global'),
    enforce_at: fc.constantFrom('edge', 'service', 'any'),
    mode: fc.constantFrom('enforce', 'shadow'),
    enabled: fc.boolean(),
  }
  const fields = fc.record({ ...required, ...optional }, { requiredKeys: ['rule_id', 'algorithm'] })
  return fc.tuple(fields, numbersOf(algorithm)).map(([{ lease, approximate, ...rule }, numbers]) => ({
    ...rule,
    ...numbers,
    ...(lease !== undefined && rule.consistency !== 'approximate' && rule.consistency !== 'local' ? { lease } : {}),
    ...(approximate !== undefined && rule.consistency === 'approximate' ? { approximate } : {}),
  }))
}

const validRules = fc.uniqueArray(fc.oneof(...ALGORITHM_NAMES.map(ruleOf)), {
  maxLength: 5,
  selector: ({ rule_id }) => rule_id,
})

describe('for every valid rule set', () => {
  test('parsing the result again changes nothing', () => {
    fc.assert(
      fc.property(validRules, (rules) => {
        expect(parseRules(parseRules(rules))).toEqual(parseRules(rules))
      }),
    )
    for (const { parsed } of fixtures) expect(parseRules(parsed)).toEqual(parsed)
  })

  test('the result survives a JSON round trip', () => {
    fc.assert(
      fc.property(validRules, (rules) => {
        const canonical = parseRules(rules)
        expect(parseRules(JSON.parse(JSON.stringify(canonical)))).toEqual(canonical)
      }),
    )
  })

  test('the short form of a rule parses to the same rule', () => {
    fc.assert(
      fc.property(validRules, (rules) => {
        const canonical = parseRules(rules)
        expect(parseRules(canonical.map(plainRule))).toEqual(canonical)
      }),
    )
    for (const { parsed } of fixtures) expect(parseRules(parsed.map(plainRule))).toEqual(parsed)
  })

  test('the order of the fields does not matter, and the input is not modified', () => {
    fc.assert(
      fc.property(validRules, (rules) => {
        const before = structuredClone(rules)
        const reversed = rules.map((rule) => Object.fromEntries(Object.entries(rule).reverse()))
        expect(parseRules(reversed)).toEqual(parseRules(rules))
        expect(rules).toEqual(before)
      }),
    )
  })
})

test('the short form inlines a single limit, lists several, and shows none as unlimited', () => {
  const several = { limits: [{ name: 'a', limit: 1, window_seconds: 1 }] }
  expect(plainRule(parsed({ burst: 20, scope: 'user', method: 'GET' }))).toMatchObject({
    ...{ limit: 10, window_seconds: 60, burst: 20, scope: 'per_user', method: 'GET' },
  })
  expect(plainRule(parsed({ limit: null, window_seconds: null, ...several }))).toMatchObject(several)
  expect(plainRule(parsed({ limit: 'unlimited' }))).toMatchObject({ limit: 'unlimited', scope: 'global' })
  expect(plainRule(parsed({ scope: ['user', 'endpoint'] }))).toMatchObject({ scope: ['user', 'endpoint'] })
})
