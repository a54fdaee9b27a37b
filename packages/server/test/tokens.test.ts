import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { createFirstToken, TOKENS_MAX } from '../src/access/token-table.ts'
import { verifyAudit } from '../src/audit/audit.ts'
import type { Database } from '../src/db/database.ts'
import { migrate } from '../src/db/migrate.ts'
import { openDatabase } from '../src/db/open-database.ts'
import { KILL_SWITCH_PATH } from '../src/http/routes/kill-switch.ts'
import { TOKENS_PATH } from '../src/http/routes/tokens.ts'
import { describeDatabases, temporaryFolder, usePostgres } from './databases.ts'
import { type AccessOptions, ADMIN_TOKEN, type App, RULES, serveApp } from './service.ts'

const RULE = { rule_id: 'one', limit: 0, window_seconds: 60 }
const PATIENTLY = { timeout: 10_000, interval: 20 }

const node = (database: Database, options: AccessOptions = {}) => serveApp([RULE], undefined, { database, ...options })
const create = ({ post }: App, body: object, token = ADMIN_TOKEN) => post(TOKENS_PATH, body, token)
const revoke = ({ send }: App, id: unknown) =>
  send(`${TOKENS_PATH}/${id}`, { method: 'DELETE', headers: { authorization: `Bearer ${ADMIN_TOKEN}` } })
const statusOf = async ({ get }: App, token: unknown) => (await get(RULES, String(token))).status

describeDatabases('tokens', ({ open }) => {
  const ready = async () => {
    const database = await open()
    await migrate(database)
    return database
  }

  test('only the first start creates an admin token', async () => {
    const database = await ready()
    const starts = await Promise.all(Array.from({ length: 4 }, () => createFirstToken(database, new Date())))
    const made = starts.flatMap((start) => start?.secret ?? [])
    expect(made).toHaveLength(1)
    const app = await node(database)
    expect(app.admin.firstToken).toBeUndefined()
    expect(await create(app, { name: 'x', role: 'viewer' }, made[0])).toMatchObject({ status: 201 })
  })

  test('a token, and its revocation, work immediately on their node and within a second on others', async () => {
    const database = await ready()
    const [here, there] = [await node(database), await node(database)]
    const { status, headers, body } = await create(here, { name: 'dashboard', role: 'viewer' })
    expect(status).toBe(201)
    expect(headers.get('cache-control')).toBe('no-store')
    expect(body).toEqual({
      ...{ token: expect.stringMatching(/^sluice_[\w-]{43}$/), token_id: expect.stringMatching(/^tok_[\da-f]{16}$/) },
      ...{ name: 'dashboard', role: 'viewer', created_at: expect.any(String) },
      ...{ expires_at: null, revoked_at: null, last_used_at: null, state: 'active' },
    })
    expect(await statusOf(here, body.token)).toBe(200)
    await vi.waitFor(async () => expect(await statusOf(there, body.token)).toBe(200), PATIENTLY)
    expect(await revoke(here, body.token_id)).toMatchObject({ status: 204 })
    expect(await statusOf(here, body.token)).toBe(401)
    await vi.waitFor(async () => expect(await statusOf(there, body.token)).toBe(401), PATIENTLY)
    expect((await revoke(here, body.token_id)).status, 'once more does no harm').toBe(204)
  })

  test('appears only in the response that creates it', async () => {
    const database = await ready()
    const app = await node(database)
    const { body } = await create(app, { name: 'gateway', role: 'check' })
    await app.get(RULES, String(body.token))
    const list = await app.get(TOKENS_PATH, ADMIN_TOKEN)
    expect(list.body.tokens).toHaveLength(2) // including that of the first start
    const rows = await database.query('SELECT row_to_json(t)::text AS t FROM (SELECT * FROM api_tokens) t')
    const audit = await database.query('SELECT * FROM audit')
    expect(JSON.stringify([list, rows, audit, app.logged])).not.toContain(body.token)
  })

  test('is named in the kill switch', async () => {
    const app = await node(await ready())
    const { body } = await create(app, { name: 'on call', role: 'approver' })
    const killed = await app.post(KILL_SWITCH_PATH, { rule_id: 'one', on: true }, String(body.token))
    expect(killed.body.kills).toMatchObject([{ by: body.token_id, by_name: 'on call' }])
  })

  test('expires by the clock of the node', async () => {
    const app = await node(await ready())
    const { body } = await create(app, { name: 'x', role: 'viewer', ttl_seconds: 60 })
    expect(body.expires_at).toBe(new Date(app.clock.nowUs() / 1000 + 60_000).toISOString())
    app.clock.advanceUs(60_000_000 - 1)
    expect(await statusOf(app, body.token)).toBe(200)
    app.clock.advanceUs(1)
    expect(await statusOf(app, body.token)).toBe(401)
  })

  test('the audit log names who created and revoked it', async () => {
    const database = await ready()
    const app = await node(database)
    const admin = (await create(app, { name: 'boss', role: 'admin' })).body
    const { token_id } = (await create(app, { name: 'x', role: 'editor' }, String(admin.token))).body
    await revoke(app, token_id)
    const rows = await database.query('SELECT actor, action, target FROM audit ORDER BY seq')
    expect(rows).toEqual([
      { actor: 'sluice', action: 'token.create', target: expect.any(String) },
      { actor: 'admin-token', action: 'token.create', target: admin.token_id },
      { actor: admin.token_id, action: 'token.create', target: token_id },
      { actor: 'admin-token', action: 'token.revoke', target: token_id },
    ])
    expect(await verifyAudit(database)).toMatchObject({ intact: true, rows: 4 })
  })

  test('the number of active tokens is limited', async () => {
    const database = await ready()
    await database.query(
      `INSERT INTO api_tokens (id, name, role, hash, created_at)
       SELECT 'tok_' || n, 'x', 'check', 'hash' || n, now() FROM generate_series(1, ${TOKENS_MAX}) n`,
    )
    const app = await node(database)
    expect(await create(app, { name: 'x', role: 'check' })).toMatchObject({ body: { code: 'TOO_MANY_TOKENS' } })
    await revoke(app, 'tok_1')
    expect(await create(app, { name: 'x', role: 'check' })).toMatchObject({ status: 201 })
  })

  test('a valid token stays known, however many others have expired since', async () => {
    const database = await ready()
    const first = await createFirstToken(database, new Date())
    await database.query(
      `INSERT INTO api_tokens (id, name, role, hash, created_at, expires_at, revoked_at)
       SELECT 'tok_' || n, 'ci', 'check', 'hash' || n, now() + interval '1 second',
         CASE WHEN n % 2 = 0 THEN now() END, CASE WHEN n % 2 = 1 THEN now() END
       FROM generate_series(1, ${2 * TOKENS_MAX}) n`,
    )
    expect(await statusOf(await node(database), first?.secret)).toBe(200)
  })

  test.each(['tok_x', 'tok_%00', "'%20OR%20true--"])('an unknown token cannot be revoked: %s', async (id) => {
    expect(await revoke(await node(await ready()), id)).toMatchObject({ body: { code: 'TOKEN_UNKNOWN' } })
  })

  test('the kill switch reaches every node, and survives restarts', async () => {
    const database = await ready()
    const [here, there] = [await node(database), await node(database)]
    const allowed = async ({ check }: App) => (await check({})).allowed
    const { body } = await here.post(KILL_SWITCH_PATH, { everything: true, on: true, reason: 'why' }, ADMIN_TOKEN)
    expect(body).toMatchObject({ everything: true, durable: true, kills: [{ rule_id: null, reason: 'why' }] })
    expect(await allowed(here)).toBe(true)
    await vi.waitFor(async () => expect(await allowed(there)).toBe(true), PATIENTLY)
    const later = await node(database)
    expect(await allowed(later)).toBe(true)
    await later.post(KILL_SWITCH_PATH, { everything: true, on: false, reason: 'mended' }, ADMIN_TOKEN)
    await vi.waitFor(async () => expect(await allowed(here)).toBe(false), PATIENTLY)
    const rows = await database.query("SELECT action, target, reason FROM audit WHERE action LIKE 'kill%' ORDER BY seq")
    expect(rows).toEqual([
      { action: 'kill_switch.on', target: 'everything', reason: 'why' },
      { action: 'kill_switch.off', target: 'everything', reason: 'mended' },
    ])
  })
})

describe('while PostgreSQL is unreachable', () => {
  const postgres = usePostgres()

  test('tokens and disabled rules stay unchanged, even for a node that starts during the outage', async () => {
    const settings = { database: postgres().createDatabase(), dataDir: temporaryFolder() }
    const database = await openDatabase(settings)
    await migrate(database)
    const app = await node(database, { dataDir: settings.dataDir })
    const { token } = (await create(app, { name: 'x', role: 'viewer' })).body
    await app.post(KILL_SWITCH_PATH, { rule_id: 'one', on: true }, ADMIN_TOKEN)
    const files = readdirSync(settings.dataDir).map((name) => name.replace(/-[\da-f]{12}/, ''))
    const tables = ['bypass', 'incident', 'kills', 'overrides', 'signals', 'tokens'].map((table) => `${table}.json`)
    expect(files.sort()).toEqual(['key-secret', ...tables].sort())
    const copy = join(settings.dataDir, readdirSync(settings.dataDir).sort().at(-1) ?? '')
    expect(statSync(copy).mode & 0o777).toBe(0o600)
    expect(readFileSync(copy, 'utf8')).not.toContain(token)
    await database.close()
    expect(await statusOf(app, token)).toBe(200)

    const nowhere = await openDatabase({ ...settings, database: 'postgres://127.0.0.1:1/none' })
    const restarted = await node(nowhere, { dataDir: settings.dataDir })
    expect(await statusOf(restarted, token)).toBe(200)
    expect(await restarted.check({})).toMatchObject({ allowed: true })
    await nowhere.close()
  })
})

test.each([
  [{ role: 'admin' }, 'name', /1 to 100/],
  [{ name: 'x', role: 'root' }, 'role', 'use one of check, viewer, editor, approver, admin'],
  [{ name: 'x', role: 'admin', ttl_seconds: 59 }, 'ttl_seconds', /from 60 to/],
  [{ name: "'; DROP TABLE api_tokens; --\n", role: 'admin' }, 'name', /without control/],
])('%j is a 400', async (body, field, fix) => {
  const { status, body: answer } = await create(await serveApp([RULE]), body)
  expect(status).toBe(400)
  expect(answer.errors).toMatchObject([{ field, fix: expect.stringMatching(fix) }])
})

test('without a database tokens cannot be created', async () => {
  const app = await serveApp([RULE])
  expect(await app.get(TOKENS_PATH, ADMIN_TOKEN)).toMatchObject({ status: 409, body: { code: 'NO_DATABASE' } })
})
