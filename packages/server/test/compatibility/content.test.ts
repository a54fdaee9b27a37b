// A node that reads what a newer version wrote leaves it out, is degraded, and says why: nothing is ignored silently.

import { describe, expect, test, vi } from 'vitest'
import { BYPASS_PATH } from '../../src/http/routes/bypass-tokens.ts'
import { OVERRIDES_PATH } from '../../src/http/routes/overrides.ts'
import { SIGNALS_PATH } from '../../src/http/routes/signals.ts'
import { temporaryFolder, usePostgres } from '../databases.ts'
import { serveSettings } from '../service.ts'
import { connect, type Node, nodeOn, write } from './setup.ts'

const PATIENTLY = { timeout: 20_000, interval: 50 }

const postgres = usePostgres()

async function isReady({ get }: Node): Promise<void> {
  await vi.waitFor(async () => {
    expect((await get('/readyz')).body).toMatchObject({ status: 'ready', reasons: [] })
  }, PATIENTLY)
}

/** Waits until the node is degraded for this reason, and says so in the log and the fleet. */
async function isDegraded({ get, logged }: Node, where: string, item: string): Promise<void> {
  const reason = expect.stringContaining(`${where} (${item})`)
  await vi.waitFor(async () => {
    expect((await get('/readyz')).body).toMatchObject({ status: 'degraded', reasons: [reason] })
  }, PATIENTLY)
  expect((await get('/api/v1/fleet', 'token-of-the-admins')).body.nodes).toMatchObject([
    { status: 'degraded', reasons: [reason] },
  ])
  expect(logged).toContainEqual(expect.objectContaining({ event: 'content_not_understood', where, items: item }))
  expect(String((await get('/metrics')).body.text)).toContain(`sluice_content_not_understood{where="${where}"} 1\n`)
}

/** Rows that a newer version could write, and how an operator removes them. */
const CONTENT: readonly (readonly [where: string, item: string, insert: string, remove: string])[] = [
  [
    'overrides',
    'ovr_0123456789ab',
    `INSERT INTO overrides (override_id, revision, state, fact, owner, slot, effect, reason, actor, created_at)
     VALUES ('ovr_0123456789ab', (SELECT revision FROM override_revision), 'active', 'user', 'x', 'delay',
       '{"delay_ms": 100}', 'test', 'test', now()); NOTIFY sluice_overrides`,
    `UPDATE overrides SET state = 'removed', revision = (SELECT revision FROM override_revision);
     NOTIFY sluice_overrides`,
  ],
  [
    'signals',
    'sig_1: severity extreme',
    `INSERT INTO signals (signal_id, fact, owner, kind, severity, actor, created_at, expires_at)
     VALUES ('sig_1', 'user', 'x', 'abuse', 'extreme', 'test', now(), now() + interval '1 day'); NOTIFY sluice_signals`,
    'DELETE FROM signals; NOTIFY sluice_signals',
  ],
  [
    'global factors',
    'fac_1: state scheduled',
    `INSERT INTO global_factors (factor_id, state, factor, reason, actor, created_at, expires_at)
     VALUES ('fac_1', 'scheduled', 2, 'test', 'test', now(), now() + interval '1 day'); NOTIFY sluice_incident`,
    'DELETE FROM global_factors; NOTIFY sluice_incident',
  ],
  [
    'tokens',
    'tok_1: role auditor',
    `INSERT INTO api_tokens (id, name, role, hash, created_at, created_by)
     VALUES ('tok_1', 'a newer role', 'auditor', 'none', now(), 'test'); NOTIFY sluice_tokens`,
    "DELETE FROM api_tokens WHERE id = 'tok_1'; NOTIFY sluice_tokens",
  ],
  [
    'migrations',
    '9999_future',
    "INSERT INTO schema_migrations (name, hash) VALUES ('9999_future.sql', ''); NOTIFY sluice_migrations",
    "DELETE FROM schema_migrations WHERE name = '9999_future.sql'; NOTIFY sluice_migrations",
  ],
]

test('content of a newer version degrades the node until it is gone', async () => {
  const app = await nodeOn(postgres().createDatabase())
  await isReady(app)
  for (const [where, item, insert, remove] of CONTENT) {
    const bump = 'UPDATE override_revision SET revision = revision + 1'
    await app.database.query(`BEGIN; ${bump}; ${insert}; COMMIT`)
    await isDegraded(app, where, item)
    await app.database.query(`BEGIN; ${bump}; ${remove}; COMMIT`)
    await isReady(app)
    expect(app.logged).toContainEqual(expect.objectContaining({ event: 'content_understood', where }))
  }
})

test('a node whose database a newer version has migrated does not start, nor from its snapshot', async () => {
  const settings = { database: postgres().createDatabase(), dataDir: temporaryFolder() }
  const running = await serveSettings(settings)
  const database = await connect(settings.database)
  const newer = (compatible: boolean) =>
    database.query(
      `INSERT INTO schema_migrations (name, hash, compatible, version) VALUES ('9999_future.sql', '', $1, '9.1.0')
       ON CONFLICT (name) DO UPDATE SET compatible = excluded.compatible`,
      [compatible],
    )
  await newer(false)
  await expect(serveSettings(settings)).rejects.toThrow(/\(9999_future\): start 9\.1\.0 or a newer version$/)
  expect((await running.check({ client_id: 'x', endpoint: '/demo' })).allowed, 'one that runs goes on').toBe(true)
  await newer(true)
  const { body } = await (await serveSettings(settings)).get('/readyz')
  expect(body, 'beside a newer node').toMatchObject({ status: 'degraded' })
})

test('an unknown severity does not keep the other signals from applying', async () => {
  const app = await nodeOn(postgres().createDatabase())
  const rule = { rule_id: 'two', scope: 'per_user', limit: 2, window: '1d', consistency: 'strict' }
  const reacting = { ...rule, on_signal: { abuse: { factor: 0.5 } } }
  await write(app, 'PUT', '/api/v1/rate-limit/rule-set', { rules: [reacting] })
  await app.database.query(CONTENT[1]?.[2] ?? '')
  const body = { key: 'user:mallory', kind: 'abuse', severity: 'high', ttl_seconds: 600 }
  expect((await write(app, 'POST', SIGNALS_PATH, body)).status).toBe(202)
  expect((await app.check({ client_id: 'mallory', dry_run: true })).limit).toBe(1)
  expect((await app.check({ client_id: 'x', dry_run: true })).limit).toBe(2)
})

test('a bypass token in an unknown state skips no rule', async () => {
  const app = await nodeOn(postgres().createDatabase())
  const made = await write(app, 'POST', BYPASS_PATH, { name: 'tests', expires_in: '1h', limit_per_minute: 60 })
  const request = { client_id: 'x', bypass_token: made.body.token, cost: 3 }
  expect((await app.check(request)).allowed).toBe(true)
  await app.database.query("UPDATE bypass_tokens SET state = 'suspended'; NOTIFY sluice_bypass")
  await isDegraded(app, 'bypass tokens', `${made.body.bypass_id}: state suspended`)
  expect((await app.check(request)).allowed).toBe(false)
})

describe('rules of a newer version', () => {
  test('degrade the node, which names the field and keeps the last rules that it understands', async () => {
    const app = await nodeOn(postgres().createDatabase())
    await app.database.query(`
      BEGIN;
      INSERT INTO rule_versions (version, rules, rule_count, actor, created_at)
        SELECT version + 1, '[]', 1, 'test', now() FROM rules_in_force;
      UPDATE rules_in_force SET version = version + 1;
      UPDATE rules SET rule = rule || '{"calendar": "month"}', revision = (SELECT version FROM rules_in_force);
      NOTIFY sluice_rules; COMMIT`)
    const reason = expect.stringContaining('rules[0].calendar: unknown field')
    await vi.waitFor(async () => {
      expect((await app.get('/readyz')).body).toMatchObject({ status: 'degraded', reasons: [reason] })
    }, PATIENTLY)
    expect((await app.check({ client_id: 'x', dry_run: true })).limit).toBe(2)
  })
})

test('an override of this version applies beside one that the node does not understand', async () => {
  const app = await nodeOn(postgres().createDatabase())
  await app.database.query(`UPDATE override_revision SET revision = revision + 1; ${CONTENT[0]?.[2]}`)
  const ban = { key: 'user:mallory', ban: true, forever: true, reason: 'test' }
  expect((await write(app, 'POST', OVERRIDES_PATH, ban)).status).toBe(201)
  await isDegraded(app, 'overrides', 'ovr_0123456789ab')
  expect((await app.check({ client_id: 'mallory' })).allowed).toBe(false)
})
