// The public API: exported names, subpaths, and error codes as documented.

import { readFileSync } from 'node:fs'
import type * as api from 'sluice'
import { createLimiter, type Decision, ERRORS, type ErrorCode, type Subject } from 'sluice'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { thrownBy } from './limiter-fixture.ts'

const EXPORTS: Record<string, string[]> = {
  sluice: [
    ...[
      'ALGORITHMS',
      'ALGORITHM_NAMES',
      'ERRORS',
      'HalfSipHash',
      'LimiterError',
      'OVERRIDES_MAX',
      'POLICY_REASONS',
      'REASONS',
      'RULE_FEATURES',
      'SEVERITIES',
      'SIGNALS_MAX',
      'TopSketch',
      'andThen',
      'bucketOf',
      'canaryProblem',
      'compileLimit',
      'conditionsOf',
      'createLimiter',
      'featuresOf',
      'hasPermits',
      'inSlices',
      'isPairable',
      'isPromise',
      'jsonStart',
    ],
    ...[
      'limitOf',
      'mapped',
      'memoryStore',
      'nearest',
      'pairsOf',
      'parseRules',
      'plainRule',
      'seedOf',
      'storeStats',
      'storeTimeOf',
      'suggestion',
      'systemClock',
    ],
    'wallClock',
    'writtenRule',
  ],
  'sluice/redis': ['redisStore'],
  'sluice/regions': ['regionStore'],
  'sluice/remote': ['RemoteStore', 'createRemoteLimiter'],
  'sluice/remote-wire': [
    ...[
      'ProtobufError',
      'ProtobufReader',
      'ProtobufWriter',
      'decodeReplies',
      'decodeReport',
      'decodeRequests',
      'decodeState',
    ],
    ...[
      'encodeReplies',
      'encodeReport',
      'encodeRequests',
      'encodeState',
      'exceptedKeyTest',
      'exceptedKeys',
      'limitFingerprint',
    ],
  ],
  'sluice/bypass': ['createBypassToken', 'hashBypassToken', 'verifyBypass'],
  'sluice/http': [
    'BYPASS_HEADER',
    'HEADER_STYLES',
    'IPV6_PREFIX_DEFAULT',
    'METHODS',
    'NO_PROXIES',
    'PROBLEM_TYPE',
    'banned',
    'canonicalAddress',
    'canonicalPath',
    'checkToResponse',
    'cidrContains',
    'clientAddress',
    'formatAddress',
    'headerFacts',
    'holdsPermit',
    'joinedHeaders',
    'matchesAny',
    'parseAddress',
    'parseCidr',
    'policyName',
    'quotaExceeded',
    'rateLimitHeaders',
    'responseFromDecision',
    'retryAfterSeconds',
    'subjectFromRequest',
    'withEnd',
    'withHeaders',
  ],
  'sluice/client': ['politeFetch', 'readLimits'],
  'sluice/algorithms': ['ALGORITHMS', 'ALGORITHM_NAMES', 'LISTED', 'PACKED', 'compileLimit', 'hasPermits', 'isPacked'],
  'sluice/replay': ['InOrder', 'LOG_FORMATS', 'LogReader', 'Replay', 'readEvent', 'recordingOf', 'replay', 'seenFacts'],
  'sluice/express': ['rateLimit'],
  'sluice/fastify': ['rateLimit', 'rateLimitPlugin'],
  'sluice/koa': ['rateLimit'],
  'sluice/hono': ['rateLimit'],
  'sluice/nest': ['rateLimit'],
  'sluice/node': ['rateLimit'],
  'sluice/fetch': ['rateLimit'],
  'sluice/express-rate-limit': ['SluiceStore'],
  'sluice/fastify-rate-limit': ['storeClass'],
  'sluice/hono-rate-limiter': ['SluiceStore'],
  'sluice/nestjs-throttler': ['SluiceThrottlerStorage'],
  'sluice/rate-limiter-flexible': ['limiterClass'],
  'sluice/testing': [
    ...['CLICKHOUSE_PASSWORD', 'CLICKHOUSE_USER', 'clickHouseMissing'],
    ...[
      'fakeClock',
      'kafkaMissing',
      'seededRandom',
      'startClickHouse',
      'startEtcd',
      'startFaultProxy',
      'startKafka',
      'startPostgres',
      'startRedis',
      'startRedisCluster',
    ],
    ...['startSentinels', 'storeContract'],
  ],
}

test.each(Object.entries(EXPORTS))('%s exports exactly these names', async (subpath, names) => {
  expect(Object.keys(await import(subpath)).sort()).toEqual(names)
})

test('types are exported: a removed one does not compile', () => {
  expectTypeOf<
    [api.AlgorithmName, api.Clock, api.Decision, api.FieldError, api.Limiter, api.LimiterOptions]
  >().toBeArray()
  expectTypeOf<[api.Limit, api.LimitNumbers, api.MemoryStoreOptions, api.Outcome, api.Subject]>().toBeArray()
  expectTypeOf<
    [api.Rule, api.RuleCondition, api.RuleLimit, api.PreparedRules, api.Sliced<number>, api.ErrorCode]
  >().toBeArray()
  expectTypeOf<[api.RuleInput, api.RulesInput, api.LimitInput, api.PlanInput, api.ConditionInput]>().toBeArray()
  expectTypeOf<[api.BucketName, api.Charge, api.ChargeKind, api.Give, api.Grant, api.Op, api.Short]>().toBeArray()
  expectTypeOf<[api.DecidingBucket, api.Explanation, api.Reason, api.RuleExplanation]>().toBeArray()
  expectTypeOf<[api.HotKey, api.Source, api.Store, api.Take, api.Taken]>().toBeArray()
})

test('sluice/replay imports nothing of Node.js, so that it runs in browsers', () => {
  const files = new Set<string>()
  const visit = (file: URL) => {
    if (files.has(file.href)) return
    files.add(file.href)
    const imports = readFileSync(file, 'utf8').matchAll(/^(?:import|export)\b[^'"]*?from '([^']+)'/gms)
    for (const [, path = ''] of imports) {
      expect(path, file.pathname).toMatch(/^\./)
      visit(new URL(path, file))
    }
  }
  visit(new URL('../src/replay/index.ts', import.meta.url))
  expect(files.size).toBeGreaterThan(20)
})

test('there are no other subpaths', () => {
  const { exports } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
  expect(Object.keys(exports).map((path) => path.replace('.', 'sluice'))).toEqual(Object.keys(EXPORTS))
})

describe('docs/reference/errors.md', () => {
  const page = readFileSync(new URL('../../../docs/reference/errors.md', import.meta.url), 'utf8')
  const sections = new Map(
    page
      .split(/^## /m)
      .slice(1)
      .map((text) => [text.slice(0, text.indexOf('\n')), text]),
  )

  test('has one heading per error code, in order', () => {
    expect([...sections.keys()]).toEqual(Object.keys(ERRORS))
  })

  test.each(Object.entries(ERRORS))('has the same fix for %s as the code', (code, remedy) => {
    expect(sections.get(code)?.replaceAll('\n', ' ')).toContain(remedy.replace(/\.$/, ''))
  })

  const rule = { rule_id: 'a', limit: 10, window_seconds: 60 }
  const limiter = () => createLimiter({ rules: [{ ...rule, scope: 'per_ip' }] })
  const bad = { ...rule, algorithm: 'token-bucket', limit: -5 }
  const composite = () => createLimiter({ rules: [{ ...rule, scope: ['user', 'endpoint'] }] })

  test.each<[ErrorCode, () => unknown]>([
    ['OPTION_INVALID', () => createLimiter({ rules: [], ipv6Prefix: 0 })],
    ['OPTION_INVALID', () => limiter().give({} as Decision, -1)],
    ['OPTION_INVALID', () => composite().reset('a', 'alice')],
    ['RULE_INVALID', () => limiter().setRules([bad, { ...rule, rule_id: 'b', endpoint_pattern: 'api' }])],
    ['OPTION_INVALID', () => limiter().check({ userId: 'alice' } as Subject)],
    ['SUBJECT_INVALID', () => limiter().check({ ip: 'localhost' })],
    ['SUBJECT_INVALID', () => limiter().check({ cost: 0 })],
    ['SUBJECT_INVALID', () => composite().check({ user: 42 as never })],
  ])('%s: the examples match the thrown errors', async (code, run) => {
    const error = await Promise.resolve()
      .then(run)
      .then(
        () => undefined,
        (reason) => reason,
      )
    expect(error).toMatchObject({ code })
    expect(sections.get(code)).toContain(`\n${error.message}\n`)
  })

  test('CLOSED: the example matches the thrown error', async () => {
    const closed = limiter()
    await closed.close()
    expect(sections.get('CLOSED')).toContain(`\n${(thrownBy(() => closed.checkSync({})) as Error).message}\n`)
  })
})
