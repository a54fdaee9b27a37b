// Attempts to get a change past approval, freeze, ban and expiry, on two nodes with PostgreSQL and Redis.

import { startRedis } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import type { Role } from '../../src/access/roles.ts'
import { createToken } from '../../src/access/token-table.ts'
import type { Database } from '../../src/db/database.ts'
import { openDatabase } from '../../src/db/open-database.ts'
import { BYPASS_PATH } from '../../src/http/routes/bypass-tokens.ts'
import { INCIDENT_PATH } from '../../src/http/routes/incident.ts'
import { OVERRIDES_PATH } from '../../src/http/routes/overrides.ts'
import { SIGNALS_PATH } from '../../src/http/routes/signals.ts'
import { PROPOSALS_PATH } from '../../src/rollouts/edit-hooks.ts'
import { usePostgres } from '../databases.ts'
import { type Answer, BATCH, type Client, clientOf, RULES } from '../service.ts'
import { createRule, type FleetNode, startNode } from './fleet.ts'

const TOKENS = '/api/v1/admin/tokens'
const RULE = { rule_id: 'posts', endpoint_pattern: '/posts', scope: 'per_user', limit: 100, window_seconds: 60 }
const LOGIN = {
  ...{ rule_id: 'login', endpoint_pattern: '/login', scope: 'per_user', limit: 10, window_seconds: 60 },
  on_signal: { abuse: { factor: 0.1 } },
}
const CHANGE = { changes: [{ op: 'update', rule: { rule_id: 'posts', limit: 50 } }], reason: 'x', guard: 'off' }

describe('with --approvals 1', () => {
  const postgres = usePostgres()
  let [one, other]: Client[] = []
  let secrets: Readonly<Record<'author' | 'approver' | 'second' | 'admin', string>>
  const closing: (() => void | Promise<void>)[] = []
  afterAll(async () => {
    for (const close of closing.reverse()) await close()
  })

  const via = (node: Client | undefined, path: string, body: object, token?: string): Promise<Answer> => {
    if (node === undefined) throw new Error('not started')
    return node.post(path, body, token)
  }
  let database: Database
  /** As the host does, or with the admin token of `by` before changes needed approval. */
  const create = async (name: string, role: Role, by = 'command') => {
    const made = await createToken(database, { name, role, expiresAt: null }, by, new Date())
    return { secret: made?.secret ?? '', id: made?.token.tokenId ?? '' }
  }
  let ids: Readonly<Record<keyof typeof secrets, string>>
  /** The other node knows a new token a moment later. */
  const known = (secret: string) =>
    vi.waitFor(async () => expect((await other?.get(RULES, secret))?.status).toBe(200), 10_000)

  beforeAll(async () => {
    const redis = await startRedis()
    closing.push(() => redis.stop())
    const shared = { database: postgres().createDatabase(), redis: redis.url }
    database = await openDatabase({ database: shared.database, dataDir: '' })
    closing.push(() => database.close())
    const nodes: FleetNode[] = []
    for (const _ of [1, 2]) nodes.push(await startNode(shared, undefined, (close) => closing.push(close)))
    for (const rule of [RULE, LOGIN]) await createRule(nodes[0] as FleetNode, nodes, rule)
    // Raises the number of approvals for all nodes.
    nodes.push(await startNode({ ...shared, approvals: 1 }, undefined, (close) => closing.push(close)))
    ;[one, other] = nodes.map(({ address }) => clientOf(address))
    const made = {
      author: await create('author', 'editor'),
      approver: await create('approver', 'approver'),
      second: await create('second', 'approver'),
      admin: await create('admin', 'admin'),
    }
    secrets = Object.fromEntries(Object.entries(made).map(([name, { secret }]) => [name, secret])) as typeof secrets
    ids = Object.fromEntries(Object.entries(made).map(([name, { id }]) => [name, id])) as typeof ids
    for (const { secret } of Object.values(made)) await known(secret)
  }, 120_000)

  let proposed = 0
  const propose = async (token: string, body: object = CHANGE) => {
    proposed += 1
    const reason = `proposal ${proposed}` // equal ones would count as repeated
    const { body: made } = await via(one, PROPOSALS_PATH, { ...body, reason }, token)
    expect(made.state).toBe('draft')
    return `${PROPOSALS_PATH}/${made.proposal_id}`
  }

  test('an author cannot approve with a token that they created, or a newer one', async () => {
    const helper = await create('helper', 'admin', ids.admin)
    const grandchild = await create('grandchild', 'approver', helper.id)
    for (const { secret } of [helper, grandchild]) await known(secret)
    const path = await propose(secrets.admin)
    const newer = await create('newer', 'approver')
    await known(newer.secret)
    for (const token of [secrets.admin, helper.secret, grandchild.secret, newer.secret]) {
      for (const node of [one, other]) expect((await via(node, `${path}/approve`, {}, token)).status).toBe(403)
    }
    expect((await via(other, `${path}/start`, {}, secrets.admin)).status).toBe(409)
    expect((await via(one, `${path}/promote`, {}, secrets.admin)).status).toBe(409)
    expect((await via(other, `${path}/approve`, { start: false }, secrets.approver)).body.state).toBe('approved')
    expect((await via(one, `${path}/abort`, {}, secrets.admin)).body.state).toBe('cancelled')
    // A retry needs new approvals.
    expect((await via(one, `${path}/start`, {}, secrets.admin)).body.state).toBe('draft')
    expect((await via(one, `${path}/start`, {}, secrets.admin)).status).toBe(409)
    await via(one, `${path}/reject`, {}, secrets.admin)
  })

  test('approvals and starts that race count once, and one rollout per rule starts', async () => {
    const paths = [await propose(secrets.author), await propose(secrets.author)]
    const approvers = [secrets.approver, secrets.second, secrets.approver]
    const approvals = paths.flatMap((path) =>
      approvers.map((token, index) => via([one, other][index % 2], `${path}/approve`, { start: false }, token)),
    )
    for (const { status } of await Promise.all(approvals)) expect([200, 409]).toContain(status)
    const starts = paths.flatMap((path) =>
      [one, other, one, other].map((node) => via(node, `${path}/start`, {}, secrets.author)),
    )
    const started = (await Promise.all(starts)).filter(({ status }) => status === 200)
    expect(started).toHaveLength(1)
    for (const path of paths) await via(one, `${path}/abort`, {}, secrets.approver)
  })

  test('a freeze stops the start, the resume and the promotion of an approved proposal', async () => {
    const path = await propose(secrets.author)
    await via(one, `${path}/approve`, { start: false }, secrets.approver)
    const freeze = (verb: string) => via(one, `${INCIDENT_PATH}/${verb}`, { reason: 'x' }, secrets.approver)
    const expectFrozen = async (verb: string) => {
      const { status, body } = await via(other, `${path}/${verb}`, {}, secrets.admin)
      expect([status, body.code]).toEqual([409, 'FROZEN'])
    }
    await freeze('freeze')
    await expectFrozen('start')
    await freeze('unfreeze')
    expect((await via(other, `${path}/start`, {}, secrets.author)).body.state).toBe('rolling_out')
    await via(other, `${path}/pause`, {}, secrets.author)
    await freeze('freeze')
    await expectFrozen('start')
    await expectFrozen('promote')
    expect((await via(other, `${path}/abort`, {}, secrets.author)).body.state).toBe('rolled_back')
    await freeze('unfreeze')
  })

  test('an admin alone gets no second token that changes rules or approves', async () => {
    for (const role of ['editor', 'approver', 'admin']) {
      const { status, body } = await via(one, TOKENS, { name: 'accomplice', role }, secrets.admin)
      expect([role, status, body.state]).toEqual([role, 201, 'pending'])
      for (const node of [one, other]) expect((await node?.get(RULES, String(body.token)))?.status).toBe(401)
      const approve = `${TOKENS}/${body.token_id}/approve`
      const helper = await create(`helper of the admin, before ${role}`, 'approver', ids.admin)
      await known(helper.secret)
      for (const token of [secrets.admin, helper.secret, String(body.token)])
        expect([401, 403]).toContain((await via(other, approve, {}, token)).status)
    }
    // The accomplice that others approved is still related to the admin who made it, and to its siblings.
    const { body } = await via(one, TOKENS, { name: 'accomplice', role: 'approver' }, secrets.admin)
    const approved = await via(other, `${TOKENS}/${body.token_id}/approve`, {}, secrets.second)
    expect(approved.body).toMatchObject({ state: 'active', approvals: 1 })
    await known(String(body.token))
    const sibling = await create('sibling', 'editor', ids.admin)
    await known(sibling.secret)
    for (const author of [secrets.admin, sibling.secret]) {
      const path = await propose(author)
      const { status, body: refused } = await via(one, `${path}/approve`, {}, String(body.token))
      expect([status, refused.code]).toEqual([403, 'APPROVAL_FORBIDDEN'])
      expect(refused.detail).toMatch(author === secrets.admin ? /created the other/ : /both come from tok_/)
      await via(one, `${path}/abort`, {}, secrets.author)
    }
  })

  const override = (body: object, token = secrets.admin) =>
    via(one, OVERRIDES_PATH, { key: 'ann', rule_id: 'posts', expires_in: '1h', reason: 'x', ...body }, token)
  const limitOf = async (user: string) =>
    (await via(other, '/api/v1/rate-limit/check', { client_id: user, endpoint: '/posts', dry_run: true })).body.limit

  test('every way to loosen a limit waits for another person', async () => {
    for (const effect of [{ limit: 101 }, { factor: 1.01 }, { exempt: true }]) {
      const { body } = await override(effect)
      expect([effect, body.state]).toEqual([effect, 'pending'])
      const path = `${OVERRIDES_PATH}/${body.override_id}/approve`
      expect((await via(other, path, {}, secrets.admin)).status).toBe(403)
    }
    // 50 is above the limit of login, a rule that the override applies to as well.
    expect((await override({ rule_id: undefined, key: 'user:ann', limit: 50 })).body.state).toBe('pending')
    const bypass = { name: 'x', expires_in: '1h', limit_per_minute: 5 }
    expect((await via(one, BYPASS_PATH, bypass, secrets.admin)).body.state).toBe('pending')
    const factor = { factor: 1.01, expires_in: '1h', reason: 'x' }
    expect((await via(one, `${INCIDENT_PATH}/factor`, factor, secrets.admin)).body.factor).toBeNull()
    expect((await via(one, RULES, { ...RULE, rule_id: 'new' }, secrets.admin)).status).toBe(409)
    expect(await limitOf('ann')).toBe(100)
  })

  test('a pending override that is approved twice at once replaces the earlier one once', async () => {
    const { body } = await override({ key: 'bob', limit: 500 }, secrets.author)
    const path = `${OVERRIDES_PATH}/${body.override_id}/approve`
    const tokens = [secrets.approver, secrets.second]
    const answers = await Promise.all(tokens.map((token, index) => via([one, other][index], path, {}, token)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409])
    await vi.waitFor(async () => expect(await limitOf('bob')).toBe(500), 10_000)
  })

  test('a bypass token never lifts a ban, and does nothing while pending or revoked', async () => {
    const { body } = await via(one, BYPASS_PATH, { name: 'y', expires_in: '1h', limit_per_minute: 50 }, secrets.second)
    const check = async (client_id: string) => {
      const checks = [{ client_id, endpoint: '/posts', bypass_token: body.token }]
      const { results } = (await via(other, BATCH, { checks })).body as { results: Record<string, unknown>[] }
      return results[0]
    }
    expect(await check('cid')).toMatchObject({ allowed: true, limit: 100 }) // pending: ignored
    const approved = await via(other, `${BYPASS_PATH}/${body.bypass_id}/approve`, {}, secrets.approver)
    expect(approved.body).toMatchObject({ state: 'active' })
    await vi.waitFor(async () => expect(await check('cid')).toMatchObject({ allowed: true, limit: null }), 10_000)
    expect((await override({ rule_id: undefined, key: 'user:eve', ban: true })).body.state).toBe('active')
    await vi.waitFor(async () => expect(await check('eve')).toMatchObject({ allowed: false }), 10_000)
    await one?.send(`${BYPASS_PATH}/${body.bypass_id}`, {
      ...{ method: 'DELETE', headers: { authorization: `Bearer ${secrets.approver}` } },
    })
    await vi.waitFor(async () => expect(await check('cid')).toMatchObject({ allowed: true, limit: 100 }), 10_000)
  })

  test.each([
    ['user:eve', 'user:eve'],
    ['ip:2001:DB8:0:0::1', 'ip:2001:db8::ffff'],
    ['ip:::ffff:203.0.113.9', 'ip:203.0.113.9'],
  ])('a ban of %s is a ban of %s, however the address is written', async (banned, requested) => {
    await override({ rule_id: undefined, key: banned, ban: { status: 403 } })
    const [fact, ...rest] = requested.split(':')
    const subject = fact === 'ip' ? { ip_address: rest.join(':') } : { client_id: rest.join(':') }
    await vi.waitFor(async () => {
      const { body } = await via(other, '/api/v1/rate-limit/check', { ...subject, endpoint: '/posts' })
      expect(body).toMatchObject({ allowed: false, status: 403 })
    }, 10_000)
  })

  test('a signal always ends, and repeats do not add up their times', async () => {
    const signal = { key: 'user:fay', kind: 'abuse', severity: 'high' }
    const send = (ttl_seconds: unknown) => via(one, SIGNALS_PATH, { ...signal, ttl_seconds }, secrets.admin)
    for (const ttl of [undefined, null, 0, -1, 1e12, 'forever', Number.MAX_SAFE_INTEGER])
      expect((await send(ttl)).status).toBe(400)
    const first = String((await send(600)).body.expires_at)
    let last = ''
    for (let sent = 0; sent < 20; sent += 1) last = String((await send(600)).body.expires_at)
    expect(Date.parse(last) - Date.parse(first)).toBeLessThan(600_000) // added up: 12,000 s
  })
})
