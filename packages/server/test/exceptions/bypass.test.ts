import { beforeEach, describe, expect, test } from 'vitest'
import { setApprovals } from '../../src/approvals/required-approvals.ts'
import type { Database } from '../../src/db/database.ts'
import { AUDIT_INTERVAL_MS } from '../../src/exceptions/bypass-uses.ts'
import { BYPASS_PATH } from '../../src/http/routes/bypass-tokens.ts'
import { EXPLAIN_PATH } from '../../src/http/routes/explain.ts'
import { OVERRIDES_PATH } from '../../src/http/routes/overrides.ts'
import { describeDatabases } from '../databases.ts'
import { ADMIN_TOKEN, type App, serveApp } from '../service.ts'
import { admitted, audited, type Body, metricOf, nodeWith, remove, tokenOf } from './node.ts'

const RULES = [
  { rule_id: 'per_user', endpoint_pattern: '/api/**', scope: 'per_user', limit: 1, window: '1d' },
  { rule_id: 'per_ip', endpoint_pattern: '/api/**', scope: 'per_ip', limit: 100, window: '1d' },
]
const REQUEST = { client_id: 'ann', ip_address: '192.0.2.1', endpoint: '/api/x' }

const create = (app: App, body: Body = {}, token = ADMIN_TOKEN) =>
  app.post(BYPASS_PATH, { name: 'load test', expires_in: '1h', limit_per_minute: 100, ...body }, token)

describeDatabases('bypass tokens', ({ open }) => {
  let database: Database
  beforeEach(async () => {
    database = await open()
  })

  test('let requests skip rules; only their hash is stored; the secret is shown once', async () => {
    const app = await nodeWith(database, RULES)
    const { status, headers, body } = await create(app)
    expect([status, headers.get('cache-control')]).toEqual([201, 'no-store'])
    expect(body.token).toMatch(/^slb_[\w-]{43}$/)
    const bypass_token = body.token
    expect(await admitted(app, { ...REQUEST, bypass_token })).toBe(5)
    expect(await admitted(app, REQUEST)).toBe(1)
    const listed = await app.get(BYPASS_PATH)
    expect(listed.body.bypass_tokens).toMatchObject([{ bypass_id: body.bypass_id, name: 'load test', state: 'active' }])
    const stored = await database.query('SELECT * FROM bypass_secrets')
    expect(JSON.stringify([listed.body, stored, await audited(app, 'bypass.*')])).not.toContain(String(body.token))
    const dry = await app.post(EXPLAIN_PATH, { ...REQUEST, bypass_token }, ADMIN_TOKEN)
    expect(dry.body.exceptions).toContainEqual({
      ...{ kind: 'bypass', bypass_id: body.bypass_id, rule_id: 'per_user', exempt: true },
    })
  })

  test('are scoped to rules and to paths', async () => {
    const app = await nodeWith(database, RULES)
    const { body: byRule } = await create(app, { rules: ['per_ip'] })
    expect(await admitted(app, { ...REQUEST, client_id: 'bob', bypass_token: byRule.token })).toBe(1)
    const { body: byPath } = await create(app, { paths: ['/api/batch/**'] })
    const wrong = { ...REQUEST, client_id: 'cid', bypass_token: byPath.token }
    expect(await admitted(app, wrong)).toBe(1)
    expect(await admitted(app, { ...wrong, endpoint: '/api/batch/1' })).toBe(5)
    expect(await admitted(app, { ...wrong, endpoint: '/api/batch/..%2fx' })).toBe(0)
  })

  test('have a limit of their own; above it, the rules apply', async () => {
    const app = await nodeWith(database, RULES)
    const { body } = await create(app, { limit_per_minute: 3 })
    expect(await admitted(app, { ...REQUEST, bypass_token: body.token })).toBe(4)
  })

  test('end when they expire or are revoked, and are then ignored and counted', async () => {
    const app = await nodeWith(database, RULES)
    const { body: short } = await create(app, { expires_in: '30s' })
    const { body: leaked } = await create(app, { name: 'leaked' })
    app.clock.advanceMs(30_000)
    expect(await admitted(app, { ...REQUEST, bypass_token: short.token })).toBe(1)
    expect((await remove(app, `${BYPASS_PATH}/${leaked.bypass_id}?reason=found+in+a+log`)).status).toBe(204)
    expect(await admitted(app, { ...REQUEST, client_id: 'bob', bypass_token: leaked.token })).toBe(1)
    expect(await metricOf(app, 'sluice_bypass_rejected_total{reason="expired"}')).toBe(5)
    expect(await metricOf(app, 'sluice_bypass_rejected_total{reason="revoked"}')).toBe(5)
    expect(await audited(app, 'bypass.revoke')).toMatchObject([{ target: leaked.bypass_id, reason: 'found in a log' }])
    expect((await remove(app, `${BYPASS_PATH}/byp_0000000000000000`)).status).toBe(404)
  })

  test('rotate: two secrets are valid for the grace period, never three', async () => {
    const app = await nodeWith(database, RULES)
    const { body: first } = await create(app)
    const path = `${BYPASS_PATH}/${first.bypass_id}/rotate`
    const works = async (bypass_token: unknown) => (await admitted(app, { ...REQUEST, bypass_token }, 2)) === 2
    const { status, body: second } = await app.post(path, { grace: '10m' }, ADMIN_TOKEN)
    expect(status).toBe(201)
    expect([await works(first.token), await works(second.token)]).toEqual([true, true])
    expect(second.previous_secret_ends_at).toBe(new Date(app.clock.nowUs() / 1000 + 600_000).toISOString())
    const { body: third } = await app.post(path, { grace: '1d' }, ADMIN_TOKEN)
    expect([await works(first.token), await works(second.token), await works(third.token)]).toEqual([false, true, true])
    const { body: fourth } = await app.post(path, { grace: 0 }, ADMIN_TOKEN)
    expect([await works(third.token), await works(fourth.token)]).toEqual([false, true])
    app.clock.advanceMs(600_000)
    expect((await app.post(path, { grace: 'soon' }, ADMIN_TOKEN)).body.errors).toMatchObject([{ field: 'grace' }])
  })

  test('the first use is audited at once, later uses at most every few minutes; all are counted', async () => {
    const app = await nodeWith(database, RULES)
    const { body } = await create(app)
    const use = () => admitted(app, { ...REQUEST, bypass_token: body.token })
    await use()
    await app.flushUses()
    expect(await audited(app, 'bypass.use')).toMatchObject([
      { target: body.bypass_id, diff: { uses: 5, total_uses: 5, last: { endpoint: '/api/x' } } },
    ])
    await use()
    await app.flushUses()
    expect(await audited(app, 'bypass.use')).toHaveLength(1)
    app.clock.advanceMs(AUDIT_INTERVAL_MS)
    await use()
    await app.flushUses()
    expect(await audited(app, 'bypass.use')).toMatchObject([{ diff: { uses: 10, total_uses: 15 } }, {}])
    const { bypass_tokens: listed } = (await app.get(BYPASS_PATH)).body
    const last_used_at = new Date(app.clock.nowUs() / 1000).toISOString()
    expect(listed).toMatchObject([{ uses: 15, last_used_at }])
    expect(await metricOf(app, 'sluice_bypass_uses_total{token="load test"}')).toBe(15)
    await app.events.pipeline?.close()
    const rows = await database.query('SELECT DISTINCT bypass_id FROM events')
    expect(rows).toEqual([{ bypass_id: body.bypass_id }])
  })

  test('never lift a ban', async () => {
    const app = await nodeWith(database, RULES)
    const { body } = await create(app)
    await app.post(OVERRIDES_PATH, { key: 'user:ann', ban: true, forever: true, reason: 'fraud' }, ADMIN_TOKEN)
    expect(await admitted(app, { ...REQUEST, bypass_token: body.token })).toBe(0)
  })

  test('guesses are ignored, then refused; a valid token from the same address always works', async () => {
    const app = await nodeWith(database, RULES)
    const { body } = await create(app)
    const guess = (index: number) => ({
      ...{ ...REQUEST, client_id: `user ${index}`, bypass_token: `slb_${String(index).padStart(43, 'x')}` },
    })
    expect(await app.check(guess(0))).toEqual({ ...(await app.check({ ...REQUEST, client_id: 'x' })), remaining: 0 })
    for (let index = 1; index < 30; index += 1) expect((await app.check(guess(index))).allowed).toBe(true)
    const refused = await app.check(guess(30))
    expect(refused).toMatchObject({ allowed: false, retry_after: expect.any(Number) })
    expect(await app.check({ ...guess(31), dry_run: true })).toMatchObject({ allowed: false })
    expect(await admitted(app, { ...REQUEST, bypass_token: body.token })).toBe(5)
    expect((await app.check({ ...REQUEST, client_id: 'no token' })).allowed).toBe(true)
    expect(await metricOf(app, 'sluice_bypass_guesses_refused_total')).toBe(2)
    expect(app.logged).toContainEqual(expect.objectContaining({ event: 'bypass_guessing', refused: 1 }))
    app.clock.advanceMs(120_000)
    expect((await app.check(guess(32))).allowed).toBe(true)
  })

  test('wait for an approval by others, if changes need one', async () => {
    const app = await nodeWith(database, RULES)
    await setApprovals(database, 1, 'test', new Date())
    const [author, other] = [await tokenOf(app, database, 'approver'), await tokenOf(app, database, 'approver')]
    const { body } = await create(app, {}, author)
    expect(body).toMatchObject({ state: 'pending', approvals_required: 1 })
    expect(await admitted(app, { ...REQUEST, bypass_token: body.token })).toBe(1)
    expect(await metricOf(app, 'sluice_bypass_rejected_total{reason="pending"}')).toBe(5)
    const path = `${BYPASS_PATH}/${body.bypass_id}/approve`
    expect((await app.post(path, {}, author)).status).toBe(403)
    const younger = await tokenOf(app, database, 'approver')
    expect((await app.post(path, {}, younger)).status).toBe(403)
    expect((await app.post(path, {}, other)).body).toMatchObject({ state: 'active' })
    expect(await admitted(app, { ...REQUEST, bypass_token: body.token })).toBe(5)
  })

  test('are rotated only by their creator, if changes need approval: the caller alone gets the secret', async () => {
    const app = await nodeWith(database, RULES)
    const [author, other] = [await tokenOf(app, database, 'approver'), await tokenOf(app, database, 'approver')]
    await setApprovals(database, 1, 'test', new Date())
    const { body } = await create(app, {}, author)
    const path = `${BYPASS_PATH}/${body.bypass_id}`
    expect((await app.post(`${path}/approve`, {}, other)).body).toMatchObject({ state: 'active' })
    for (const token of [other, ADMIN_TOKEN]) {
      const { status, body: refused } = await app.post(`${path}/rotate`, { grace: '1h' }, token)
      expect([status, refused.code]).toEqual([403, 'APPROVAL_FORBIDDEN'])
    }
    const rotated = await app.post(`${path}/rotate`, { grace: '1h' }, author)
    expect(rotated.status).toBe(201)
    expect(await admitted(app, { ...REQUEST, bypass_token: rotated.body.token })).toBe(5)
  })

  test('bad input is a 400 that names field, value and fix', async () => {
    const app = await nodeWith(database, RULES)
    const mistakes: [Body, string, RegExp][] = [
      [{ name: '' }, 'name', /1 to 100/],
      [{ expires_in: undefined }, 'expires_in', /12h/],
      [{ expires_in: 'never' }, 'expires_in', /12h/],
      [{ limit_per_minute: 0 }, 'limit_per_minute', /whole number/],
      [{ limit_per_minute: undefined }, 'limit_per_minute', /whole number/],
      [{ rules: [] }, 'rules', /omit it for all/],
      [{ rules: ['per_usr'] }, 'rules.0', /did you mean "per_user"/],
      [{ paths: ['api'] }, 'paths.0', /start/],
      [{ path: ['/api'] }, 'path', /did you mean "paths"/],
    ]
    for (const [body, field, fix] of mistakes) {
      const { status, body: answer } = await create(app, body)
      expect([body, status, answer.errors]).toMatchObject([body, 400, [{ field, fix: expect.stringMatching(fix) }]])
    }
    for (const bypass_token of [5, null, 'x'.repeat(2000)])
      expect((await app.post('/api/v1/rate-limit/check', { ...REQUEST, bypass_token })).status).toBe(400)
    expect((await create(app, {}, await tokenOf(app, database, 'editor'))).status).toBe(403)
  })
})

describe('without a database', () => {
  test('every route answers 409; tokens of requests are ignored, not refused', async () => {
    const app = await serveApp(RULES)
    expect(await create(app)).toMatchObject({ status: 409, body: { code: 'NO_DATABASE' } })
    expect((await app.get(BYPASS_PATH, ADMIN_TOKEN)).status).toBe(409)
    for (let index = 0; index < 60; index += 1)
      expect((await app.check({ ...REQUEST, client_id: `u${index}`, bypass_token: 'wrong' })).allowed).toBe(true)
  })
})
