import { beforeEach, describe, expect, test } from 'vitest'
import { setApprovals } from '../../src/approvals/required-approvals.ts'
import type { Database } from '../../src/db/database.ts'
import { EXPLAIN_PATH } from '../../src/http/routes/explain.ts'
import { INCIDENT_PATH } from '../../src/http/routes/incident.ts'
import { OVERRIDES_PATH } from '../../src/http/routes/overrides.ts'
import { describeDatabases } from '../databases.ts'
import { ADMIN_TOKEN, type App, serveApp } from '../service.ts'
import { admitted, audited, type Body, metricOf, nodeWith, putRules, remove, tokenOf } from './node.ts'

const RULES = [{ rule_id: 'one', scope: 'per_user', limit: 4, window: '1d' }]
const FACTOR = { factor: 0.5, expires_in: '30m', reason: 'overload' }
const NORMAL = { frozen: false, freeze: null, factor: null, pending_factor: null }

const post = (app: App, path: string, body: Body = {}, token = ADMIN_TOKEN) =>
  app.post(`${INCIDENT_PATH}/${path}`, body, token)

describeDatabases('incident', ({ open }) => {
  let database: Database
  beforeEach(async () => {
    database = await open()
  })

  test('the global factor multiplies all limits until it expires, and never lifts a ban', async () => {
    const app = await nodeWith(database, RULES)
    expect((await app.get(INCIDENT_PATH)).body).toEqual(NORMAL)
    const { status, body } = await post(app, 'factor', FACTOR)
    expect([status, body]).toMatchObject([200, { factor: { factor: 0.5, state: 'active', reason: 'overload' } }])
    expect(await admitted(app, { client_id: 'ann' })).toBe(2)
    const explained = await app.post(EXPLAIN_PATH, { client_id: 'bob' }, ADMIN_TOKEN)
    expect(explained.body.exceptions).toEqual([{ kind: 'factor', rule_id: null, factor: 0.5 }])
    expect(await metricOf(app, 'sluice_global_factor')).toBe(0.5)
    await post(app, 'factor', { ...FACTOR, factor: 2 })
    expect((await app.get(INCIDENT_PATH)).body).toMatchObject({ factor: { factor: 2 } })
    await app.post(OVERRIDES_PATH, { key: 'user:eve', ban: true, forever: true, reason: 'fraud' }, ADMIN_TOKEN)
    expect(await admitted(app, { client_id: 'eve' })).toBe(0)
    app.clock.advanceMs(1_800_000)
    expect(await admitted(app, { client_id: 'cid' })).toBe(4)
    expect((await app.get(INCIDENT_PATH)).body).toEqual(NORMAL)
    expect(await metricOf(app, 'sluice_global_factor')).toBe(1)
    expect(await audited(app, 'factor.*')).toMatchObject([{ reason: 'overload' }, { diff: { factor: 0.5 } }])
  })

  test('a factor can be ended; ending none is a 404', async () => {
    const app = await nodeWith(database, RULES)
    expect((await remove(app, `${INCIDENT_PATH}/factor`)).status).toBe(404)
    await post(app, 'factor', FACTOR)
    expect((await remove(app, `${INCIDENT_PATH}/factor?reason=over`)).status).toBe(204)
    expect(await admitted(app, { client_id: 'ann' })).toBe(4)
    expect(await audited(app, 'factor.end')).toMatchObject([{ reason: 'over' }])
  })

  test('a factor above 1 waits for an approval by others, if changes need one', async () => {
    const app = await nodeWith(database, RULES)
    await setApprovals(database, 1, 'test', new Date())
    const [author, other] = [await tokenOf(app, database, 'approver'), await tokenOf(app, database, 'approver')]
    expect((await post(app, 'factor', FACTOR, author)).body).toMatchObject({ factor: { factor: 0.5 } })
    const { body } = await post(app, 'factor', { ...FACTOR, factor: 2 }, author)
    expect(body).toMatchObject({ factor: { factor: 0.5 }, pending_factor: { factor: 2, state: 'pending' } })
    const { factor_id } = body.pending_factor as { factor_id: string }
    expect((await post(app, 'factor/approve', { factor_id }, author)).status).toBe(403)
    expect((await post(app, 'factor/approve', {}, other)).status).toBe(400)
    expect((await post(app, 'factor/approve', { factor_id }, other)).body).toMatchObject({ state: 'active' })
    expect((await app.get(INCIDENT_PATH)).body).toMatchObject({ factor: { factor: 2 }, pending_factor: null })
    expect((await post(app, 'factor/approve', { factor_id }, other)).status).toBe(409)
  })

  test('an approval never applies to a factor that replaced the one that was read', async () => {
    const app = await nodeWith(database, RULES)
    await setApprovals(database, 1, 'test', new Date())
    const [author, other] = [await tokenOf(app, database, 'approver'), await tokenOf(app, database, 'approver')]
    const { body } = await post(app, 'factor', { ...FACTOR, factor: 1.1 }, author)
    const { factor_id } = body.pending_factor as { factor_id: string }
    await post(app, 'factor', { ...FACTOR, factor: 1000 }, author)
    expect((await post(app, 'factor/approve', { factor_id }, other)).status).toBe(409)
    expect((await app.get(INCIDENT_PATH)).body).toMatchObject({ factor: null, pending_factor: { factor: 1000 } })
  })

  test('freeze and unfreeze are recorded, shown, and refused if nothing would change', async () => {
    const app = await nodeWith(database, RULES)
    expect((await post(app, 'unfreeze')).status).toBe(409)
    const { body } = await post(app, 'freeze', { reason: 'incident 42' })
    expect(body).toMatchObject({ frozen: true, freeze: { by: 'admin-token', reason: 'incident 42' } })
    expect(await post(app, 'freeze', { reason: 'again' })).toMatchObject({ status: 409, body: { code: 'FROZEN' } })
    expect(await metricOf(app, 'sluice_rules_frozen')).toBe(1)
    expect((await post(app, 'unfreeze', { reason: 'over' })).body).toEqual(NORMAL)
    expect(await audited(app, 'incident.*')).toMatchObject([
      { action: 'incident.unfreeze', reason: 'over' },
      { action: 'incident.freeze', reason: 'incident 42' },
    ])
  })

  test('a freeze stops every change of rules but a rollback', async () => {
    const app = await nodeWith(database, RULES)
    await putRules(app, [...RULES, { rule_id: 'two', scope: 'per_ip', limit: 1, window: '1d' }])
    await post(app, 'freeze', { reason: 'incident 42' })
    const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }
    const rule = JSON.stringify({ rule_id: 'one', scope: 'per_user', limit: 9, window: '1d' })
    const writes = [
      await app.post('/api/v1/rate-limit/rules', { rule_id: 'new', limit: 1, window: '1d' }, ADMIN_TOKEN),
      await app.send('/api/v1/rate-limit/rules/one', { method: 'PUT', headers, body: rule }),
      await app.send('/api/v1/rate-limit/rules/one', { method: 'PATCH', headers, body: '{"limit":9}' }),
      await remove(app, '/api/v1/rate-limit/rules/two'),
      await putRules(app, RULES),
    ]
    for (const { status, body } of writes) {
      expect([status, body.code]).toEqual([409, 'FROZEN'])
      expect(body.detail).toContain('incident 42')
    }
    const rollback = await app.post('/api/v1/rate-limit/rule-set/rollback', { version: 2 }, ADMIN_TOKEN)
    expect(rollback.status).toBe(200)
    expect((await app.get('/api/v1/rate-limit/rules/two')).status).toBe(404)
    await post(app, 'unfreeze')
    expect((await app.send('/api/v1/rate-limit/rules/one', { method: 'PUT', headers, body: rule })).status).toBe(200)
  })

  test('bad input is a 400 that names field, value and fix', async () => {
    const app = await nodeWith(database, RULES)
    const mistakes: [string, Body, string, RegExp][] = [
      ['freeze', {}, 'reason', /say why/],
      ['factor', { ...FACTOR, factor: 0 }, 'factor', /above 0/],
      ['factor', { ...FACTOR, factor: '2' }, 'factor', /above 0/],
      ['factor', { ...FACTOR, expires_in: undefined }, 'expires_in', /12h/],
      ['factor', { ...FACTOR, expires_in: 'x' }, 'expires_in', /12h/],
      ['factor', { ...FACTOR, reason: '' }, 'reason', /say why/],
      ['factor', { ...FACTOR, forever: true }, 'forever', /unknown field/],
    ]
    for (const [path, body, field, fix] of mistakes) {
      const { status, body: answer } = await post(app, path, body)
      expect([body, status, answer.errors]).toMatchObject([body, 400, [{ field, fix: expect.stringMatching(fix) }]])
    }
    expect((await post(app, 'freeze', { reason: 'x' }, await tokenOf(app, database, 'editor'))).status).toBe(403)
  })
})

describe('without a database', () => {
  test('every route answers 409', async () => {
    const app = await serveApp(RULES)
    expect((await app.get(INCIDENT_PATH, ADMIN_TOKEN)).body.code).toBe('NO_DATABASE')
    expect((await post(app, 'factor', FACTOR)).status).toBe(409)
    expect((await post(app, 'freeze', { reason: 'x' })).status).toBe(409)
  })
})
