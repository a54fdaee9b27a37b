import { beforeEach, describe, expect, test } from 'vitest'
import { setApprovals } from '../../src/approvals/required-approvals.ts'
import type { Database } from '../../src/db/database.ts'
import { EXPLAIN_PATH } from '../../src/http/routes/explain.ts'
import { OVERRIDES_PATH } from '../../src/http/routes/overrides.ts'
import { describeDatabases } from '../databases.ts'
import { ADMIN_TOKEN, type App, CHECK, serveApp } from '../service.ts'
import { admitted, audited, type Body, nodeWith, remove, tokenOf } from './node.ts'

const RULES = [
  { rule_id: 'per_user', endpoint_pattern: '/u', scope: 'per_user', limit: 2, window: '1d' },
  { rule_id: 'per_ip', endpoint_pattern: '/i', scope: 'per_ip', limit: 2, window: '1d' },
  {
    rule_id: 'several',
    endpoint_pattern: '/s',
    scope: 'per_user',
    limits: [
      { name: 'minute', limit: 2, window: '1m' },
      { name: 'day', limit: 4, window: '1d' },
    ],
  },
  { rule_id: 'everyone', endpoint_pattern: '/all', scope: 'global', limit: 1, window: '1d' },
]
const REASON = 'ticket 4711'

/** Bad body → field that the error names, and its fix. */
const MISTAKES: [Body, string, RegExp][] = [
  [{ key: 'ann', ban: true }, 'key', /user:alice/],
  [{ key: 'user:', ban: true }, 'key', /user:alice/],
  [{ key: 'ip:300.1.1.1', ban: true }, 'key', /IPv4 or IPv6/],
  [{ key: 'ip:10.0.0.0/8', ban: true }, 'key', /IPv4 or IPv6/],
  [{ key: 'endpoint:GET /u', ban: true }, 'key', /user:alice/],
  [{ key: 'api_key:hmac:0123456789abcdef', ban: true }, 'key', /give the key itself/],
  [{ rule_id: 'per_user', key: 'hmac:0123456789abcdef', limit: 3 }, 'key', /give the key itself/],
  [{ rule_id: 'per_usr', key: 'ann', ban: true }, 'rule_id', /did you mean "per_user"/],
  [{ rule_id: 'everyone', key: 'ann', ban: true }, 'key', /one bucket for all/],
  [{ rule_id: 'several', key: 'ann', limit: 3 }, 'limit_name', /one of minute, day/],
  [{ rule_id: 'several', key: 'ann', limit: 3, limit_name: 'minit' }, 'limit_name', /did you mean "minute"/],
  [{ rule_id: 'several', key: 'ann', factor: 3, limit_name: 'minute' }, 'limit_name', /remove it/],
  [{ key: 'user:ann' }, 'limit', /exactly one of limit, factor, ban and exempt/],
  [{ key: 'user:ann', limit: 1, ban: true }, 'ban', /exactly one/],
  [{ key: 'user:ann', limit: 0 }, 'limit', /use ban/],
  [{ key: 'user:ann', limit: 1.5 }, 'limit', /whole number/],
  [{ key: 'user:ann', factor: 0 }, 'factor', /above 0/],
  [{ key: 'user:ann', ban: false }, 'ban', /use true/],
  [{ key: 'user:ann', ban: { status: 418 } }, 'ban.status', /403 or 429/],
  [{ key: 'user:ann', ban: { state: 403 } }, 'ban.state', /unknown field/],
  [{ key: 'user:ann', exempt: false }, 'exempt', /use true/],
  [{ key: 'user:ann', ban: true, expires_in: undefined }, 'expires_in', /either expires_in or "forever": true/],
  [{ key: 'user:ann', ban: true, forever: true }, 'expires_in', /either expires_in or "forever": true/],
  [{ key: 'user:ann', ban: true, expires_in: '1y' }, 'expires_in', /12h/],
  [{ key: 'user:ann', ban: true, expires_in: -5 }, 'expires_in', /12h/],
  [{ key: 'user:ann', ban: true, reason: undefined }, 'reason', /say why/],
  [{ key: 'user:a\u0000b', ban: true }, 'key', /user:alice/],
  [{ key: 'user:\ud800', ban: true }, 'key', /user:alice/],
  [{ key: 'user:ann', ban: true, reasn: 'x' }, 'reasn', /did you mean "reason"/],
  [{ key: { user: 'ann' }, ban: true }, 'key', /user:alice/],
]

const create = (app: App, body: Body, token = ADMIN_TOKEN) =>
  app.post(OVERRIDES_PATH, { expires_in: '1h', reason: REASON, ...body }, token)
const removed = (app: App, id: unknown) => remove(app, `${OVERRIDES_PATH}/${id}`)

describeDatabases('overrides', ({ open }) => {
  let database: Database
  let app: App
  beforeEach(async () => {
    database = await open()
  })

  test('raise, lower, exempt and ban one key, and no other', async () => {
    app = await nodeWith(database, RULES)
    const cases: [Body, Body, number][] = [
      [{ rule_id: 'per_user', key: 'raised', limit: 4 }, { client_id: 'raised', endpoint: '/u' }, 4],
      [{ rule_id: 'per_user', key: 'lowered', limit: 1 }, { client_id: 'lowered', endpoint: '/u' }, 1],
      [{ key: 'user:doubled', factor: 2 }, { client_id: 'doubled', endpoint: '/u' }, 4],
      [{ key: 'user:exempt', exempt: true }, { client_id: 'exempt', endpoint: '/u' }, 5],
      [{ key: 'user:banned', ban: true }, { client_id: 'banned', endpoint: '/u' }, 0],
      [{ key: 'ip:2001:db8::1', limit: 3 }, { ip_address: '2001:db8::2', endpoint: '/i' }, 3],
      [{ rule_id: 'several', key: 'named', limit: 3, limit_name: 'minute' }, { client_id: 'named', endpoint: '/s' }, 3],
      [{ rule_id: 'everyone', key: '', limit: 3 }, { client_id: 'any', endpoint: '/all' }, 3],
    ]
    for (const [body, request, expected] of cases) {
      const { status, body: made } = await create(app, body)
      expect([status, made]).toEqual([
        201,
        expect.objectContaining({ state: 'active', override_id: expect.any(String) }),
      ])
      expect([body, await admitted(app, request)]).toEqual([body, expected])
    }
    expect(await admitted(app, { client_id: 'somebody else', endpoint: '/u' })).toBe(2)
  })

  test('a ban answers 429 or 403 by choice, also where no rule matches', async () => {
    app = await nodeWith(database, RULES)
    const { body: made } = await create(app, { key: 'user:eve', ban: { status: 403 } })
    const refused = await app.check({ client_id: 'eve', endpoint: '/nowhere' })
    expect(refused).toMatchObject({ allowed: false, status: 403, retry_after: null, override_id: made.override_id })
    const { body: recorded } = await app.get(`/api/v1/rate-limit/decisions/${refused.request_id}`)
    const ban = { kind: 'override', override_id: made.override_id, rule_id: null, ban: { status: 403 } }
    expect(recorded).toMatchObject({ status: 403, rule_id: null, headers: {}, exceptions: [ban] })
    await create(app, { rule_id: 'per_user', key: 'bob', ban: { status: 403 } })
    const detailed = await app.check({ client_id: 'bob', endpoint: '/u', detail: true })
    expect(detailed).toMatchObject({ status: 403, headers: {} })
    await create(app, { key: 'user:mallory', ban: true })
    expect(await app.check({ client_id: 'mallory', endpoint: '/u' })).not.toHaveProperty('status')
  })

  test('are visible in explain, in the detail of a check, in decisions, events and the audit', async () => {
    app = await nodeWith(database, RULES)
    const { body: made } = await create(app, { rule_id: 'per_user', key: 'ann', limit: 1 })
    const applied = { kind: 'override', override_id: made.override_id, rule_id: 'per_user', limit: 1 }
    const request = { client_id: 'ann', endpoint: '/u' }
    const explained = await app.post(EXPLAIN_PATH, request, ADMIN_TOKEN)
    expect(explained.body).toMatchObject({ exceptions: [applied], answer: { limit: 1 } })
    expect(await app.check({ ...request, detail: true })).toMatchObject({ allowed: true, exceptions: [applied] })
    const refused = await app.check(request)
    const decision = await app.get(`/api/v1/rate-limit/decisions/${refused.request_id}`)
    expect(decision.body).toMatchObject({ allowed: false, exceptions: [applied] })
    await app.events.pipeline?.close()
    const rows = await database.query('SELECT override_id FROM events WHERE NOT allowed')
    expect(rows).toEqual([{ override_id: made.override_id }])
    expect(await audited(app, 'override.*')).toMatchObject([
      { action: 'override.create', target: made.override_id, reason: REASON, diff: { key: 'user:ann', limit: 1 } },
    ])
  })

  test('a new override of the same rule, key and limit replaces the earlier one; a ban replaces no limit', async () => {
    app = await nodeWith(database, RULES)
    const first = await create(app, { rule_id: 'per_user', key: 'ann', limit: 3 })
    const second = await create(app, { rule_id: 'per_user', key: 'ann', limit: 4 })
    expect(second.body.replaced).toEqual([first.body.override_id])
    const ban = await create(app, { rule_id: 'per_user', key: 'ann', ban: true })
    expect(ban.body).not.toHaveProperty('replaced')
    const listed = await app.get(`${OVERRIDES_PATH}?key=user:ann`)
    expect(listed.body.overrides).toMatchObject([{ ban: { status: 429 } }, { limit: 4 }])
    expect(await admitted(app, { client_id: 'ann', endpoint: '/u' })).toBe(0)
    expect((await removed(app, ban.body.override_id)).status).toBe(204)
    expect(await admitted(app, { client_id: 'ann', endpoint: '/u' })).toBe(4)
    expect((await removed(app, ban.body.override_id)).status).toBe(404)
  })

  test('end when they expire, without being removed', async () => {
    app = await nodeWith(database, RULES)
    await create(app, { key: 'user:ann', ban: true, expires_in: '30s' })
    await create(app, { key: 'user:bob', ban: true, expires_in: undefined, forever: true })
    expect((await app.check({ client_id: 'ann' })).allowed).toBe(false)
    app.clock.advanceMs(30_000)
    expect((await app.check({ client_id: 'ann' })).allowed).toBe(true)
    expect((await app.check({ client_id: 'bob' })).allowed).toBe(false)
    expect((await app.get(OVERRIDES_PATH)).body.overrides).toMatchObject([{ key: 'user:bob', expires_at: null }])
  })

  test('lists page by page, newest first', async () => {
    app = await nodeWith(database, RULES)
    for (const name of ['a', 'b', 'c']) {
      await create(app, { key: `user:${name}`, ban: true })
      app.clock.advanceMs(1)
    }
    const first = await app.get(`${OVERRIDES_PATH}?limit=2`)
    expect(first.body.overrides).toMatchObject([{ key: 'user:c' }, { key: 'user:b' }])
    const second = await app.get(`${OVERRIDES_PATH}?limit=2&after=${first.body.next}`)
    expect(second.body).toMatchObject({ overrides: [{ key: 'user:a' }], next: null })
  })

  test('that raise or exempt need approval by another token; all other overrides apply at once', async () => {
    app = await nodeWith(database, RULES)
    await setApprovals(database, 1, 'test', new Date())
    const [author, approver] = [await tokenOf(app, database, 'approver'), await tokenOf(app, database, 'approver')]
    const raised = await create(app, { key: 'user:ann', factor: 2 }, author)
    expect(raised).toMatchObject({ status: 201, body: { state: 'pending', approvals_required: 1 } })
    expect((await create(app, { key: 'user:bob', factor: 0.5 }, author)).body.state).toBe('active')
    expect((await create(app, { rule_id: 'per_user', key: 'cid', limit: 2 }, author)).body.state).toBe('active')
    expect((await create(app, { rule_id: 'per_user', key: 'cid', limit: 3 }, author)).body.state).toBe('pending')
    expect((await create(app, { key: 'user:dan', exempt: true }, author)).body.state).toBe('pending')
    const path = `${OVERRIDES_PATH}/${raised.body.override_id}/approve`
    expect((await app.post(path, {}, author)).status).toBe(403)
    const approved = await app.post(path, {}, approver)
    expect(approved).toMatchObject({ status: 200, body: { state: 'active', approvals: 1, approvals_required: 1 } })
    expect(await admitted(app, { client_id: 'ann', endpoint: '/u' })).toBe(4)
    expect(await admitted(app, { client_id: 'dan', endpoint: '/u' })).toBe(2)
    expect((await app.post(path, {}, approver)).status).toBe(409)
  })

  test('bad input is a 400 that names field, value and fix, and changes nothing', async () => {
    app = await nodeWith(database, RULES)
    for (const [body, field, fix] of MISTAKES) {
      const { status, body: answer } = await create(app, body)
      expect([body, status, answer.errors]).toMatchObject([body, 400, [{ field, fix: expect.stringMatching(fix) }]])
    }
    expect((await app.get(OVERRIDES_PATH)).body.overrides).toEqual([])
  })

  test('an override that has no effect yet says so', async () => {
    app = await nodeWith(database, RULES)
    expect((await create(app, { key: 'tenant:acme', limit: 3 })).body.warnings).toEqual([
      expect.stringContaining('no enabled rule'),
    ])
    expect((await create(app, { rule_id: 'per_user', key: 'user:ann', limit: 1 })).body.warnings).toEqual([
      expect.stringContaining('give the value alone'),
    ])
    expect((await create(app, { key: 'tenant:acme', ban: true })).body).not.toHaveProperty('warnings')
  })
})

describe('without a database', () => {
  test('every route answers 409 and says why', async () => {
    const app = await serveApp(RULES)
    const answers = [
      await create(app, { key: 'user:ann', ban: true }),
      await app.get(OVERRIDES_PATH, ADMIN_TOKEN),
      await removed(app, 'ovr_018bcfe568a1b2c3d4e5f607'),
    ]
    for (const { status, body } of answers) expect([status, body.code]).toEqual([409, 'NO_DATABASE'])
    expect((await app.post(CHECK, { client_id: 'ann', endpoint: '/u', bypass_token: 'x' })).body.allowed).toBe(true)
  })
})
