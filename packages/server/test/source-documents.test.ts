// The views with the columns of the design documents, and docs/reference/source-documents.md, whose every name exists.

import { readFileSync } from 'node:fs'
import { createLimiter, parseRules, plainRule, type Rule } from 'sluice'
import { HEADER_STYLES, rateLimitHeaders } from 'sluice/http'
import { describe, expect, test } from 'vitest'
import { parse as parseYaml } from 'yaml'
import type { Queries } from '../src/db/database.ts'
import { DOCUMENT_COLUMNS } from '../src/events/clickhouse/schema.ts'
import { embeddedSink } from '../src/events/embedded/embedded-sink.ts'
import { CHECK_ANSWER, CHECK_BODY } from '../src/http/bodies/schemas.ts'
import { compactRule } from '../src/rules/compact-rule.ts'
import { describeDatabases } from './databases.ts'
import { batchOf, eventRow } from './event-rows.ts'
import { serveApp } from './service.ts'

const DOCS = new URL('../../../docs/', import.meta.url)
const RULES_PAGE = readFileSync(new URL('reference/rules.md', DOCS), 'utf8')
const AT = '2026-01-02T03:04:05.678Z'

/** Corners that the examples of rules.md do not have. */
const CORNERS = [
  { rule_id: 'window_for_plans', limit: 'unlimited', window: '90s', by_plan: { free: { limit: 5 } } },
  {
    rule_id: 'own_burst',
    limit: 10,
    burst: 40,
    window: '1s',
    by_plan: { a: { limit: 5 }, b: { window: '2s' }, c: {} },
  },
  { rule_id: 'plan_lists', limits: [{ limit: 1, window: '1s' }], by_plan: { a: [{ limit: 2, window: '1m' }], b: {} } },
  {
    rule_id: 'sub_second',
    limit: 3,
    window: '500ms',
    scope: ['user', 'endpoint'],
    method: ['GET', 'PUT'],
    priority: 7,
  },
  { rule_id: 'off', limit: 1, window: '1m', enabled: false },
  { rule_id: 'trial', limit: 1, window: '1m', mode: 'shadow' },
  { rule_id: 'over', limit: 1, window: '1m', expires_at: '2020-01-01' },
  { rule_id: 'lasting', limit: 1, window: '1m', expires_at: '2999-01-01', plan: 'pro*' },
]

const rules = [...RULES_PAGE.matchAll(/^```yaml\n([\s\S]*?)^```$/gm)]
  .map(([, text = '']) => parseYaml(text) as { rules?: object[] } | object[])
  .flatMap((block) => ('rules' in block ? (block.rules ?? []) : block))
  .filter((rule): rule is { rule_id: string } => 'rule_id' in rule)
const RULES = parseRules(uniqueById([...CORNERS, ...rules]))

function uniqueById(given: readonly { rule_id: string }[]): object[] {
  return [...new Map(given.map((rule) => [rule.rule_id, rule])).values()]
}

/** Rows of the view for a rule, from the canonical rule: the view fills in defaults and what plans inherit itself. */
function rowsOf(rule: Rule): object[] {
  const { scope, algorithm } = rule
  const { scope: named } = plainRule(rule) as { scope: string | string[] }
  const shared = {
    ...{ id: rule.rule_id, rule_id: rule.rule_id, name: rule.name ?? rule.rule_id },
    description: rule.description ?? null,
    key_pattern: scope.length === 0 ? 'global' : scope.map((fact) => `${fact}:{${fact}}`).join(':'),
    endpoint_pattern: rule.endpoint_pattern,
    http_method: rule.method.length === 0 ? null : rule.method.join(','),
    scope: Array.isArray(named) ? named.join('+') : named,
    ...{ algorithm, priority: rule.priority },
    is_active: !['off', 'over', 'trial', 'feed_trial'].includes(rule.rule_id),
    ...{ created_at: new Date(AT), updated_at: new Date(AT) },
  }
  const plans = [[rule.plan ?? null, rule.limits] as const, ...Object.entries(rule.by_plan)]
  return plans.flatMap(([plan, limits]) => {
    const none = { limit_name: 'default', limit_count: null, window_seconds: null }
    const numbers = limits.map(({ name, limit, window_seconds, burst = limit }) => ({
      ...{ limit_name: name, limit_count: limit, window_seconds, burst_capacity: burst },
      rate_per_second: algorithm === 'concurrency' ? null : limit / window_seconds,
    }))
    const rows = numbers.length > 0 ? numbers : [{ ...none, burst_capacity: null, rate_per_second: null }]
    return rows.map((row) => ({ ...shared, plan, ...row }))
  })
}

async function storeRules({ query }: Queries): Promise<void> {
  const stored = RULES.map((rule) => ({ ...compactRule(rule), version: 1, created_at: AT, updated_at: AT }))
  const sql = "INSERT INTO rules SELECT rule->>'rule_id', 1, rule FROM jsonb_array_elements($1) AS rule"
  await query(sql, [JSON.stringify(stored)])
}

const PAGE = readFileSync(new URL('reference/source-documents.md', DOCS), 'utf8')

/** Code spans in the column "here" of the tables under a heading. */
function namesUnder(heading: string): string[] {
  const [, section = ''] = PAGE.split(`\n## ${heading}\n`)
  const rows = (section.split('\n## ')[0] ?? '').split('\n').filter((line) => line.startsWith('| '))
  const cells = rows.map((row) => row.split(' | ')).filter(({ length }) => length === 3)
  const names = cells.flatMap(([, here = '']) => [...here.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name))
  expect(names.length, heading).toBeGreaterThan(3)
  return names
}

function unknownNames(heading: string, known: Iterable<string>): string[] {
  const all = new Set(known)
  return namesUnder(heading).filter((name) => !all.has(name))
}

describeDatabases('the views of the design documents', ({ open }) => {
  test('rate_limit_rules has a row for each limit of each rule and plan, as the parser reads them', async () => {
    const database = await open()
    await storeRules(database)
    expect(RULES.length).toBeGreaterThan(15)
    const key = (row: object) => JSON.stringify(Object.entries(row).sort())
    const rows = await database.query<Record<string, unknown>>('SELECT * FROM rate_limit_rules')
    for (const { key_pattern, rule_id } of rows.filter((row) => /^(global|per_)/.test(String(row.scope)))) {
      const [read] = parseRules([{ rule_id: 'read', key_pattern, limit: 1, window: '1m' }] as object[])
      expect(read?.scope, 'the parser reads the key pattern').toEqual(
        RULES.find((rule) => rule.rule_id === rule_id)?.scope,
      )
    }
    expect(rows.map(key).sort()).toEqual(RULES.flatMap(rowsOf).map(key).sort())
  })

  test('a rule under the kill switch is not active, and its rows stay', async () => {
    const database = await open()
    await storeRules(database)
    const active = async () => {
      const sql = 'SELECT count(*) AS rows, count(*) FILTER (WHERE is_active) AS active FROM rate_limit_rules'
      return (await database.query<{ rows: number; active: number }>(sql))[0]
    }
    const before = await active()
    const kill = (ruleId: string) => database.query("INSERT INTO kills VALUES ($1, now(), 'ops')", [ruleId])
    await kill('lasting')
    expect(await active()).toEqual({ rows: before?.rows, active: Number(before?.active) - 1 })
    await kill('')
    expect(await active()).toEqual({ rows: before?.rows, active: 0 })
  })

  test('every column that source-documents.md names exists', async () => {
    const { query } = await open()
    const sql = "SELECT table_name || '.' || column_name AS name FROM information_schema.columns"
    const columns = (await query<{ name: string }>(sql)).map(({ name }) => name)
    const inClickHouse = DOCUMENT_COLUMNS.map((column) => `rate_limit_events.${column}`)
    expect(unknownNames('Tables', [...columns, ...inClickHouse])).toEqual([])
  })

  test('rate_limit_violations has each refusal with the units that were left', async () => {
    const database = await open()
    const refused = { allowed: false, remaining: 0, rule_id: 'logins', timestamp: Date.parse(AT) }
    const events = [eventRow({ client_id: 'bob' }), eventRow(refused)]
    await embeddedSink(database).write({ producer: 'p', seq: 1 }, batchOf({ events }), false)
    expect(await database.query('SELECT * FROM rate_limit_violations')).toEqual([
      {
        ...{ violation_id: expect.any(Number), bucket_key: 'demo:default:user:alice', user_id: 'alice' },
        ...{ ip_address: '192.0.2.1', endpoint: '/demo', requested_at: new Date(AT), tokens_at_time: 0 },
        rule_id: 'logins',
      },
    ])
  })
})

describe('docs/reference/source-documents.md', () => {
  /** Columns of the documents' tables, and the views that have them. */
  const DOCUMENTED = {
    rate_limit_rules: [
      ...['id', 'name', 'endpoint_pattern', 'http_method', 'scope', 'algorithm', 'limit_count', 'window_seconds'],
      ...['priority', 'is_active', 'created_at', 'updated_at'],
      ...['rule_id', 'key_pattern', 'rate_per_second', 'burst_capacity', 'plan', 'description'],
    ],
    rate_limit_violations: [
      ...[
        'violation_id',
        'bucket_key',
        'user_id',
        'ip_address',
        'endpoint',
        'requested_at',
        'tokens_at_time',
        'rule_id',
      ],
    ],
    rate_limit_events: [
      ...['event_id', 'client_id', 'endpoint', 'rule_id', 'allowed', 'current_count', 'limit_count', 'timestamp'],
    ],
  }

  /** First cells of the tables of another page. */
  function listed(file: string, pattern: RegExp): string[] {
    return [...readFileSync(new URL(file, DOCS), 'utf8').matchAll(pattern)].map(([, name = '']) => name)
  }

  test('maps every column of the tables in the documents', () => {
    const names = namesUnder('Tables')
    for (const [table, columns] of Object.entries(DOCUMENTED)) {
      expect(names).toEqual(expect.arrayContaining(columns.map((column) => `${table}.${column}`)))
    }
  })

  test('every endpoint is one of the OpenAPI description or of the gRPC service', async () => {
    const { body } = await (await serveApp([])).get('/openapi.json')
    const { paths } = body as { paths: Record<string, object> }
    const routes = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    )
    const proto = readFileSync(new URL('../proto/sluice/v1/rate_limiter.proto', import.meta.url), 'utf8')
    const calls = [...proto.matchAll(/^ +rpc (\w+)\(/gm)].map(([, name]) => `sluice.v1.RateLimiter/${name}`)
    expect(unknownNames('Endpoints', [...routes, ...calls])).toEqual([])
  })

  test('every field of a check is one of its request or answer', () => {
    const answer = CHECK_ANSWER.properties as object
    expect(unknownNames('Fields of a check', Object.keys({ ...CHECK_BODY.properties, ...answer }))).toEqual([])
  })

  test('every header is sent by one of the styles', async () => {
    const limiter = createLimiter({ rules: [{ rule_id: 'a', limit: 1, window: '1m' }] })
    await limiter.check({})
    const refused = await limiter.check({})
    expect(unknownNames('Headers', Object.keys(rateLimitHeaders(refused, 0, { style: HEADER_STYLES })))).toEqual([])
  })

  test('every field of a rule, metric and setting is in its reference', () => {
    expect(unknownNames('Rules', listed('reference/rules.md', /^\| `(\w+)` \|/gm))).toEqual([])
    expect(unknownNames('Metrics', listed('reference/metrics.md', /^\| `(sluice_\w+)/gm))).toEqual([])
    const settings = listed('reference/configuration.md', /^\| `(--[\w-]+)/gm)
    expect(unknownNames('Settings', settings)).toEqual([])
    const named = [...PAGE.matchAll(/`(--[\w-]+)`/g)].map(([, name = '']) => name)
    expect(named.filter((name) => !settings.includes(name))).toEqual([])
  })
})
