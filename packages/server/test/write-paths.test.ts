// Every row of the table of write paths, over HTTP and from the command line, with and without a freeze and approvals.

import { readFileSync, writeFileSync } from 'node:fs'
import { type EtcdProcess, startEtcd } from 'sluice/testing'
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { createToken } from '../src/access/token-table.ts'
import { setApprovals } from '../src/approvals/required-approvals.ts'
import { COMMANDS } from '../src/cli/commands.ts'
import type { Database } from '../src/db/database.ts'
import { openDatabase } from '../src/db/open-database.ts'
import { demoRules } from '../src/demo/demo-requests.ts'
import { ProblemError } from '../src/problems/problem.ts'
import { ProposalStore } from '../src/rollouts/proposal-store.ts'
import { setFreeze } from '../src/rules/freeze.ts'
import { RuleStore } from '../src/rules/rule-store.ts'
import { WRITE_PATHS, type WritePathName } from '../src/rules/write-paths.ts'
import { sluice } from './cli/terminal.ts'
import { temporaryFolder, usePostgres } from './databases.ts'
import {
  ADMIN_TOKEN,
  type Answer,
  type App,
  type Client,
  ruleFile,
  serveDatabase,
  serveFile,
  serveSettings,
} from './service.ts'

const AT = new Date('2026-01-01T00:00:00Z')
const API = '/api/v1/rate-limit'
const RULE = { rule_id: 'posts', scope: 'per_user', limit: 100, window_seconds: 60 }
const PAGE = '../../../docs/reference/write-paths.md'

/** Commands that change neither rules nor exceptions nor tokens, except through a path of the server that they run. */
const OTHER_COMMANDS: readonly string[] = [
  ...['', 'gateway', 'check', 'explain', 'grpc list', 'grpc check', 'grpc health', 'rules lint', 'rules simulate'],
  ...['rules plan', 'rules list', 'rules show', 'rules diff', 'rules history', 'rules export', 'kill-switch status'],
  ...['overrides list', 'bypass list', 'signals list', 'incident status', 'violations', 'hot-keys', 'fleet'],
  ...['token list', 'audit list', 'audit verify', 'events tail', 'events top', 'events query', 'events consume'],
  ...['envoy lint', 'doctor', 'completion', 'serve'],
]

const postgres = usePostgres()

type Node = {
  readonly app: App
  readonly database: Database
  readonly url: string
  /** Tokens that are not related. */
  readonly author: string
  readonly approver: string
}

/** Outcome of a write: took effect, waits for approval, or the code of the refusal. */
type Outcome = string

/** `prepare` runs without freeze and approvals; its result goes to `act`. */
type Case = {
  readonly prepare?: (node: Node) => Promise<string>
  readonly act: (node: Node, prepared: string) => Promise<Outcome>
}

let count = 0
const next = () => {
  count += 1
  return count
}
const unique = () => `n${next()}`

const outcomeOf = ({ status, body }: Answer): Outcome => {
  if (status >= 300) return String(body.code)
  const isPending = body.state === 'pending' || body.state === 'draft' || body.pending_factor != null
  return isPending ? 'waits' : 'works'
}

const http =
  (
    method: string,
    path: string | ((prepared: string) => string),
    body?: (prepared: string) => object,
    who = 'author',
  ) =>
  async (node: Node, prepared: string): Promise<Outcome> => {
    const token = who === 'author' ? node.author : node.approver
    const headers = { authorization: `Bearer ${token}`, ...(body && { 'content-type': 'application/json' }) }
    const url = typeof path === 'string' ? path : path(prepared)
    return outcomeOf(
      await node.app.send(url, { method, headers, ...(body && { body: JSON.stringify(body(prepared)) }) }),
    )
  }

/** A refusal is the code that the command prints. */
const cli =
  (args: (prepared: string, node: Node) => readonly string[]) =>
  async (node: Node, prepared: string): Promise<Outcome> => {
    const env = { SLUICE_URL: node.app.address, SLUICE_TOKEN: node.author }
    const { code, out, told } = await sluice(args(prepared, node), { env })
    const refused = /\b(APPROVAL_REQUIRED|APPROVAL_FORBIDDEN|FROZEN|[A-Z]+_[A-Z]+)\b/.exec(told)?.[0]
    if (code !== 0) return refused ?? told
    return /pending|waits for approval|waiting for approval|needs \d+ approval/.test(out + told) ? 'waits' : 'works'
  }

const createdId = async (answer: Promise<Answer>, field: string) => {
  const { status, body } = await answer
  expect([status, body]).toEqual([expect.any(Number), expect.objectContaining({ [field]: expect.any(String) })])
  return String(body[field])
}
const patch = ({ app, author }: Node, limit: number) =>
  app.send(`${API}/rules/posts?guard=off&reason=x`, {
    ...{ method: 'PATCH', headers: { authorization: `Bearer ${author}`, 'content-type': 'application/json' } },
    body: JSON.stringify({ limit }),
  })
const versionOf = async ({ app }: Node) => Number((await app.get(`${API}/rule-set?format=json`)).body.version)
/** Three versions; returns the active one. */
const versions = async (node: Node) => {
  for (const more of [1, 2, 3]) await patch(node, 100 + 10 * next() + more)
  return String(await versionOf(node))
}
const rolledBack = async (node: Node) => {
  const active = Number(await versions(node))
  await node.app.post(`${API}/rule-set/rollback`, { version: active - 1 }, node.author)
  return String(active)
}
const proposed = async ({ app, author }: Node) => {
  const changes = [{ op: 'update', rule: { rule_id: 'posts', limit: 5000 + next() } }]
  const body = { changes, steps: [{ shadow: true }], guard: 'off', reason: unique() }
  return createdId(app.post(`${API}/proposals`, body, author), 'proposal_id')
}
const rollingOut = async (node: Node) => {
  const id = await proposed(node)
  await node.app.post(`${API}/proposals/${id}/start`, {}, node.author)
  return id
}
const moving = (verb: string, who = 'author') =>
  http(
    'POST',
    (id) => `${API}/proposals/${id}/${verb}`,
    () => ({}),
    who,
  )
const byGuard =
  (type: 'advance' | 'revert') =>
  async ({ database }: Node, id: string) => {
    const store = new ProposalStore(database, { moved: () => {}, refresh: async () => {} })
    const { proposal } = await store.show(id)
    const moved = await store.moveIfUnchanged(id, proposal.revision, { type }, { actor: 'guard', reason: 'x' })
    return moved === undefined ? 'FROZEN' : 'works'
  }
const edited =
  (path: WritePathName) =>
  async ({ database }: Node) => {
    const author = { actor: 'sluice', reason: 'x' }
    const edit = { action: 'rules.import', ruleIds: ['none'], next: async () => [] }
    return new RuleStore(database).edit(edit, { author, path }).then(
      () => 'works',
      (error: unknown) => (error instanceof ProblemError ? error.problem.code : String(error)),
    )
  }
const override = (effect: object) =>
  http('POST', `${API}/overrides`, () => ({ key: `user:${unique()}`, reason: 'x', expires_in: '1h', ...effect }))
const overridden = async ({ app, author }: Node) => {
  const body = { key: `user:${unique()}`, ban: true, reason: 'x', expires_in: '1h' }
  return createdId(app.post(`${API}/overrides`, body, author), 'override_id')
}
const bypassed = async ({ app, author }: Node) =>
  createdId(app.post(`${API}/bypass-tokens`, { name: 'x', expires_in: '1h', limit_per_minute: 5 }, author), 'bypass_id')
/** Changes that already wait: approving them needs approvals to be required while they are made. */
const pending = (make: (node: Node) => Promise<string>) => async (node: Node) => {
  await setApprovals(node.database, 1, 'command', AT)
  const id = await make(node)
  await setApprovals(node.database, 0, 'command', AT)
  return id
}
const factor = (value: number) =>
  http('POST', `${API}/incident/factor`, () => ({ factor: value, expires_in: '1h', reason: 'x' }))
const pendingFactor = pending(async ({ app, author }) => {
  const { body } = await app.post(`${API}/incident/factor`, { factor: 2, expires_in: '1h', reason: 'x' }, author)
  return (body.pending_factor as { factor_id: string }).factor_id
})
const TOKENS = '/api/v1/admin/tokens'
const token = (role: string) => http('POST', TOKENS, () => ({ name: unique(), role }))
const tokened = ({ app, author }: Node) =>
  createdId(app.post(TOKENS, { name: unique(), role: 'editor' }, author), 'token_id')
const file = () => ruleFile(`rules: [{ rule_id: posts, scope: per_user, limit: ${next()}, window_seconds: 60 }]`)

/** A row without cases does not compile. A command that proposes instead of refusing has the outcome of a proposal. */
const CASES: Readonly<Record<WritePathName, Readonly<Record<string, Case>>>> = {
  'rules.edit': {
    create: { act: http('POST', `${API}/rules`, () => ({ ...RULE, rule_id: unique(), limit: 1 })) },
    replace: { act: http('PUT', `${API}/rules/posts`, () => ({ ...RULE, limit: 7000 + next() })) },
    patch: { act: http('PATCH', `${API}/rules/posts`, () => ({ limit: 8000 + next() })) },
    delete: {
      prepare: ({ app, author }) =>
        createdId(app.post(`${API}/rules`, { ...RULE, rule_id: unique() }, author), 'rule_id'),
      act: http('DELETE', (id) => `${API}/rules/${id}`),
    },
    import: { act: http('PUT', `${API}/rule-set`, () => ({ rules: [{ ...RULE, limit: 9000 + next() }] })) },
  },
  'rules.undo': {
    rollback: {
      prepare: versions,
      act: http('POST', `${API}/rule-set/rollback`, (active) => ({ version: Number(active) - 1 })),
    },
    'rules rollback': {
      prepare: versions,
      act: cli((active) => ['rules', 'rollback', String(Number(active) - 1), '--yes', '--reason', 'x']),
    },
  },
  'rules.restore': {
    rollback: {
      prepare: versions,
      act: http('POST', `${API}/rule-set/rollback`, (active) => ({ version: Number(active) - 2 })),
    },
    'rules rollback': {
      prepare: versions,
      act: cli((active) => ['rules', 'rollback', String(Number(active) - 2), '--yes']),
    },
  },
  'rules.reactivate': {
    rollback: {
      prepare: rolledBack,
      act: http('POST', `${API}/rule-set/rollback`, (active) => ({ version: Number(active) })),
    },
    'rules rollback': { prepare: rolledBack, act: cli((active) => ['rules', 'rollback', active, '--yes']) },
  },
  'rules.seed': { 'first start': { act: edited('rules.seed') } },
  'demo.start': { start: { act: http('POST', '/api/v1/demo', () => ({ seconds: 10 })) } },
  'demo.stop': {
    stop: {
      prepare: async ({ app, author }) => {
        for (const rule of demoRules('2040-01-01T00:00:00Z')) await app.post(`${API}/rules`, rule, author)
        return ''
      },
      act: http('DELETE', '/api/v1/demo'),
    },
  },
  'demo.clean': { clean: { act: edited('demo.clean') } },
  'proposal.create': {
    create: { act: async (node) => proposed(node).then(() => 'works') },
    'rules propose': {
      act: async (node) => {
        const args = () => ['rules', 'propose', file(), '--reason', unique(), '--no-start']
        const outcome = await cli(args)(node, '')
        return outcome === 'waits' ? 'works' : outcome // the proposal waits, not its creation
      },
    },
  },
  'proposal.approve': {
    approve: { prepare: pending(proposed), act: moving('approve', 'approver') },
    reject: { prepare: proposed, act: moving('reject', 'approver') },
  },
  'proposal.start': {
    start: {
      act: async (node) => {
        const answer = await node.app.post(`${API}/proposals/${await proposed(node)}/start`, {}, node.author)
        return String(answer.body.detail).includes('waits for approval') ? 'waits' : outcomeOf(answer)
      },
    },
  },
  'proposal.promote': {
    promote: { prepare: rollingOut, act: moving('promote') },
    'rules rollout promote': { prepare: rollingOut, act: cli((id) => ['rules', 'rollout', 'promote', id]) },
  },
  'proposal.advance': { guard: { prepare: rollingOut, act: byGuard('advance') } },
  'proposal.abort': {
    abort: { prepare: rollingOut, act: moving('abort') },
    pause: { prepare: rollingOut, act: moving('pause') },
  },
  'proposal.revert': { guard: { prepare: rollingOut, act: byGuard('revert') } },
  'override.loosen': {
    limit: { act: override({ rule_id: 'posts', key: 'ann', limit: 999_999_999 }) },
    factor: { act: override({ factor: 1000 }) },
    exempt: { act: override({ exempt: true, expires_in: undefined, forever: true }) },
    'overrides set': {
      act: cli(() => [
        'overrides',
        'set',
        `user:${unique()}`,
        '--exempt',
        '--expires-in',
        '1h',
        '--reason',
        'x',
        '--yes',
      ]),
    },
  },
  'override.tighten': {
    limit: { act: override({ rule_id: 'posts', key: 'ann', limit: 1 }) },
    ban: { act: override({ ban: true }) },
    'overrides set': {
      act: cli(() => ['overrides', 'set', `user:${unique()}`, '--ban', '--expires-in', '1h', '--reason', 'x', '--yes']),
    },
  },
  'override.approve': {
    approve: {
      prepare: pending(({ app, author }) => {
        const body = { key: `user:${unique()}`, exempt: true, reason: 'x', expires_in: '1h' }
        return createdId(app.post(`${API}/overrides`, body, author), 'override_id')
      }),
      act: http(
        'POST',
        (id) => `${API}/overrides/${id}/approve`,
        () => ({}),
        'approver',
      ),
    },
  },
  'override.remove': {
    remove: { prepare: overridden, act: http('DELETE', (id) => `${API}/overrides/${id}`) },
    'overrides remove': { prepare: overridden, act: cli((id) => ['overrides', 'remove', id, '--yes']) },
  },
  'bypass.create': {
    create: { act: http('POST', `${API}/bypass-tokens`, () => ({ name: 'x', expires_in: '1h', limit_per_minute: 5 })) },
    'bypass create': {
      act: cli(() => ['bypass', 'create', 'x', '--expires-in', '1h', '--limit-per-minute', '5']),
    },
  },
  'bypass.approve': {
    approve: {
      prepare: pending(bypassed),
      act: http(
        'POST',
        (id) => `${API}/bypass-tokens/${id}/approve`,
        () => ({}),
        'approver',
      ),
    },
  },
  'bypass.rotate': {
    rotate: {
      prepare: bypassed,
      act: http(
        'POST',
        (id) => `${API}/bypass-tokens/${id}/rotate`,
        () => ({}),
      ),
    },
  },
  'bypass.rotate_other': {
    rotate: {
      prepare: bypassed,
      act: http(
        'POST',
        (id) => `${API}/bypass-tokens/${id}/rotate`,
        () => ({}),
        'approver',
      ),
    },
  },
  'bypass.revoke': { revoke: { prepare: bypassed, act: http('DELETE', (id) => `${API}/bypass-tokens/${id}`) } },
  'factor.loosen': {
    set: { act: factor(1000) },
    'incident factor': {
      act: cli(() => ['incident', 'factor', '2', '--expires-in', '1h', '--reason', 'x', '--yes']),
    },
  },
  'factor.tighten': {
    set: { prepare: async (node) => factor(0.9)(node, ''), act: factor(0.5) },
    'incident factor': {
      act: cli(() => ['incident', 'factor', '0.5', '--expires-in', '1h', '--reason', 'x', '--yes']),
    },
  },
  'factor.approve': {
    approve: {
      prepare: pendingFactor,
      act: http('POST', `${API}/incident/factor/approve`, (id) => ({ factor_id: id }), 'approver'),
    },
  },
  'factor.end': {
    end: { prepare: async (node) => factor(0.5)(node, ''), act: http('DELETE', `${API}/incident/factor`) },
  },
  'signal.send': {
    send: {
      act: http('POST', `${API}/signals`, () => ({
        key: `user:${unique()}`,
        kind: 'abuse',
        severity: 'high',
        ttl_seconds: 60,
      })),
    },
  },
  'signal.remove': {
    remove: {
      prepare: ({ app, author }) => {
        const body = { key: `user:${unique()}`, kind: 'abuse', severity: 'high', ttl_seconds: 600 }
        return createdId(app.post(`${API}/signals`, body, author), 'signal_id')
      },
      act: http('DELETE', (id) => `${API}/signals/${id}`),
    },
  },
  'kill_switch.disable': {
    disable: { act: http('POST', `${API}/kill-switch`, () => ({ rule_id: 'posts', on: true })) },
    'kill-switch disable': { act: cli(() => ['kill-switch', 'disable', 'posts', '--yes']) },
  },
  'kill_switch.enable': {
    enable: {
      prepare: async ({ app, author }) =>
        outcomeOf(await app.post(`${API}/kill-switch`, { rule_id: 'posts', on: true }, author)),
      act: http('POST', `${API}/kill-switch`, () => ({ rule_id: 'posts', on: false })),
    },
  },
  'bucket.reset': {
    reset: { act: http('POST', `${API}/buckets/reset`, () => ({ rule_id: 'posts', key: 'ann' })) },
    'reset command': { act: cli(() => ['reset', 'posts', 'ann', '--yes']) },
  },
  'drill.start': {
    drill: {
      // The store of the test is in memory: the route is admitted, and finds nothing to drill.
      act: async (node) => {
        const outcome = await http('POST', '/api/v1/admin/drill', () => ({ seconds: 0 }))(node, '')
        return outcome === 'NOTHING_TO_DRILL' ? 'works' : outcome
      },
    },
  },
  'incident.freeze': {
    'freeze and unfreeze': {
      act: async (node) => {
        const isFrozen = (await node.app.get(`${API}/incident`)).body.frozen === true
        const verbs = isFrozen ? ['unfreeze', 'freeze'] : ['freeze', 'unfreeze']
        const outcomes: Outcome[] = []
        for (const verb of verbs)
          outcomes.push(await http('POST', `${API}/incident/${verb}`, () => ({ reason: 'x' }))(node, ''))
        return outcomes.find((outcome) => outcome !== 'works') ?? 'works'
      },
    },
  },
  'token.create': {
    ...Object.fromEntries(['editor', 'approver', 'admin'].map((role) => [role, { act: token(role) }])),
    'token create': { act: cli(() => ['token', 'create', unique(), '--role', 'editor']) },
  },
  'token.create_reader': {
    viewer: { act: token('viewer') },
    check: { act: token('check') },
    'token create': { act: cli(() => ['token', 'create', unique()]) },
  },
  'token.create_on_host': {
    'token create --database': {
      act: cli((_, { url }) => ['token', 'create', unique(), '--role', 'admin', '--database', url]),
    },
  },
  'token.approve': {
    approve: {
      prepare: pending(tokened),
      act: http(
        'POST',
        (id) => `${TOKENS}/${id}/approve`,
        () => ({}),
        'approver',
      ),
    },
    'token approve': {
      prepare: pending(tokened),
      act: async (node, id) => cli(() => ['token', 'approve', id])({ ...node, author: node.approver }, id),
    },
  },
  'token.revoke': {
    revoke: { prepare: tokened, act: http('DELETE', (id) => `${TOKENS}/${id}`) },
    withdraw: { prepare: pending(tokened), act: http('DELETE', (id) => `${TOKENS}/${id}`) },
  },
  'approvals.set': {
    'approvals set': {
      act: async (node) => {
        const before = (await node.app.get(`${API}/proposals`)).body.approvals_required
        return cli((_, { url }) => ['approvals', 'set', String(before), '--database', url])(node, '')
      },
    },
  },
}

const COMBINATIONS = [
  { frozen: false, approvals: 0 },
  { frozen: true, approvals: 0 },
  { frozen: false, approvals: 1 },
  { frozen: true, approvals: 1 },
] as const

type Combination = (typeof COMBINATIONS)[number]

/** Outcome according to the table. */
function expected(name: WritePathName, { frozen, approvals }: Combination): readonly Outcome[] {
  const row = WRITE_PATHS[name]
  if (approvals > 0 && row.approvals === 'refused') return ['APPROVAL_REQUIRED', 'APPROVAL_FORBIDDEN']
  if (frozen && row.frozen === 'refused') return ['FROZEN']
  return approvals > 0 && row.approvals === 'waits' ? ['waits'] : ['works']
}

describe('with rules in PostgreSQL', () => {
  const open = async (): Promise<Node> => {
    const url = postgres().createDatabase()
    const database = await openDatabase({ database: url, dataDir: temporaryFolder() })
    onTestFinished(() => database.close())
    const app = await serveDatabase(database, { guardMs: 0 })
    await app.post(`${API}/rules`, RULE, ADMIN_TOKEN)
    const create = async (name: string) => {
      const made = await createToken(database, { name, role: 'admin', expiresAt: null }, 'command', AT)
      return made?.secret ?? ''
    }
    const [author, approver] = [await create('author'), await create('approver')]
    await app.post(TOKENS, { name: 'another', role: 'check' }, ADMIN_TOKEN) // the node reads all tokens
    return { app, database, url, author, approver }
  }

  test.each(COMBINATIONS)(
    'frozen: $frozen, approvals: $approvals: each row has the outcome of the table',
    { timeout: 400_000 },
    async (given) => {
      const node = await open()
      const found: Record<string, Outcome> = {}
      const wanted: Record<string, Outcome> = {}
      for (const [name, cases] of Object.entries(CASES) as [WritePathName, Readonly<Record<string, Case>>][]) {
        for (const [title, { prepare, act }] of Object.entries(cases)) {
          const prepared = (await prepare?.(node)) ?? ''
          await setApprovals(node.database, given.approvals, 'command', AT)
          if (given.frozen) await setFreeze(node.database, { since: AT, by: 'command', reason: 'x' })
          const outcome = await act(node, prepared)
          const allowed = expected(name, given)
          found[`${name}: ${title}`] = outcome
          wanted[`${name}: ${title}`] = allowed.includes(outcome) ? outcome : allowed.join(' or ')
          await tidy(node)
        }
      }
      expect(found).toEqual(wanted)
    },
  )

  /** Ends what a case left behind, which would be in the way of the next one. */
  async function tidy({ app, database, author }: Node) {
    app.clock.advanceUs(10_000_000) // the admin API has a rate limit
    await setFreeze(database, undefined)
    await setApprovals(database, 0, 'command', AT)
    const open = "SELECT id FROM proposals WHERE state IN ('draft', 'approved', 'rolling_out')"
    for (const { id } of await database.query<{ id: string }>(open))
      await app.post(`${API}/proposals/${id}/abort`, {}, author)
    await app.post(`${API}/kill-switch`, { rule_id: 'posts', on: false }, author)
    for (const path of ['/api/v1/demo', `${API}/incident/factor`])
      await app.send(path, { method: 'DELETE', headers: { authorization: `Bearer ${author}` } })
  }
})

describe('without a database, there is neither a freeze nor an approval', () => {
  const NOT_STORED = [
    'POST /api/v1/rate-limit/kill-switch',
    'POST /api/v1/rate-limit/buckets/reset',
    'POST /api/v1/admin/drill',
  ]
  const refuses = async ({ send }: Pick<Client, 'send'>, code: string) => {
    const routes = new Set(Object.values(WRITE_PATHS).flatMap(({ routes = [] }) => routes))
    for (const route of routes) {
      if (NOT_STORED.includes(route)) continue
      const [method = '', path = ''] = route.split(' ')
      const url = path.replace(/:rule_id/, 'posts').replaceAll(/:\w+_id/g, 'id_0')
      const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }
      const body = method === 'DELETE' ? {} : { body: JSON.stringify(BODIES[route] ?? {}) }
      const { authorization } = headers
      const answer = await send(url, { method, headers: method === 'DELETE' ? { authorization } : headers, ...body })
      expect([route, answer.status, answer.body.code]).toEqual([route, 409, expect.stringMatching(code)])
    }
  }
  const BODIES: Readonly<Record<string, object>> = {
    [`POST ${API}/rules`]: RULE,
    [`PUT ${API}/rules/:rule_id`]: RULE,
    [`PUT ${API}/rule-set`]: { rules: [] },
    [`POST ${API}/rule-set/rollback`]: { version: 1 },
    [`POST ${API}/overrides`]: { key: 'user:ann', ban: true, forever: true, reason: 'x' },
    [`POST ${API}/bypass-tokens`]: { name: 'x', expires_in: '1h', limit_per_minute: 5 },
    [`POST ${API}/incident/freeze`]: { reason: 'x' },
    [`POST ${API}/incident/factor`]: { factor: 1, expires_in: '1h', reason: 'x' },
    [`POST ${API}/incident/factor/approve`]: { factor_id: 'fac_0' },
    [`POST ${API}/signals`]: { key: 'user:ann', kind: 'abuse', severity: 'high', ttl_seconds: 60 },
    [`POST ${TOKENS}`]: { name: 'x', role: 'viewer' },
  }

  test('rules from a file: the API refuses every write, and an edit of the file applies', async () => {
    const text = (limit: number) => `rules: [{ rule_id: posts, scope: per_user, limit: ${limit}, window_seconds: 60 }]`
    const service = await serveFile(text(1))
    await refuses(service, '^(RULES_FROM_FILE|NO_DATABASE)$')
    writeFileSync(service.rulesPath, text(2))
    const limit = async () => (await service.get(`${API}/rules/posts`, ADMIN_TOKEN)).body.limit
    await expect.poll(limit, { timeout: 20_000 }).toBe(2)
  })

  describe('rules from etcd', () => {
    let etcd: EtcdProcess
    beforeAll(async () => {
      etcd = await startEtcd()
      return () => etcd.stop()
    })
    test('the API refuses every write, and an edit in etcd applies', async () => {
      const text = '{ rule_id: posts, scope: per_user, window_seconds: 60, limit: '
      const put = (limit: number) => etcd.put({ '/rules/all.yaml': `- ${text}${limit} }\n` })
      await put(1)
      const service = await serveSettings({ rules: `etcd://${etcd.host}/rules`, dataDir: temporaryFolder() })
      await refuses(service, '^(RULES_FROM_ETCD|NO_DATABASE)$')
      await put(2)
      const limit = async () => (await service.get(`${API}/rules/posts`, ADMIN_TOKEN)).body.limit
      await expect.poll(limit, { timeout: 20_000 }).toBe(2)
    })
  })
})

test('every command is in the table, or changes nothing', () => {
  const listed = Object.values(WRITE_PATHS).flatMap(({ commands = [] }) => commands)
  const names = COMMANDS.map(({ name }) => name)
  expect(names.filter((name) => !listed.includes(name) && !OTHER_COMMANDS.includes(name))).toEqual([])
  expect(listed.filter((name) => !names.includes(name))).toEqual([])
  expect(listed.filter((name) => OTHER_COMMANDS.includes(name))).toEqual([])
})

// `npx vitest run packages/server -u` writes the table into the page.
test('docs/reference/write-paths.md has the table', async () => {
  const page = readFileSync(new URL(PAGE, import.meta.url), 'utf8')
  const cell = (names: readonly string[] | undefined) => (names ?? []).map((name) => `\`${name}\``).join('<br>')
  const rows = Object.values(WRITE_PATHS).map(({ writes, routes, commands, frozen, approvals, why }) => {
    return `| ${writes} | ${cell(routes) || 'automatic'} | ${cell(commands)} | ${frozen} | ${approvals} | ${why} |`
  })
  const table = [
    '| writes | route | command | freeze | approvals | because |',
    '|---|---|---|---|---|---|',
    ...rows,
  ].join('\n')
  const current = page.replace(
    /(<!-- table -->\n)[\s\S]*?(<!-- end -->)/,
    (_, start, end) => `${start}${table}\n${end}`,
  )
  expect(current).toContain(table)
  await expect(current).toMatchFileSnapshot(PAGE)
})
