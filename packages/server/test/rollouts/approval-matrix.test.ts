// Every kind of token at every route that approves, starts or promotes a change: only the listed ones succeed.

import { expect, onTestFinished, test } from 'vitest'
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

/** Role and creator of each token, older than every change. `later` happens to it after the change was made. */
const ACTORS = {
  author: { role: 'admin' },
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
  'admin token of the settings': {},
} as const satisfies Record<string, { role?: string; by?: string; isNewer?: true; later?: string }>

type Actor = keyof typeof ACTORS
const NAMES = Object.keys(ACTORS) as Actor[]

const APPROVERS: readonly Actor[] = ['other approver', 'other admin', 'admin token of the settings']
/** Every token that may edit rules may start and promote what others approved. */
const EDITORS: readonly Actor[] = [
  ...APPROVERS,
  ...([
    'author',
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
  const create = async (name: string, role: string, token: string) => {
    const { status, body } = await app.post(TOKENS, { name, role }, token)
    expect([name, status]).toEqual([name, 201])
    return { id: String(body.token_id), secret: String(body.token) }
  }
  const tokens = new Map<string, { id: string; secret: string }>()
  const secretOf = (name: string) => tokens.get(name)?.secret ?? (name === 'no token' ? undefined : ADMIN_TOKEN)
  tokens.set('author', await create('author', 'admin', ADMIN_TOKEN))
  tokens.set('admin of the author', await create('admin of the author', 'admin', String(secretOf('author'))))
  for (const name of NAMES) {
    const { role, by, isNewer } = { by: undefined, isNewer: false, role: undefined, ...ACTORS[name] }
    if (role !== undefined && !isNewer && !tokens.has(name))
      tokens.set(name, await create(name, role, secretOf(by ?? '') ?? ADMIN_TOKEN))
  }
  /** Makes the newer token, and changes the others, after a change was made. */
  const later = async () => {
    tokens.set('newer', await create('newer', 'approver', ADMIN_TOKEN))
    for (const name of ENDED) {
      const { later: change } = { later: '', ...ACTORS[name] }
      await database.query(`UPDATE api_tokens SET ${change} WHERE id = $1`, [tokens.get(name)?.id])
    }
  }
  /** Any change of tokens makes the node read all of them again. */
  const reread = () => create('another', 'viewer', ADMIN_TOKEN)
  const post = (path: string, body: object, name: string) => app.post(path, body, secretOf(name))
  return { post, later, reread }
}

type Node = Awaited<ReturnType<typeof started>>
type Thing = { readonly path: string; readonly body: object }

async function propose({ post }: Node): Promise<Thing> {
  const changes = [{ op: 'update', rule: { rule_id: 'posts', limit: 50 } }]
  const steps = [{ shadow: true }, { canary: '10%' }]
  const { body } = await post(PROPOSALS_PATH, { changes, steps, reason: 'x', guard: 'off' }, 'author')
  expect(body.state).toBe('draft')
  return { path: `${PROPOSALS_PATH}/${body.proposal_id}`, body: {} }
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
  'global factor': async ({ post }) => {
    const asked = { factor: 2, expires_in: '1h', reason: 'x' }
    const { body } = await post(`${INCIDENT_PATH}/factor`, asked, 'author')
    const { factor_id } = body.pending_factor as { factor_id: string }
    return { path: `${INCIDENT_PATH}/factor`, body: { factor_id } }
  },
}

async function approved(node: Node): Promise<Thing> {
  const thing = await propose(node)
  expect((await node.post(`${thing.path}/approve`, {}, 'other approver')).body.state).toBe('approved')
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
      const { status } = await node.post(`${thing.path}/${verb}`, thing.body, actor)
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
    expect((await node.post(`${thing.path}/approve`, {}, actor)).body.state).toBe('approved')
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
