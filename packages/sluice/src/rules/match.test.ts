import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createLimiter } from '../limiter.ts'
import type { LimiterOptions } from '../limiter-options.ts'
import type { Subject } from '../subject.ts'
import { fakeClock } from '../testing/fake-clock.ts'

type Fields = Record<string, unknown>

const LIMIT = { limit: 1_000_000, window_seconds: 60 }

/** Ids of the rules that match a request: each has an outcome. */
function matcher(rules: readonly Fields[], options: Partial<LimiterOptions> = {}): (subject: Subject) => string[] {
  const limiter = createLimiter({ rules, ...options })
  return (subject) => [...new Set(limiter.checkSync(subject)?.outcomes.map(({ ruleId }) => ruleId))].sort()
}

function matches(rule: Fields, subject: Subject, options: Partial<LimiterOptions> = {}): boolean {
  return matcher([{ rule_id: 'rule', ...LIMIT, ...rule }], options)(subject).length === 1
}

const paths = (...list: string[]): Subject[] => list.map((path) => ({ path }))
const attributed = (attributes: NonNullable<Subject['attributes']>): Subject => ({ attributes })
const ips = (...list: string[]): Subject[] => list.map((ip) => ({ ip }))

describe('a rule matches the requests it describes and no others', () => {
  test.each<[rule: Fields, matching: Subject[], others: Subject[]]>([
    [{}, [{}, ...paths('/', '/a', '/a/b/c'), { method: 'PURGE' }], []],
    [{ endpoint_pattern: '/' }, [{}, ...paths('', '/', '//', '/?q', '/.')], paths('/a', '/a/b')],
    [{ endpoint_pattern: '/a' }, paths('/a', '/a/', '/a?b=c', '/A'), [{}, ...paths('/', '/ab', '/a/b')]],
    [{ endpoint_pattern: '/a/b' }, paths('/a/b'), paths('/a', '/a/b/c', '/b/a')],
    [{ endpoint_pattern: '/users/:id' }, paths('/users/7', '/users/7/'), paths('/users', '/users/7/posts', '/user/7')],
    [{ endpoint_pattern: '/users/:id/posts' }, paths('/users/7/posts'), paths('/users/posts', '/users/7/8/posts')],
    [{ endpoint_pattern: '/:a/:b' }, paths('/x/y'), paths('/x', '/x/y/z', '/')],
    [{ endpoint_pattern: '/files/*' }, paths('/files/x', '/files/:id', '/files/'), paths('/files', '/files/x/y')],
    [{ endpoint_pattern: '/*/x' }, paths('/a/x', '/b/x'), paths('/x', '/a/b/x')],
    [{ endpoint_pattern: '/v1/**' }, paths('/v1', '/v1/', '/v1/a', '/v1/a/b/c'), paths('/', '/v1x', '/v2/v1')],
    [{ endpoint_pattern: '/**' }, [{}, ...paths('/', '/a', '/a/b')], []],
    [
      { endpoint_pattern: '/V1/%C3%9Cnits' },
      paths('/v1/ünits', '/V1/%C3%9CNITS', '/v1/%c3%bcnits/'),
      paths('/v1/unit'),
    ],
    [{ endpoint_pattern: '/a%20b' }, paths('/a b', '/a%20b'), paths('/a+b', '/a')],

    [{ method: 'POST' }, [{ method: 'POST' }, { method: 'post' }], [{}, { method: 'GET' }, { method: 'POSTS' }]],
    [{ method: ['GET', 'HEAD'] }, [{ method: 'GET' }, { method: 'head' }], [{ method: 'POST' }]],
    [{ method: 'GET' }, [{ method: 'GET' }, { method: 'HEAD' }], [{ method: 'OPTIONS' }]],
    [{ when: { method: 'GET' } }, [{ method: 'HEAD' }], [{ method: 'POST' }]],
    [{ method: 'HEAD' }, [{ method: 'HEAD' }], [{ method: 'GET' }]],
    [{ plan: 'free' }, [{ plan: 'free' }], [{}, { plan: '' }, { plan: 'Free' }, { plan: 'freemium' }]],

    [{ when: { client: 'ios' } }, [attributed({ client: 'ios' })], [{}, attributed({ client: 'ios-17' })]],
    [{ when: { client: ['a', 'b'] } }, [attributed({ client: 'b' })], [attributed({ client: 'c' })]],
    [{ when: { client: 'ios*' } }, [attributed({ client: 'ios' }), attributed({ client: 'ios-17' })], [{}]],
    [{ when: { client: ['a*', 'b'] } }, [attributed({ client: 'b' })], [attributed({ client: 'bc' })]],
    [{ when: { client: '*' } }, [attributed({ client: 'x' })], [{}, attributed({ client: '' })]],
    [{ when: { client: { not: 'a' } } }, [{}, attributed({ client: 'b' })], [attributed({ client: 'a' })]],
    [{ when: { client: { not: ['a', 'b*'] } } }, [attributed({ client: 'c' })], [attributed({ client: 'bc' })]],
    [{ when: { client: { not: '*' } } }, [{}], [attributed({ client: 'a' })]],
    [{ when: { level: 3, beta: true } }, [attributed({ level: 3, beta: 'true' })], [attributed({ level: 3 })]],
    [{ when: { 'attributes.user': 'a' } }, [attributed({ user: 'a' })], [{ user: 'a' }]],
    [{ when: { user: 'a' } }, [{ user: 'a' }], [attributed({ user: 'a' })]],
    [{ when: { api_key: 'k*' } }, [{ apiKey: 'k1' }], [{}, { apiKey: 'x' }]],
    [{ when: { tenant: 't', plan: 'p' } }, [{ tenant: 't', plan: 'p' }], [{ tenant: 't' }, { plan: 'p' }]],
    [{ when: { method: 'post' } }, [{ method: 'POST' }], [{}, { method: 'GET' }]],
    [{ when: { path: { not: '/health' } } }, paths('/a'), paths('/health', '/health/', '//health?x')],
    [{ when: { path: '/Health' } }, paths('/health', '/HEALTH'), paths('/healthy')],
    [{ when: { endpoint: '/a*' } }, paths('/a', '/ab/c'), [{}, ...paths('/b')]],
    [{ when: { ip: '10.0.0.0/8' } }, ips('10.1.2.3', '::ffff:10.9.9.9'), [{}, ...ips('11.0.0.1', '::a00:1', 'junk')]],
    [{ when: { ip: ['2001:db8::/32', '1.2.3.4'] } }, ips('2001:DB8:0::1', '1.2.3.4'), ips('2001:db9::1', '1.2.3.5')],
    [{ when: { ip: { not: '10.0.0.0/8' } } }, [{}, ...ips('11.0.0.1')], ips('10.0.0.1', '::ffff:a00:1')],
    [{ when: { prototype: 'x' } }, [attributed({ prototype: 'x' })], [{}, attributed({})]],
    [{ plan: '__proto__' }, [{ plan: '__proto__' }], [{}, attributed({})]],
    [{ when: { constructor: 'x*' } }, [attributed({ constructor: 'xy' })], [{}, attributed({})]],

    [{ enabled: false }, [], [{}]],
    [{ method: 'GET', plan: 'a', endpoint_pattern: '/x' }, [{ method: 'GET', plan: 'a', path: '/x' }], paths('/x')],
  ])('%j', (rule, matching, others) => {
    for (const subject of matching) expect([subject, matches(rule, subject)]).toEqual([subject, true])
    for (const subject of others) expect([subject, matches(rule, subject)]).toEqual([subject, false])
  })
})

describe('a target that routers read in several ways matches the rules of every reading', () => {
  test.each([
    ['/login', 'case', '/LoGiN'],
    ['/login', 'parameters', '/login;session=1'],
    ['/a/login', 'parameters inside', '/a;x/login'],
    ['/:any/login', 'a segment of parameters only', '/;x/login'],
    ['/a/login', 'backslashes', '/a\\login#'],
    ['/files/:name', 'a backslash in a name', '/files/a\\b'],
    ['/a/login', 'escaped slashes', '/a%2flogin'],
    ['/files/:name', 'an escaped slash in a name', '/files/a%2fb'],
    ['/files/**', 'dots that lead out', '/files/../other'],
    ['/other', 'dots that lead in', '/files/../other'],
    ['/files/:name', 'a name of dots', '/files/..'],
    ['/a/:name/b', 'an empty segment', '/a//b'],
    ['/login', 'an authority', '//user@host/login#'],
    ['/login', 'an authority without a user', '//host/login'],
    ['/login', 'a backslashed authority', '/\\host/login'],
    ['/login', 'a query before the path', 'http://host?x/login'],
    ['/', 'a query before the path', 'http://host?x/login'],
    ['/login', 'a blank that is no ASCII', '/login\u00a0'],
  ])('%s: %s', (endpoint_pattern, _what, path) => {
    expect(matches({ endpoint_pattern }, { path })).toBe(true)
  })

  test('and is exempt only if every reading is exempt', () => {
    const found = matcher([
      { rule_id: 'all', ...LIMIT, group: 'g', scope: 'global' },
      { rule_id: 'health', ...LIMIT, group: 'g', priority: 9, scope: 'global', endpoint_pattern: '/health/**' },
    ])
    expect(['/health/x', '/health/../x', '/x/../health'].map((path) => found({ path }))).toEqual([
      ['health'],
      ['all', 'health'],
      ['all', 'health'],
    ])
  })

  test('HEAD shares the bucket of GET', () => {
    const limiter = createLimiter({ rules: [{ rule_id: 'a', scope: 'per_endpoint', limit: 1, window: '1d' }] })
    const allowed = ['GET', 'HEAD', 'POST'].map((method) => limiter.checkSync({ method, path: '/a' })?.allowed)
    expect(allowed).toEqual([true, false, true])
  })
})

describe('a rule expires', () => {
  test('at expires_at, and not a microsecond earlier', () => {
    const clock = fakeClock(Date.UTC(2030, 0, 1) * 1000 - 1)
    const found = matcher([{ rule_id: 'a', ...LIMIT, expires_at: '2030-01-01T01:00:00+01:00' }], { clock })
    expect(found({})).toEqual(['a'])
    clock.advanceUs(1)
    expect(found({})).toEqual([])
  })
})

describe('one rule set serves the edge and the service, and counts once', () => {
  const rules = ['edge', 'service', 'any'].map((at) => ({ rule_id: at, ...LIMIT, enforce_at: at }))

  test.each<['edge' | 'service' | undefined, string[]]>([
    ['edge', ['any', 'edge']],
    ['service', ['any', 'service']],
    [undefined, ['any', 'edge', 'service']],
  ])('at layer %s: %j', (layer, found) => {
    expect(matcher(rules, { layer })({})).toEqual(found)
  })
})

const SEGMENTS = ['a', 'b', 'users', '.well-known', '%2F']

/** Rewrites of a path that keep its meaning, in any combination. */
const INNER: readonly ((path: string) => string)[] = [
  (path) => `${path}/`,
  (path) => path.replaceAll('/', '//'),
  (path) => path.replaceAll('/', '/./'),
  (path) => `/x/..${path}`,
  (path) => `/../..${path}`,
  (path) => `${path}/y/%2e%2E`,
  (path) => path.replace(/\/([a-z])/, (_all, letter: string) => `/%${letter.charCodeAt(0).toString(16)}`),
  (path) => path.replace('%2F', '%2f'),
]

/** Rewrites that must come last. */
const OUTER: readonly ((path: string) => string)[] = [
  (path) => path,
  (path) => path.replace(/^\/+/, ''),
  (path) => `${path}?x=/other`,
  (path) => `${path}#top`,
  (path) => `https://user@host:8443${path}`,
]

const path = fc
  .array(fc.constantFrom(...SEGMENTS), { minLength: 1, maxLength: 4 })
  .map((segments) => `/${segments.join('/')}`)

describe('no spelling of a path bypasses', () => {
  const ways = fc.tuple(fc.array(fc.constantFrom(...INNER), { maxLength: 4 }), fc.constantFrom(...OUTER))
  const disguised = fc.tuple(path, ways).map(([plain, [inner, outer]]) => {
    return { plain, written: outer(inner.reduce((text, way) => way(text), plain)) }
  })

  test('its rule', () => {
    const property = fc.property(disguised, ({ plain, written }) => {
      expect(matches({ endpoint_pattern: plain }, { path: written })).toBe(true)
      expect(matches({ endpoint_pattern: `${plain}/**` }, { path: written })).toBe(true)
      expect(matches({ when: { path: plain } }, { path: written })).toBe(true)
    })
    fc.assert(property)
  })

  test('its bucket', () => {
    const property = fc.property(disguised, ({ plain, written }) => {
      const limiter = createLimiter({ rules: [{ rule_id: 'a', scope: 'per_endpoint', limit: 1, window: '1m' }] })
      expect(limiter.checkSync({ method: 'GET', path: plain })?.allowed).toBe(true)
      expect(limiter.checkSync({ method: 'get', path: written })?.allowed).toBe(false)
      expect(limiter.checkSync({ method: 'GET', path: `${plain}z` })?.allowed).toBe(true)
    })
    fc.assert(property)
  })
})

type Values = string | string[] | { not: string | string[] }

/** The fields of a rule that the index uses. */
type IndexedRule = {
  rule_id: string
  endpoint_pattern: string
  method: string[]
  plan?: string
  when: Record<string, Values>
}

/** Specification of matching: tests one rule, segment by segment. */
function naive(rule: IndexedRule, subject: Subject): boolean {
  const { method = '', plan, path: at = '/', attributes = {} } = subject
  const facts: Record<string, unknown> = { ...attributes, ...subject }
  return (
    (rule.method.length === 0 || rule.method.includes(method)) &&
    (rule.plan === undefined || rule.plan === plan) &&
    naivePath(rule.endpoint_pattern.split('/').slice(1), at === '/' ? [] : at.split('/').slice(1)) &&
    Object.entries(rule.when).every(([fact, values]) =>
      typeof values === 'object' && 'not' in values
        ? ![values.not].flat().some((value) => naiveFact(fact, value, facts[fact]))
        : [values].flat().some((value) => naiveFact(fact, value, facts[fact])),
    )
  )
}

function naivePath([first, ...rest]: string[], segments: string[]): boolean {
  if (first === '**') return true
  if (first === undefined || first === '') return segments.length === 0
  const [segment, ...others] = segments
  return segment !== undefined && (/^[:*]/.test(first) || first === segment) && naivePath(rest, others)
}

function naiveFact(fact: string, value: string, text: unknown): boolean {
  if (typeof text !== 'string') return false
  if (fact === 'ip') return value.endsWith('/8') ? text.startsWith(`${Number.parseInt(value, 10)}.`) : text === value
  return value.endsWith('*') ? text.startsWith(value.slice(0, -1)) : text === value
}

const pattern = fc
  .array(fc.constantFrom('a', 'b', ':x', '*'), { maxLength: 3 })
  .chain((segments) => fc.constantFrom(...[segments, [...segments, '**']].map((list) => `/${list.join('/')}`)))
const client = fc.constantFrom('ios', 'ios-17', 'web')
const value = fc.oneof(client, fc.constantFrom('ios*', 'w*', '*'))
const values = fc.oneof(value, fc.array(value, { minLength: 1, maxLength: 3 }))
const ip = fc.constantFrom('10.0.0.1', '10.9.0.1', '11.0.0.1')
const range = fc.oneof(ip, fc.constantFrom('10.0.0.0/8', '11.0.0.0/8'))

const facts = {
  client: fc.oneof(values, fc.record({ not: values })),
  tenant: fc.oneof(fc.constantFrom('t1', 't2', 't3'), fc.constant(['t1', 't3'])),
  ip: fc.oneof(range, fc.record({ not: range })),
}

const matchFields = fc.record({
  endpoint_pattern: pattern,
  method: fc.subarray(['GET', 'POST']),
  plan: fc.constantFrom(undefined, undefined, 'free', 'pro'),
  when: fc.oneof(fc.constant({}), fc.record(facts, { requiredKeys: [] })),
})

const request: fc.Arbitrary<Subject> = fc.record(
  {
    path: fc.array(fc.constantFrom('a', 'b', 'c'), { maxLength: 4 }).map((segments) => `/${segments.join('/')}`),
    method: fc.constantFrom('GET', 'POST', 'PUT'),
    plan: fc.constantFrom('free', 'pro'),
    tenant: fc.constantFrom('t1', 't2', 't3'),
    ip,
    attributes: fc.record({ client }, { requiredKeys: [] }),
  },
  { requiredKeys: ['path', 'method'] },
)

test('the index finds exactly the rules that a linear search finds', () => {
  let found = 0
  const property = fc.property(
    fc.array(matchFields, { minLength: 20, maxLength: 60 }),
    fc.array(request, { minLength: 10, maxLength: 20 }),
    (list, requests) => {
      const rules = list.map((rule, index) => ({ rule_id: `r${index}`, ...rule }) as IndexedRule)
      const matched = matcher(rules.map((rule) => ({ ...rule, ...LIMIT })))
      for (const subject of requests) {
        const expected = rules.filter((rule) => naive(rule, subject)).map((rule) => rule.rule_id)
        expect(matched(subject)).toEqual(expected.sort())
        found += expected.length
      }
    },
  )
  fc.assert(property)
  expect(found, 'enough rules matched').toBeGreaterThan(1000)
})
