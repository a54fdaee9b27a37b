import { describe, expect, onTestFinished, test, vi } from 'vitest'
import type { Role } from '../src/access/roles.ts'
import { createToken, revokeToken } from '../src/access/token-table.ts'
import { setApprovals } from '../src/approvals/required-approvals.ts'
import { verifyAudit } from '../src/audit/audit.ts'
import type { Database } from '../src/db/database.ts'
import { openDatabase } from '../src/db/open-database.ts'
import { AUDIT_PATH } from '../src/http/routes/audit-list.ts'
import { PROPOSALS_PATH } from '../src/rollouts/edit-hooks.ts'
import { setFreeze } from '../src/rules/freeze.ts'
import { temporaryFolder, usePostgres } from './databases.ts'
import { ADMIN_TOKEN, type Answer, type App, RULE_SET, RULES, serveApp, serveDatabase } from './service.ts'

const RULE = { rule_id: 'posts', endpoint_pattern: '/posts', scope: 'per_user', limit: 100, window_seconds: 60 }
const GLOBAL = { rule_id: 'all', endpoint_pattern: '/all', scope: 'global', limit: 100, window_seconds: 60 }
const HALVED = { changes: [{ op: 'update', rule: { rule_id: 'posts', limit: 50 } }], reason: 'halve it' }
const AT = new Date('2026-01-01T00:00:00Z')

describe('proposals', () => {
  const postgres = usePostgres()

  const opened = async (approvals = 0) => {
    const database = await openDatabase({ database: postgres().createDatabase(), dataDir: temporaryFolder() })
    onTestFinished(() => database.close())
    const app = await serveDatabase(database)
    for (const rule of [RULE, GLOBAL]) expect((await app.post(RULES, rule, ADMIN_TOKEN)).status).toBe(201)
    await setApprovals(database, approvals, 'command', AT)
    return { app, database }
  }
  const token = async (database: Database, app: App, role: Role, actor = 'sluice') => {
    const made = await createToken(database, { name: role, role, expiresAt: null }, actor, AT)
    const secret = made?.secret ?? ''
    await vi.waitFor(async () => expect((await app.get(RULES, secret)).status).not.toBe(401), 5000)
    return { secret, id: made?.token.tokenId ?? '' }
  }
  const propose = (app: App, body: object, secret = ADMIN_TOKEN) => app.post(PROPOSALS_PATH, body, secret)
  const act = (app: App, id: unknown, verb: string, secret = ADMIN_TOKEN, body: object = {}) =>
    app.post(`${PROPOSALS_PATH}/${id}/${verb}`, body, secret)
  const show = (app: App, id: unknown) => app.get(`${PROPOSALS_PATH}/${id}`, ADMIN_TOKEN)
  const limitOf = async (app: App) => (await app.get(`${RULES}/posts`, ADMIN_TOKEN)).body.limit

  test('without approvals: approved at once, started, promoted step by step, and a version in the end', async () => {
    const { app, database } = await opened()
    const steps = [{ shadow: true }, { canary: '10%' }, { canary: '33.3%' }]
    const { status, body, headers } = await propose(app, { ...HALVED, steps })
    expect([status, body.state, headers.get('location')]).toEqual([
      201,
      'approved',
      `${PROPOSALS_PATH}/${body.proposal_id}`,
    ])
    const id = body.proposal_id
    expect((await act(app, id, 'approve', ADMIN_TOKEN, { start: false })).body).toMatchObject({ state: 'approved' })
    expect((await act(app, id, 'start')).body).toMatchObject({
      state: 'rolling_out',
      sentence: 'rolling out: step 1 of 3, shadow until promoted',
    })
    expect((await act(app, id, 'promote')).body.sentence).toBe('rolling out: step 2 of 3, canary 10% until promoted')
    expect(await limitOf(app)).toBe(100)
    const shown = (await show(app, id)).body
    expect(shown).toMatchObject({
      ...{
        proposal_id: id,
        kind: 'change',
        state: 'rolling_out',
        author: 'admin-token',
        reason: 'halve it',
        attempt: 1,
      },
      step: { index: 1, paused: null },
      steps: [{ shadow: true }, { canary: '10%' }, { canary: '33.3%' }],
      guard: {
        window: '10s',
        failing: 2,
        of: 3,
        newly_denied: { on: 'revert', points: 5, min_pairs: 200, min_keys: 20 },
      },
      changes: [{ op: 'update', rule_id: 'posts', before: { limit: 100 }, after: { limit: 50 } }],
      approvals: { required: 0, given: [] },
      conflicts: [],
    })
    await act(app, id, 'promote')
    const done = await act(app, id, 'promote')
    expect(done.body).toMatchObject({
      state: 'done',
      sentence: expect.stringMatching(/^applies to all keys; version \d+$/),
    })
    expect(await limitOf(app)).toBe(50)
    expect((await act(app, id, 'promote')).body).toMatchObject({ status: 409, code: 'PROPOSAL_STATE' })
    expect((await app.get(`${PROPOSALS_PATH}?state=done`, ADMIN_TOKEN)).body.proposals).toMatchObject([
      { proposal_id: id },
    ])
    const { body: audit } = await app.get(`${AUDIT_PATH}?target=${id}`, ADMIN_TOKEN)
    const actions = (audit.entries as { action: string }[]).map(({ action }) => action)
    expect(actions).toEqual(
      ['done', 'promote', 'promote', 'start', 'approve', 'create'].map((name) => `proposal.${name}`),
    )
    expect(await verifyAudit(database)).toMatchObject({ intact: true })
  })

  test('pause, resume, abort and retry: the canary keys stay the same', async () => {
    const { app, database } = await opened()
    const { proposal_id: id } = (await propose(app, { ...HALVED, steps: [{ canary: '50%' }] })).body
    const salt = async () => (await database.query('SELECT salt FROM proposals'))[0]?.salt
    const before = await salt()
    await act(app, id, 'start')
    const canary = async () => {
      const users = Array.from({ length: 60 }, (_, index) => `user ${index}`)
      const limits = await Promise.all(users.map((client_id) => app.check({ client_id, endpoint: '/posts' })))
      return limits.map(({ limit }) => limit)
    }
    const chosen = await canary()
    expect(new Set(chosen)).toEqual(new Set([50, 100]))
    expect((await act(app, id, 'pause', ADMIN_TOKEN, { reason: 'lunch' })).body.sentence).toBe(
      'paused at step 1 of 1, canary 50% until promoted: by admin-token: lunch',
    )
    expect((await act(app, id, 'start')).body.sentence).toMatch(/^rolling out/)
    expect(await canary()).toEqual(chosen)
    const [{ version: lower } = { version: 0 }] = await database.query<{ version: number }>(
      'SELECT version FROM rules_in_force',
    )
    expect((await act(app, id, 'abort', ADMIN_TOKEN, { reason: 'wrong day' })).body).toMatchObject({
      ...{ state: 'rolled_back', sentence: 'rolled back by admin-token: wrong day' },
    })
    expect(new Set(await canary())).toEqual(new Set([100]))
    expect((await app.get(`${RULES}/posts`, ADMIN_TOKEN)).body).toMatchObject({ limit: 100, version: lower + 1 })
    expect((await act(app, id, 'start')).body).toMatchObject({ state: 'rolling_out' })
    expect(await salt()).toBe(before)
    expect(await canary()).toEqual(chosen)
    expect((await show(app, id)).body.attempt).toBe(2)
  })

  test('new and deleted rules roll out the same way', async () => {
    const { app } = await opened()
    const fresh = { ...RULE, rule_id: 'fresh', endpoint_pattern: '/fresh', limit: 7 }
    const changes = [
      { op: 'create', rule: fresh },
      { op: 'delete', rule: { rule_id: 'posts' } },
    ]
    const { proposal_id: id } = (await propose(app, { changes, reason: 'replace', steps: [{ canary: '50%' }] })).body
    await act(app, id, 'start')
    const limits = async (endpoint: string) => {
      const users = Array.from({ length: 40 }, (_, index) => `user ${index}`)
      const found = await Promise.all(users.map((client_id) => app.check({ client_id, endpoint })))
      return new Set(found.map(({ limit }) => limit))
    }
    expect([await limits('/fresh'), await limits('/posts')]).toEqual([new Set([7, null]), new Set([100, null])])
    await act(app, id, 'promote')
    expect([await limits('/fresh'), await limits('/posts')]).toEqual([new Set([7]), new Set([null])])
    expect((await app.get(`${RULES}/posts`, ADMIN_TOKEN)).status).toBe(404)
  })

  test('one rollout per rule at a time; several rules roll out together', async () => {
    const { app } = await opened()
    const [one, two] = [(await propose(app, HALVED)).body, (await propose(app, { ...HALVED, reason: 'again' })).body]
    const other = (await propose(app, { ...HALVED, changes: [{ op: 'update', rule: { rule_id: 'all', limit: 9 } }] }))
      .body
    await act(app, one.proposal_id, 'start')
    expect((await act(app, two.proposal_id, 'start')).body).toMatchObject({
      ...{ status: 409, code: 'ROLLOUT_ACTIVE', detail: expect.stringContaining(`posts (${one.proposal_id})`) },
    })
    expect((await act(app, other.proposal_id, 'start')).status).toBe(200)
    const edit = await app.send(`${RULES}/posts`, {
      ...{ method: 'PATCH', body: '{"limit":1}' },
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' },
    })
    expect(edit.body).toMatchObject({ status: 409, code: 'ROLLOUT_ACTIVE' })
    await act(app, one.proposal_id, 'abort')
    expect((await act(app, two.proposal_id, 'start')).status).toBe(200)
  })

  test('a guarded direct edit does not block a proposal of its rule; its other rules stay guarded', async () => {
    const database = await openDatabase({ database: postgres().createDatabase(), dataDir: temporaryFolder() })
    onTestFinished(() => database.close())
    const app = await serveDatabase(database, { guardMs: 60_000 })
    const set = await app.send(RULE_SET, {
      ...{ method: 'PUT', body: JSON.stringify({ rules: [RULE, GLOBAL] }) },
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' },
    })
    const { proposal_id: guard } = set.body.guard as { proposal_id: string }
    const rulesOf = async () =>
      ((await show(app, guard)).body.changes as { rule_id: string }[]).map((one) => one.rule_id)
    expect(await rulesOf()).toEqual(expect.arrayContaining(['all', 'posts']))
    const { proposal_id: id } = (await propose(app, { ...HALVED, steps: [{ shadow: true }] })).body
    expect((await act(app, id, 'start')).body).toMatchObject({ state: 'rolling_out' })
    expect(await rulesOf()).toContain('all')
    expect(await rulesOf()).not.toContain('posts')
    expect((await show(app, guard)).body.state).toBe('rolling_out')
  })

  test('a base that moved applies cleanly, or conflicts with the rule and field named', async () => {
    const { app } = await opened()
    const patch = (body: object) =>
      app.send(`${RULES}/posts`, {
        ...{ method: 'PATCH', body: JSON.stringify(body) },
        headers: { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' },
      })
    const { proposal_id: id } = (await propose(app, { ...HALVED, steps: [{ shadow: true }] })).body
    await patch({ description: 'all posts', window_seconds: 30 })
    expect((await show(app, id)).body.conflicts).toEqual([])
    await patch({ limit: 70 })
    expect((await show(app, id)).body.conflicts).toEqual([
      { rule_id: 'posts', field: 'limit', proposed: 50, current: 70 },
    ])
    expect((await act(app, id, 'start')).body).toMatchObject({
      ...{ status: 409, code: 'PROPOSAL_CONFLICT' },
      errors: [{ field: 'posts.limit', value: 50, fix: 'the current value is 70' }],
    })
    await patch({ limit: 100 })
    await act(app, id, 'start')
    await act(app, id, 'promote')
    expect((await app.get(`${RULES}/posts`, ADMIN_TOKEN)).body).toMatchObject({
      ...{ limit: 50, window_seconds: 30, description: 'all posts' },
    })
  })

  test('with approvals, direct writes name the proposal API; kill switch and rollback stay direct', async () => {
    const { app } = await opened(1)
    const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }
    const send = (path: string, method: string, body?: object) =>
      app.send(path, {
        method,
        headers: body === undefined ? { authorization: headers.authorization } : headers,
        ...(body && { body: JSON.stringify(body) }),
      })
    const refused = {
      status: 409,
      code: 'APPROVAL_REQUIRED',
      detail: expect.stringContaining(`POST ${PROPOSALS_PATH}`),
    }
    expect((await send(RULES, 'POST', { ...RULE, rule_id: 'x' })).body).toMatchObject(refused)
    expect((await send(`${RULES}/posts`, 'PUT', RULE)).body).toMatchObject(refused)
    expect((await send(`${RULES}/posts`, 'PATCH', { limit: 1 })).body).toMatchObject(refused)
    expect((await send(`${RULES}/posts`, 'DELETE')).body).toMatchObject(refused)
    expect((await send(RULE_SET, 'PUT', { rules: [] })).body).toMatchObject(refused)
    expect((await send(`${RULES}/posts?dry_run=true`, 'PATCH', { limit: 1 })).status).toBe(200)
    expect((await send(`${RULE_SET}/rollback`, 'POST', { version: 2 })).status).toBe(200)
    expect((await send('/api/v1/rate-limit/kill-switch', 'POST', { everything: true, on: true })).status).toBe(200)
  })

  test('the approval matrix over HTTP: no unexpected 2xx', async () => {
    const { app, database } = await opened(1)
    const author = await token(database, app, 'admin')
    const older = {
      viewer: await token(database, app, 'viewer'),
      editor: await token(database, app, 'editor'),
      approver: await token(database, app, 'approver'),
      admin: await token(database, app, 'admin'),
      'created by the author': await token(database, app, 'admin', author.id),
      'revoked afterwards': await token(database, app, 'approver'),
      'role lowered afterwards': await token(database, app, 'approver'),
    }
    const { proposal_id: id, state } = (await propose(app, HALVED, author.secret)).body
    expect(state).toBe('draft')
    const younger = await token(database, app, 'approver')
    const statuses: Record<string, number> = {}
    const tryApprove = async (name: string, secret: string) => {
      statuses[name] = (await act(app, id, 'approve', secret, { start: false })).status
    }
    await tryApprove('author', author.secret)
    await tryApprove('viewer', older.viewer.secret)
    await tryApprove('editor', older.editor.secret)
    await tryApprove('created by the author', older['created by the author'].secret)
    await tryApprove('younger', younger.secret)
    expect((await act(app, id, 'start', author.secret)).status).toBe(409)
    expect((await show(app, id)).body).toMatchObject({ state: 'draft', approvals: { required: 1, given: [] } })
    await tryApprove('revoked afterwards', older['revoked afterwards'].secret)
    await revokeToken(database, older['revoked afterwards'].id, 'sluice', AT)
    statuses['start after the approver was revoked'] = (await act(app, id, 'start', author.secret)).status
    const isRevoked = async () => (await app.get(RULES, older['revoked afterwards'].secret)).status === 401
    await vi.waitUntil(isRevoked, 30_000) // the node reads tokens after a notification
    await tryApprove('revoked', older['revoked afterwards'].secret)
    await tryApprove('role lowered afterwards', older['role lowered afterwards'].secret)
    await database.query("UPDATE api_tokens SET role = 'editor' WHERE id = $1", [older['role lowered afterwards'].id])
    statuses['start after the role was lowered'] = (await act(app, id, 'start', author.secret)).status
    expect((await show(app, id)).body.state).toBe('draft')
    await tryApprove('approver', older.approver.secret)
    await tryApprove('admin', older.admin.secret)
    statuses['start by the author, approved by others'] = (await act(app, id, 'start', author.secret)).status
    expect(statuses).toEqual({
      ...{ author: 403, viewer: 403, editor: 403, 'created by the author': 403, younger: 403, revoked: 401 },
      ...{ 'revoked afterwards': 200, 'start after the approver was revoked': 409 },
      ...{ 'role lowered afterwards': 200, 'start after the role was lowered': 409 },
      ...{ approver: 200, admin: 200, 'start by the author, approved by others': 200 },
    })
    await act(app, id, 'abort', author.secret)
    expect((await act(app, id, 'start', author.secret)).body).toMatchObject({ state: 'draft' })
    expect((await act(app, id, 'start', author.secret)).status).toBe(409)
  })

  test('a rejected proposal does not start, a cancelled one can be tried again', async () => {
    const { app } = await opened()
    const again = { ...HALVED, reason: 'again' }
    const [one, two] = [(await propose(app, HALVED)).body, (await propose(app, again)).body]
    expect((await act(app, one.proposal_id, 'reject', ADMIN_TOKEN, { reason: 'no' })).body).toMatchObject({
      state: 'rejected',
    })
    expect((await act(app, one.proposal_id, 'start')).status).toBe(409)
    expect((await act(app, two.proposal_id, 'abort')).body).toMatchObject({ state: 'cancelled' })
    const empty = { method: 'POST', headers: { authorization: `Bearer ${ADMIN_TOKEN}` } }
    expect((await app.send(`${PROPOSALS_PATH}/${two.proposal_id}/start`, empty)).body).toMatchObject({
      state: 'rolling_out',
    })
    expect((await act(app, 'prop_x', 'start')).body).toMatchObject({ status: 404, code: 'PROPOSAL_UNKNOWN' })
  })

  test('the last approval starts the rollout; one that cannot start stays approved and says why', async () => {
    const { app, database } = await opened(1)
    const approver = (await token(database, app, 'approver')).secret
    const again = async (reason: string) => (await propose(app, { ...HALVED, reason })).body.proposal_id
    const [one, two, three] = [await again('one'), await again('two'), await again('three')]
    await database.query('UPDATE proposals SET created_at = clock_timestamp()') // newer than the token
    expect((await act(app, one, 'approve', approver, { start: false })).body.state).toBe('approved')
    expect((await act(app, two, 'approve', approver)).body).toMatchObject({
      state: 'rolling_out',
      sentence: expect.stringMatching(/^rolling out: step 1/),
    })
    expect((await act(app, three, 'approve', approver)).body).toMatchObject({
      ...{ state: 'approved', sentence: expect.stringContaining(`not started: A rule has one rollout at a time`) },
    })
    await setFreeze(database, { since: AT, by: 'tok_1', reason: 'incident 7' })
    const four = await again('four')
    expect((await act(app, four, 'approve', approver)).body).toMatchObject({
      ...{ state: 'approved', sentence: expect.stringContaining('incident 7') },
    })
  })

  test('a repeated request returns the first proposal: by Idempotency-Key, or equal content for a minute', async () => {
    const { app, database } = await opened(1)
    const other = (await token(database, app, 'editor')).secret
    const send = async (body: object, key?: string, secret = ADMIN_TOKEN) => {
      const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' }
      const sent = { ...headers, ...(key === undefined ? {} : { 'idempotency-key': key }) }
      const answer = await app.send(PROPOSALS_PATH, { method: 'POST', headers: sent, body: JSON.stringify(body) })
      return { status: answer.status, id: answer.body.proposal_id, errors: answer.body.errors }
    }
    const first = await send(HALVED)
    expect(first.status).toBe(201)
    const racing = await Promise.all([1, 2, 3, 4].map(() => send(HALVED)))
    expect(racing.map(({ status, id }) => [status, id])).toEqual(racing.map(() => [200, first.id]))
    expect((await send(HALVED, undefined, other)).status, 'another author').toBe(201)
    expect((await send({ ...HALVED, reason: 'differs' })).status, 'another content').toBe(201)
    const keyed = await send(HALVED, 'key-1')
    expect([keyed.status, keyed.id === first.id], 'a key of its own').toEqual([201, false])
    await act(app, keyed.id, 'abort')
    expect(await send(HALVED, 'key-1'), 'also after it ended').toMatchObject({ status: 200, id: keyed.id })
    expect(await send({ ...HALVED, reason: 'differs' }, 'key-1')).toMatchObject({
      ...{ status: 400, errors: [{ field: 'Idempotency-Key', value: 'key-1' }] },
    })
    expect((await send(HALVED, 'a key with spaces')).status).toBe(400)
    await database.query("UPDATE proposals SET created_at = created_at - interval '61 s'")
    expect((await send(HALVED)).status, 'a minute later').toBe(201)
    expect(await send(HALVED, 'key-1')).toMatchObject({ status: 200, id: keyed.id })
  })

  test('a freeze stops starts, promotions and direct edits, and allows abort and rollback', async () => {
    const { app, database } = await opened()
    const one = (await propose(app, HALVED)).body.proposal_id
    const two = (await propose(app, { ...HALVED, reason: 'again' })).body.proposal_id
    await act(app, one, 'start')
    await setFreeze(database, { since: AT, by: 'tok_1', reason: 'incident 7' })
    const frozen = { status: 409, code: 'FROZEN', detail: expect.stringContaining('incident 7') }
    expect((await act(app, one, 'promote')).body).toMatchObject(frozen)
    expect((await act(app, two, 'start')).body).toMatchObject(frozen)
    expect((await app.post(RULES, { ...RULE, rule_id: 'x' }, ADMIN_TOKEN)).body).toMatchObject(frozen)
    expect((await act(app, one, 'abort')).status).toBe(200)
    expect((await app.post(`${RULE_SET}/rollback`, { version: 2 }, ADMIN_TOKEN)).status).toBe(200)
    await setFreeze(database, undefined)
    expect((await app.post(RULES, { ...RULE, rule_id: 'x' }, ADMIN_TOKEN)).status).toBe(201)
  })

  test('a rollback of the rules ends the rollouts of the rules that it changes', async () => {
    const { app } = await opened()
    const { proposal_id: id } = (await propose(app, { ...HALVED, steps: [{ canary: '50%' }] })).body
    await act(app, id, 'start')
    expect((await app.post(`${RULE_SET}/rollback`, { version: 1 }, ADMIN_TOKEN)).status).toBe(200)
    expect((await show(app, id)).body).toMatchObject({
      state: 'rolled_back',
      sentence: expect.stringContaining('rollback of the rules'),
    })
  })

  const invalid: [string, object, string, string][] = [
    [
      'no reason',
      { changes: HALVED.changes },
      'reason',
      'give 1 to 1024 characters without control characters and direction overrides',
    ],
    ['no changes', { changes: [], reason: 'x' }, 'changes', 'give a list of 1 to 200 changes'],
    [
      'an unknown operation',
      { changes: [{ op: 'drop', rule: {} }], reason: 'x' },
      'changes.0.op',
      'use create, update or delete',
    ],
    [
      'one rule twice',
      { changes: [...HALVED.changes, ...HALVED.changes], reason: 'x' },
      'changes[1].rule.rule_id',
      'change each rule once',
    ],
    [
      'an invalid rule',
      { changes: [{ op: 'update', rule: { rule_id: 'posts', limit: -1 } }], reason: 'x' },
      'changes[0].rule.limit',
      '',
    ],
    [
      'an unknown metric',
      { ...HALVED, guard: { newly_denyed: {} } },
      'guard.newly_denyed',
      'unknown field; did you mean "newly_denied"?',
    ],
    ['an unknown threshold', { ...HALVED, guard: { errors: { share: 1 } } }, 'guard.errors.share', ''],
    ['an unknown action', { ...HALVED, guard: { p99: { on: 'explode' } } }, 'guard.p99.on', 'use revert or pause'],
    ['no steps', { ...HALVED, steps: [] }, 'steps', 'give a list of 1 to 20 steps'],
    ['an unknown step', { ...HALVED, steps: [{ shadow: '1m', dark: '1m' }] }, 'steps[0].dark', 'remove it'],
    [
      'a share of 0',
      { ...HALVED, steps: [{ canary: '0%' }] },
      'steps[0].canary',
      'give a share of keys above 0% and up to 100%, such as "1%"',
    ],
    [
      'a smaller share later',
      { ...HALVED, steps: [{ canary: '9%' }, { canary: '3%' }] },
      'steps[1].canary',
      'give at least the share before it',
    ],
    [
      'shadow after canary',
      { ...HALVED, steps: [{ canary: '9%' }, { shadow: '3m' }] },
      'steps[1]',
      'put shadow steps before canary steps',
    ],
    [
      'a time without unit',
      { ...HALVED, steps: [{ canary: '9%', for: '10' }] },
      'steps[0].for',
      'give a whole number and a unit, s, m, h or d, such as 10m',
    ],
    [
      'a canary of a global rule',
      { changes: [{ op: 'update', rule: { rule_id: 'all', limit: 9 } }], reason: 'x', steps: [{ canary: '1%' }] },
      'steps',
      'remove the canary steps: rule all has one bucket for all clients: use shadow steps',
    ],
  ]

  test('mistakes are named, with a fix', async () => {
    const { app } = await opened()
    for (const [name, body, field, fix] of invalid) {
      const answer: Answer = await propose(app, body)
      expect(answer.status, name).toBe(400)
      expect(answer.body.errors, name).toMatchObject([{ field, ...(fix === '' ? {} : { fix }) }])
    }
    expect((await propose(app, { ...HALVED, changes: [{ op: 'create', rule: RULE }] })).body).toMatchObject({
      code: 'RULE_EXISTS',
    })
    expect(
      (await propose(app, { ...HALVED, changes: [{ op: 'delete', rule: { rule_id: 'no' } }] })).body,
    ).toMatchObject({ code: 'RULE_UNKNOWN' })
    expect((await propose(app, { ...HALVED, base_version: 1 })).body).toMatchObject({
      status: 412,
      code: 'VERSION_CONFLICT',
    })
  })

  test('a global rule gets shadow steps by default, other rules shadow and canary', async () => {
    const { app } = await opened()
    const stepsOf = async (body: object) => (await show(app, (await propose(app, body)).body.proposal_id)).body.steps
    expect(await stepsOf(HALVED)).toEqual([
      { shadow: '10m', max: '40m' },
      ...['1%', '10%', '50%'].map((canary) => ({ canary, for: '10m', max: '40m' })),
    ])
    expect(await stepsOf({ changes: [{ op: 'update', rule: { rule_id: 'all', limit: 9 } }], reason: 'x' })).toEqual([
      { shadow: '30m', max: '2h' },
    ])
  })
})

test('with rules from a file, proposals answer 409', async () => {
  const app = await serveApp([RULE])
  for (const answer of [
    await app.post(PROPOSALS_PATH, HALVED, ADMIN_TOKEN),
    await app.get(PROPOSALS_PATH, ADMIN_TOKEN),
    await app.post(`${PROPOSALS_PATH}/prop_1/start`, {}, ADMIN_TOKEN),
  ])
    expect(answer.body).toMatchObject({ status: 409, code: 'RULES_FROM_FILE' })
})
