// Every kind of token at every route that approves, starts or promotes a change: only the listed ones succeed.

import { expect, onTestFinished, test } from 'vitest'
import type { Role } from '../../src/access/roles.ts'
import { createToken } from '../../src/access/token-table.ts'
import { setApprovals } from '../../src/approvals/required-approvals.ts'
import { openDatabase } from '../../src/db/open-database.ts'
import { BYPASS_PATH } from '../../src/http/routes/bypass-tokens.ts'
import { INCIDENT_PATH } from '../../src/http/routes/incident.ts'
import { OVERRIDES_PATH } from '../../src/http/routes/overrides.ts'
import { PROPOSALS_PATH } from '../../src/rollouts/edit-hooks.ts'
import { temporaryFolder, usePostgres } from '../databases.ts'
import { nodeWith } from '../exceptions/node.ts'
import { ADMIN_TOKEN } from '../service.ts'

const TOKENS = '/api/v1/admin/tokens'
const RULE = { rule_id: 'posts', scope: 'per_user', limit: 100, window_seconds: 60 }

/**
 * Role and creator of each token, older than every change. Without a creator, the host created it. `later` happens to
 * it after the change was made.
 */
const ACTORS = {
  'first admin': { role: 'admin' },
  'creator of the author': { role: 'admin', by: 'first admin' },
  author: { role: 'admin', by: 'creator of the author' },
  'sibling of the author': { role: 'approver', by: 'creator of the author' },
  'aunt of the author': { role: 'admin', by: 'first admin' },
  'cousin of the author': { role: 'approver', by: 'aunt of the author' },
  'admin of the author': { role: 'admin', by: 'author' },
  'token of the author': { role: 'approver', by: 'author' },
  'token of a token of the author': { role: 'admin', by: 'admin of the author' },
  editor: { role: 'editor' },
  viewer: { role: 'viewer' },
  newer: { role: 'approver', isNewer: true },
  revoked: { role: 'approver', later: 'revoked_at = now()' },
  expired: { role: 'approver', later: "expires_at = now() - interval '1 s'" },
  demoted: { role: 'approver', later: "role = 'viewer'" },
  'demoted to editor': { role: 'approver', later: "role = 'editor'" },
  'no token': {},
  // Keep these last: after their approval the change is made again, and `newer` would be older than it.
  'other approver': { role: 'approver' },
  'other admin': { role: 'admin' },
  'token of another admin': { role: 'approver', by: 'other admin' },
  'admin token of the settings': {},
} as const satisfies Record<string, { role?: string; by?: string; isNewer?: true; later?: string }>

type Actor = keyof typeof ACTORS
const NAMES = Object.keys(ACTORS) as Actor[]

const APPROVERS: readonly Actor[] = [
  ...(['other approver', 'other admin', 'token of another admin', 'admin token of the settings'] as const),
]
/** Every token that may edit rules may start and promote what others approved. */
const EDITORS: readonly Actor[] = [
  ...APPROVERS,
  ...([
    'first admin',
    'creator of the author',
    'author',
    'sibling of the author',
    'aunt of the author',
    'cousin of the author',
    'admin of the author',
    'token of the author',
    'token of a token of the author',
    'editor',
    'demoted to editor',
    'newer',
  ] as const),
]
const ENDED: readonly Actor[] = ['revoked', 'expired', 'demoted', 'demoted to editor']

const postgres = usePostgres()

async function started() {
  const database = await openDatabase({ database: postgres().createDatabase(), dataDir: temporaryFolder() })
  onTestFinished(() => database.close())
  const app = await nodeWith(database, [RULE])
  await setApprovals(database, 1, 'test', new Date())
  const tokens = new Map<string, { id: string; secret: string }>()
  const create = async (name: string, role: Role, by?: string) => {
    const actor = by === undefined ? 'command' : (tokens.get(by)?.id ?? '')
    const made = await createToken(database, { name, role, expiresAt: null }, actor, new Date())
    tokens.set(name, { id: made?.token.tokenId ?? '', secret: made?.secret ?? '' })
  }
  const secretOf = (name: string) => tokens.get(name)?.secret ?? (name === 'no token' ? undefined : ADMIN_TOKEN)
  for (const name of NAMES) {
    const { role, by, isNewer } = { by: undefined, isNewer: false, role: undefined, ...ACTORS[name] }
    if (role !== undefined && !isNewer) await create(name, role, by)
  }
  /** Any change of tokens makes the node read all of them again. */
  const reread = () => app.post(TOKENS, { name: 'another', role: 'viewer' }, ADMIN_TOKEN)
  await reread()
  /** Makes the newer token, and changes the others, after a change was made. */
  const later = async () => {
    await create('newer', 'approver')
    await reread()
    for (const name of ENDED) {
      const { later: change } = { later: '', ...ACTORS[name] }
      await database.query(`UPDATE api_tokens SET ${change} WHERE id = $1`, [tokens.get(name)?.id])
    }
  }
  const post = (path: string, body: object, name: string) => app.post(path, body, secretOf(name))
  return { post, later, reread }
}

type Node = Awaited<ReturnType<typeof started>>
/** `approve`: body of the approval, if it is another one. */
type Thing = { readonly path: string; readonly body: object; readonly approve?: object }

let proposed = 0

async function propose({ post }: Node): Promise<Thing> {
  const changes = [{ op: 'update', rule: { rule_id: 'posts', limit: 50 } }]
  const steps = [{ shadow: true }, { canary: '10%' }]
  proposed += 1
  const reason = `proposal ${proposed}` // equal ones would count as repeated
  const { body } = await post(PROPOSALS_PATH, { changes, steps, reason, guard: 'off' }, 'author')
  expect(body.state).toBe('draft')
  return { path: `${PROPOSALS_PATH}/${body.proposal_id}`, body: {}, approve: { start: false } }
}

/** Changes that wait for an approval, made by the author. */
const PENDING: Readonly<Record<string, (node: Node) => Promise<Thing>>> = {
  proposal: propose,
  override: async ({ post }) => {
    const asked = { key: 'user:ann', exempt: true, expires_in: '1h', reason: 'x' }
    const { body } = await post(OVERRIDES_PATH, asked, 'author')
    return { path: `${OVERRIDES_PATH}/${body.override_id}`, body: {} }
  },
  'bypass token': async ({ post }) => {
    const { body } = await post(BYPASS_PATH, { name: 'x', expires_in: '1h', limit_per_minute: 5 }, 'author')
    return { path: `${BYPASS_PATH}/${body.bypass_id}`, body: {} }
  },
  token: async ({ post }) => {
    const { body } = await post(TOKENS, { name: 'x', role: 'editor' }, 'author')
    expect(body.state).toBe('pending')
    return { path: `${TOKENS}/${body.token_id}`, body: {} }
  },
  'global factor': async ({ post }) => {
    const asked = { factor: 2, expires_in: '1h', reason: 'x' }
    const { body } = await post(`${INCIDENT_PATH}/factor`, asked, 'author')
    const { factor_id } = body.pending_factor as { factor_id: string }
    return { path: `${INCIDENT_PATH}/factor`, body: { factor_id } }
  },
}

async function approved(node: Node): Promise<Thing> {
  const thing = await propose(node)
  expect((await node.post(`${thing.path}/approve`, { start: false }, 'other approver')).body.state).toBe('approved')
  return thing
}

async function rollingOut(node: Node): Promise<Thing> {
  const thing = await approved(node)
  expect((await node.post(`${thing.path}/start`, {}, 'author')).body.state).toBe('rolling_out')
  return thing
}

type Row = { readonly name: string; readonly make: (node: Node) => Promise<Thing>; readonly verb: string }
const ROWS: readonly (Row & { readonly allowed: readonly Actor[] })[] = [
  ...Object.entries(PENDING).map(([name, make]) => ({ name, make, verb: 'approve', allowed: APPROVERS })),
  { name: 'draft', make: propose, verb: 'start', allowed: [] },
  { name: 'draft', make: propose, verb: 'promote', allowed: [] },
  { name: 'approved proposal', make: approved, verb: 'start', allowed: EDITORS },
  { name: 'approved proposal', make: approved, verb: 'promote', allowed: [] },
  { name: 'rollout', make: rollingOut, verb: 'promote', allowed: EDITORS },
]

test('no token gets a change past approval that may not', async () => {
  const node = await started()
  const things = new Map<Row, Thing>()
  for (const row of ROWS) if (row.make !== rollingOut) things.set(row, await row.make(node))
  await node.later()
  for (const row of ROWS) {
    const succeeded: Actor[] = []
    const { name, make, verb, allowed } = row
    // The node's copy of the tokens is outdated while it approves: the database decides.
    if (verb !== 'approve') await node.reread()
    let thing = things.get(row)
    for (const actor of NAMES) {
      thing ??= await make(node)
      const sent = verb === 'approve' ? (thing.approve ?? thing.body) : thing.body
      const { status } = await node.post(`${thing.path}/${verb}`, sent, actor)
      expect([name, verb, actor, status < 500]).toEqual([name, verb, actor, true])
      if (status >= 300) continue
      succeeded.push(actor)
      if (verb !== 'approve') await node.post(`${thing.path}/abort`, {}, 'author')
      thing = undefined
    }
    expect([name, verb, succeeded.sort()]).toEqual([name, verb, [...allowed].sort()])
    if (thing !== undefined && verb !== 'approve') await node.post(`${thing.path}/abort`, {}, 'author')
  }
})

test('an approval counts at the start only if its token could still give it', async () => {
  const node = await started()
  const things = new Map<Actor, Thing>()
  for (const actor of ['other approver', ...ENDED] as const) {
    const thing = await propose(node)
    expect((await node.post(`${thing.path}/approve`, { start: false }, actor)).body.state).toBe('approved')
    things.set(actor, thing)
  }
  await node.later()
  const states: Partial<Record<Actor, unknown>> = {}
  for (const [actor, { path }] of things) {
    const { status, body } = await node.post(`${path}/start`, {}, 'author')
    states[actor] = status === 200 ? body.state : body.code
    await node.post(`${path}/abort`, {}, 'author')
  }
  expect(states).toEqual({
    ...{ 'other approver': 'rolling_out', expired: 'rolling_out', revoked: 'APPROVAL_REQUIRED' },
    ...{ demoted: 'APPROVAL_REQUIRED', 'demoted to editor': 'APPROVAL_REQUIRED' },
  })
})
