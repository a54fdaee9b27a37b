// Nodes of two versions on one database: a write that an older node would ignore is refused with its name, or waits.

import { featuresOf, parseRules, RULE_FEATURES } from 'sluice'
import { describe, expect, test, vi } from 'vitest'
import { WITHOUT_FEATURES, WITHOUT_REPORTS } from '../../src/compatibility/history.ts'
import { requireUnderstood } from '../../src/compatibility/requirements.ts'
import type { Queries } from '../../src/db/database.ts'
import { FEATURES } from '../../src/fleet/features.ts'
import { BYPASS_PATH } from '../../src/http/routes/bypass-tokens.ts'
import { INCIDENT_PATH } from '../../src/http/routes/incident.ts'
import { KILL_SWITCH_PATH } from '../../src/http/routes/kill-switch.ts'
import { OVERRIDES_PATH } from '../../src/http/routes/overrides.ts'
import { RULES_PATH } from '../../src/http/routes/rules.ts'
import { SIGNALS_PATH } from '../../src/http/routes/signals.ts'
import type { ProblemError } from '../../src/problems/problem.ts'
import { PROPOSALS_PATH } from '../../src/rollouts/edit-hooks.ts'
import { sluice } from '../cli/terminal.ts'
import { temporaryFolder, usePostgres } from '../databases.ts'
import { ADMIN_TOKEN, serveSettings } from '../service.ts'
import { connect, nodeOn, report, without, write } from './setup.ts'

const PATIENTLY = { timeout: 20_000, interval: 50 }
const REASON = { reason: 'test' }
const BAN = { key: 'user:mallory', ban: true, forever: true, ...REASON }
const SIGNAL_RULE = { rule_id: 'new', scope: 'per_user', limit: 5, window: '1m', on_signal: { abuse: { factor: 0.5 } } }

const postgres = usePostgres()
const node = () => nodeOn(postgres().createDatabase())

/** Every door that writes rules or exceptions, and a feature that its write needs. */
const DOORS: readonly (readonly [feature: string, method: string, path: string, body: object])[] = [
  ['override.ban', 'POST', OVERRIDES_PATH, BAN],
  ['override.exempt', 'POST', OVERRIDES_PATH, { ...BAN, ban: undefined, exempt: true }],
  ['override.limit', 'POST', OVERRIDES_PATH, { ...BAN, ban: undefined, limit: 3 }],
  ['override.factor', 'POST', OVERRIDES_PATH, { ...BAN, ban: undefined, factor: 2 }],
  ['bypass_token', 'POST', BYPASS_PATH, { name: 'tests', expires_in: '1h', limit_per_minute: 60 }],
  ['signal.high', 'POST', SIGNALS_PATH, { key: 'user:mallory', kind: 'abuse', severity: 'high', ttl_seconds: 60 }],
  ['global_factor', 'POST', `${INCIDENT_PATH}/factor`, { factor: 0.5, expires_in: '1h', ...REASON }],
  ['rule.on_signal', 'POST', RULES_PATH, SIGNAL_RULE],
  ['rule.on_signal.factor', 'PUT', `${RULES_PATH}/newer`, { ...SIGNAL_RULE, rule_id: 'newer' }],
  ['rule.on_signal', 'PATCH', `${RULES_PATH}/two`, { on_signal: SIGNAL_RULE.on_signal }],
  ['rule.on_signal', 'PUT', '/api/v1/rate-limit/rule-set', { rules: [{ ...SIGNAL_RULE, rule_id: 'set' }] }],
  ['freeze', 'POST', `${INCIDENT_PATH}/freeze`, REASON], // last: refuses later edits
]

test('every door names the live nodes that would ignore its write, and writes once they are gone', async () => {
  const app = await node()
  await report(app, 'new-node', FEATURES)
  for (const [feature, method, path, body] of DOORS) {
    await report(app, 'old-node', without(feature))
    const { status, body: answer } = await write(app, method, path, body)
    expect([feature, status, answer.code]).toEqual([feature, 409, 'NODES_OUTDATED'])
    const name = 'old-node at http://old-node:8080, version 0.0.9'
    expect(answer.detail).toContain(`${name} (${feature})`)
    expect(answer.errors).toEqual([{ field: feature, value: name, fix: 'upgrade or stop this node' }])
    await report(app, 'old-node', without(feature), '11 seconds')
    const again = await write(app, method, path, body)
    expect([feature, again.status < 300, again.body]).toEqual([feature, true, again.body])
  }
})

test('a node that has written no reports since the first version is named by its connection', async () => {
  const url = postgres().createDatabase()
  const app = await nodeOn(url)
  const old = await connect(url)
  await old.query('LISTEN "sluice_rules"')
  const { rows } = await old.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
  await old.query('LISTEN "sluice_kills"')
  const { status, body } = await write(app, 'POST', OVERRIDES_PATH, BAN)
  expect([status, body.code]).toEqual([409, 'NODES_OUTDATED'])
  expect(body.detail).toContain(`that writes no reports, PostgreSQL backend ${rows[0]?.pid} (override.ban)`)
  expect(JSON.stringify(body.errors)).toContain(`SELECT pg_terminate_backend(${rows[0]?.pid}) ends its connection`)
  // Changes that every version knows pass beside it.
  const patched = await write(app, 'PATCH', `${RULES_PATH}/two`, { limit: 3 })
  const killed = await write(app, 'POST', KILL_SWITCH_PATH, { rule_id: 'two', on: true, ...REASON })
  expect([patched.status, killed.status]).toEqual([200, expect.toSatisfy((code: number) => code < 300)])
  await app.database.query('SELECT pg_terminate_backend($1)', [rows[0]?.pid])
  await vi.waitFor(async () => expect((await write(app, 'POST', OVERRIDES_PATH, BAN)).status).toBe(201), PATIENTLY)
})

test('a report far in the future says nothing about now, and refuses nothing', async () => {
  const app = await node()
  await report(app, 'old-node', without('override.ban'), '-1 hour')
  expect((await write(app, 'POST', OVERRIDES_PATH, BAN)).status).toBe(201)
})

test.each([
  'not json',
  'null',
  '"a\\u0000b"',
  '{"understands":{"a":1}}',
  '{"node":"n","address":"a","version":"1","figures":[],"alerts":[],"reasons":[],"understands":{"a":1}}',
])('an unreadable report counts as a node without a list of features, named by its process: %s', async (text) => {
  const app = await node()
  await report(app, 'odd-process', FEATURES)
  await app.database.query("UPDATE nodes SET report = $1 WHERE process = 'odd-process'", [text])
  expect((await write(app, 'POST', OVERRIDES_PATH, BAN)).status).toBe(201)
  const queries: Queries = {
    query: async <Row>(sql: string, values?: readonly unknown[]) => {
      return (await app.database.query(sql, values as unknown[])).rows as Row[]
    },
  }
  const named = expect.objectContaining({ field: 'rule.newer', value: 'odd-process' })
  const refusal = await requireUnderstood(queries, ['rule.newer']).catch((error: ProblemError) => error.problem)
  expect(refusal).toMatchObject({ code: 'NODES_OUTDATED', errors: expect.arrayContaining([named]) })
  expect((await app.get('/api/v1/fleet', ADMIN_TOKEN)).status).toBe(200)
})

test('nodes that report no features understand the exceptions of their version, and no more', async () => {
  const url = postgres().createDatabase()
  const app = await nodeOn(url)
  await report(app, 'older-node', undefined)
  const old = await connect(url) // the connection on which such a node listens
  await old.query('LISTEN "sluice_rules"')
  await old.query('LISTEN "sluice_incident"')
  for (const [, method, path, body] of DOORS) {
    if (path.endsWith('/freeze')) continue // would refuse the edits that follow
    const { status, body: answer } = await write(app, method, path, body)
    expect([path, status < 300 || answer.code === 'RULE_EXISTS', answer]).toEqual([path, true, answer])
  }
})

test('two nodes of this version refuse each other nothing, as soon as the second one runs', async () => {
  const url = postgres().createDatabase()
  const app = await nodeOn(url)
  await serveSettings({ database: url, dataDir: temporaryFolder() })
  expect((await write(app, 'POST', OVERRIDES_PATH, BAN)).status).toBe(201)
})

test('an edit may keep what its rule used before', async () => {
  const app = await node()
  await write(app, 'POST', RULES_PATH, SIGNAL_RULE)
  await report(app, 'old-node', without('rule.on_signal', 'rule.on_signal.factor'))
  expect((await write(app, 'PATCH', `${RULES_PATH}/new`, { limit: 1 })).status).toBe(200)
  expect((await write(app, 'PATCH', `${RULES_PATH}/new`, { on_signal: null })).status).toBe(200)
  expect((await write(app, 'PATCH', `${RULES_PATH}/new`, { on_signal: SIGNAL_RULE.on_signal })).status).toBe(409)
})

test('an edit under guard is undone, whatever older nodes lack', async () => {
  const app = await nodeOn(postgres().createDatabase(), 300_000)
  await write(app, 'POST', RULES_PATH, SIGNAL_RULE)
  const edited = await write(app, 'PATCH', `${RULES_PATH}/new`, { limit: 1, on_signal: null })
  const [id = ''] = /prop_\w+/.exec(edited.headers.get('sluice-guard') ?? '') ?? []
  await report(app, 'old-node', without('rule.on_signal'))
  const undone = await write(app, 'POST', `${PROPOSALS_PATH}/${id}/abort`, REASON)
  expect([undone.status, undone.body]).toEqual([200, undone.body])
  const { body } = await app.get(`${RULES_PATH}/new`, ADMIN_TOKEN)
  expect(body).toMatchObject({ limit: 5, on_signal: SIGNAL_RULE.on_signal })
})

test('a rollout waits for nodes that do not follow rollouts', async () => {
  const app = await node()
  const proposed = {
    changes: [{ op: 'update', rule: { rule_id: 'two', limit: 4 } }],
    steps: [{ canary: '10%' }],
    ...REASON,
  }
  const { body } = await write(app, 'POST', PROPOSALS_PATH, proposed)
  await report(app, 'old-node', without('rollout.canary'))
  const started = await write(app, 'POST', `${PROPOSALS_PATH}/${body.proposal_id}/start`, {})
  expect([started.status, started.body.code], JSON.stringify([body, started.body])).toEqual([409, 'NODES_OUTDATED'])
})

test('the fleet lists what a node of an older version lacks', async () => {
  const app = await node()
  await report(app, 'new-node', FEATURES)
  await report(app, 'old-node', without('override.ban', 'redis.log'))
  await report(app, 'older-node', undefined)
  await vi.waitFor(async () => {
    const { nodes } = (await app.get('/api/v1/fleet', ADMIN_TOKEN)).body as {
      nodes: { node: string; lacks: string[] }[]
    }
    expect(nodes.filter(({ node }) => node.endsWith('-node'))).toMatchObject([
      { node: 'new-node', lacks: [] },
      { node: 'old-node', lacks: ['redis.log', 'override.ban'] },
      { node: 'older-node', lacks: expect.not.arrayContaining(['override.ban']) },
    ])
  }, PATIENTLY)
})

describe('Prefer: wait', () => {
  test('waits until the older node is gone, and writes once', async () => {
    const app = await node()
    await report(app, 'old-node', without('override.ban'))
    const refusals = async () => {
      const sql = 'SELECT xact_rollback::int AS count FROM pg_stat_database WHERE datname = current_database()'
      return (await app.database.query<{ count: number }>(sql)).rows[0]?.count ?? 0
    }
    const before = await refusals()
    const waiting = write(app, 'POST', OVERRIDES_PATH, BAN, { prefer: 'return=minimal, wait=20' })
    await vi.waitFor(async () => expect(await refusals()).toBeGreaterThan(before), PATIENTLY)
    await app.database.query("DELETE FROM nodes WHERE process = 'old-node'")
    expect((await waiting).status).toBe(201)
    const { body } = await app.get(OVERRIDES_PATH, ADMIN_TOKEN)
    expect(body.overrides).toHaveLength(1)
  })

  test('ends with the refusal when the time is over', async () => {
    const app = await node()
    await report(app, 'old-node', without('override.ban'))
    const { status, body } = await write(app, 'POST', OVERRIDES_PATH, BAN, { prefer: 'wait=1' })
    expect([status, body.code]).toEqual([409, 'NODES_OUTDATED'])
  })
})

test('sluice overrides set names the older nodes, and waits for them with --when-ready', async () => {
  const app = await node()
  await report(app, 'old-node', without('override.ban'))
  const env = { SLUICE_URL: app.address, SLUICE_TOKEN: ADMIN_TOKEN }
  const args = ['overrides', 'set', 'user:mallory', '--ban', '--forever', '--reason', 'test', '--yes']
  const refused = await sluice(args, { env })
  const why = 'override.ban: upgrade or stop this node (got "old-node at http://old-node:8080, version 0.0.9")'
  expect(refused).toMatchObject({ code: 5, out: '', told: expect.stringContaining(why) })
  expect(refused.told).toContain('To wait until they are upgraded or stopped: --when-ready.')
  let told = ''
  const waiting = sluice([...args, '--when-ready'], {
    env,
    onTell: (text) => {
      told += text
    },
  })
  await vi.waitFor(() => expect(told).toContain('waiting until they are upgraded or stopped'), PATIENTLY)
  expect(told).toContain(why)
  await app.database.query("DELETE FROM nodes WHERE process = 'old-node'")
  expect(await waiting).toMatchObject({ code: 0, out: expect.stringMatching(/^ovr_/) })
})

describe('features', () => {
  test('are those of the parser, the exceptions, the roles and the migrations, each once', () => {
    expect(new Set(FEATURES).size).toBe(FEATURES.length)
    expect([...WITHOUT_REPORTS].filter((feature) => !WITHOUT_FEATURES.has(feature))).toEqual([])
    expect([...WITHOUT_FEATURES].filter((feature) => !FEATURES.includes(feature))).toEqual([])
  })

  test('of a rule with every field are understood by the version that parses it', () => {
    const [rule] = parseRules([
      {
        ...{ rule_id: 'all', endpoint_pattern: '/a', method: 'POST', plan: 'free', when: { country: ['NL'] } },
        ...{ scope: 'per_user', on_missing: 'refuse', algorithm: 'sliding_window', by_plan: { pro: { limit: 9 } } },
        ...{ limits: [{ name: 'a', limit: 1, window: '1s' }], cost: 2, group: 'g', priority: 1, consistency: 'leased' },
        ...{ lease: { max_units: 2, max_share: 0.1, ttl_ms: 100 }, intent: 'abuse', on_fail: 'local', shards: 1 },
        ...{ on_signal: { abuse: { factor: 0.5, min_severity: 'high' } }, spread: 'regional', enforce_at: 'any' },
      },
    ])
    const needed = featuresOf(rule as unknown as Record<string, unknown>)
    expect(needed.filter((feature) => !RULE_FEATURES.includes(feature))).toEqual([])
    expect(needed).toEqual(expect.arrayContaining(['rule.on_fail=local', 'rule.lease.ttl_ms', 'redis.packed']))
  })
})
