import { expect, onTestFinished, test } from 'vitest'
import { setApprovals } from '../../src/approvals/required-approvals.ts'
import { openDatabase } from '../../src/db/open-database.ts'
import { INCIDENT_PATH } from '../../src/http/routes/incident.ts'
import { PROPOSALS_PATH } from '../../src/rollouts/edit-hooks.ts'
import { ProposalStore } from '../../src/rollouts/proposal-store.ts'
import { activeProposals } from '../../src/rollouts/proposal-table.ts'
import { temporaryFolder, usePostgres } from '../databases.ts'
import { ADMIN_TOKEN, RULE_SET, serveDatabase } from '../service.ts'

const AT = new Date('2026-01-01T00:00:00Z')
const postgres = usePostgres()

/** A node whose rule `posts` has these limits in turn, each in a version of its own. The first is version 1. */
async function started(limits: readonly number[]) {
  const database = await openDatabase({ database: postgres().createDatabase(), dataDir: temporaryFolder() })
  onTestFinished(() => database.close())
  const app = await serveDatabase(database, { guardMs: 3_600_000 })
  const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }
  const put = (limit: number, more: readonly object[] = [], query = '?guard=off&reason=x') => {
    const rules = [{ rule_id: 'posts', scope: 'per_user', limit, window_seconds: 60 }, ...more]
    return app.send(`${RULE_SET}${query}`, { method: 'PUT', headers, body: JSON.stringify({ rules }) })
  }
  for (const limit of limits) await put(limit)
  const [{ version: first } = { version: 0 }] = await database.query<{ version: number }>(
    'SELECT version - $1 AS version FROM rules_in_force',
    [limits.length - 1],
  )
  /** `version`: 1 is that of the first limit. Returns the limit in force afterwards, or the code of the refusal. */
  const rollBack = async (version: number, query = '') => {
    const { status, body } = await app.post(
      `${RULE_SET}/rollback${query}`,
      { version: first - 1 + version },
      ADMIN_TOKEN,
    )
    return status === 200 ? limitOf() : body.code
  }
  const limitOf = async () => {
    const [row] = await database.query<{ limit: number }>("SELECT (rule->>'limit')::int AS limit FROM rules", [])
    return row?.limit
  }
  const freeze = (verb: 'freeze' | 'unfreeze') => app.post(`${INCIDENT_PATH}/${verb}`, { reason: 'x' }, ADMIN_TOKEN)
  const approvals = (required: number) => setApprovals(database, required, 'command', AT)
  const guard = new ProposalStore(database, { moved: () => {}, refresh: async () => {} })
  /** Reverts the open edit, as the guard does when it refuses too much. */
  const revert = async () => {
    const [edit] = await activeProposals(database)
    const cause = { actor: 'guard', reason: 'refuses too much' }
    await guard.moveIfUnchanged(edit?.id ?? '', edit?.revision ?? 0, { type: 'revert' }, cause)
  }
  return { app, database, put, rollBack, limitOf, freeze, approvals, revert }
}

type Node = Awaited<ReturnType<typeof started>>

const CLOSED: readonly [string, string, (node: Node) => Promise<unknown>][] = [
  ['with approvals', 'APPROVAL_REQUIRED', ({ approvals }) => approvals(1)],
  ['during a freeze', 'FROZEN', ({ freeze }) => freeze('freeze')],
]

test.each(CLOSED)('%s, a rollback goes only from the active version to its predecessor', async (_, code, close) => {
  const node = await started([1, 2, 3, 4])
  await close(node)
  const { rollBack, limitOf } = node
  for (const version of [1, 2]) expect(await rollBack(version)).toBe(code)
  expect(await rollBack(3)).toBe(3) // version 5
  for (const version of [4, 3, 1])
    expect([version, await rollBack(version)]).toEqual([version, version === 3 ? 3 : code])
  expect(await rollBack(2)).toBe(2) // version 6
  for (const version of [3, 4, 5]) expect([version, await rollBack(version)]).toEqual([version, code])
  expect(await rollBack(1)).toBe(1) // version 7
  for (const version of [2, 3, 4, 5, 6]) expect([version, await rollBack(version)]).toEqual([version, code])
  expect(await limitOf()).toBe(1)
})

test.each(CLOSED)('%s, no rollback re-activates what the guard withdrew', async (_, code, close) => {
  const node = await started([0, 100])
  const { put, rollBack, limitOf, revert } = node
  await put(0, [], '') // version 3, under guard; the limit of version 1
  await revert() // version 4
  expect(await limitOf()).toBe(100)
  await close(node)
  // Version 1 is the predecessor of version 2, and of its copy, but has the limit that the guard withdrew.
  for (const version of [3, 1]) expect([version, await rollBack(version)]).toEqual([version, code])
  expect(await limitOf()).toBe(100)
})

test.each([
  ['approvals', ({ approvals }: Node) => approvals(1)],
  ['neither approvals nor a freeze', async () => {}],
])('with %s, an edit of another field does not hide that a limit was withdrawn', async (_, close) => {
  const node = await started([100])
  const { app, put, rollBack, limitOf } = node
  await put(0, [], '') // version 2, under guard
  const named = { rules: [{ rule_id: 'posts', scope: 'per_user', limit: 0, window_seconds: 60, name: 'N' }] }
  const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }
  await app.send(RULE_SET, { method: 'PUT', headers, body: JSON.stringify(named) }) // version 3
  await node.revert() // version 4
  expect(await limitOf()).toBe(100)
  await close(node)
  const [{ version: active = 0 } = {}] = (await app.get(`${RULE_SET}/versions`)).body.versions as { version?: number }[]
  const { status, body } = await app.post(`${RULE_SET}/rollback`, { version: active - 2 }, ADMIN_TOKEN)
  if (status === 200) expect(body.guard).toMatchObject({ proposal_id: expect.stringMatching(/^prop_/) })
  else expect([body.code, await limitOf()]).toEqual(['APPROVAL_REQUIRED', 100])
  expect(status).toBe(close.length === 0 ? 200 : 409)
  if (status === 200) expect(await rollBack(1)).toBe(100)
})

test('a rule that a rollback removed stays withdrawn with another name', async () => {
  const { app, put, rollBack, approvals } = await started([100])
  const more = { rule_id: 'more', scope: 'per_user', limit: 5, window_seconds: 60 }
  await put(100, [more]) // version 2
  await put(100, [{ ...more, name: 'N' }]) // version 3
  expect(await rollBack(1)).toBe(100) // version 4
  await approvals(1)
  const [{ version: active = 0 } = {}] = (await app.get(`${RULE_SET}/versions`)).body.versions as { version?: number }[]
  const { body } = await app.post(`${RULE_SET}/rollback`, { version: active - 2 }, ADMIN_TOKEN)
  expect(body.detail).toContain('brings back what was rolled back (more).')
})

test('with approvals, rollbacks go back before an edit that the guard withdrew, and one that followed', async () => {
  const { put, rollBack, approvals, revert } = await started([100, 200])
  await put(0, [], '') // version 3
  await revert() // version 4
  await put(300) // version 5
  await approvals(1)
  expect(await rollBack(4)).toBe(200)
  expect(await rollBack(1)).toBe(100)
})

test('a rollback still undoes the edit before one that the guard withdrew', async () => {
  const { put, rollBack, limitOf, approvals, revert } = await started([100, 200])
  await put(0, [], '') // version 3
  await revert() // version 4
  expect(await limitOf()).toBe(200)
  await approvals(1)
  expect(await rollBack(1)).toBe(100)
})

test('after an edit on top of a rollback, the rollback is the predecessor', async () => {
  const { put, rollBack, approvals } = await started([1, 2])
  expect(await rollBack(1)).toBe(1) // version 3
  await put(5) // version 4
  await approvals(1)
  expect(await rollBack(2)).toBe('APPROVAL_REQUIRED')
  expect(await rollBack(1), 'the same rules as the predecessor').toBe(1)
})

test('a withdrawn rule may return with an approved change, and a rollback may go back to it then', async () => {
  const { app, put, rollBack, limitOf, approvals } = await started([1, 2])
  expect(await rollBack(1)).toBe(1) // withdraws 2
  const changes = [{ op: 'update', rule: { rule_id: 'posts', limit: 2 } }]
  const proposal = { changes, reason: 'x', steps: [{ shadow: true }], guard: 'off' }
  const { proposal_id: id } = (await app.post(PROPOSALS_PATH, proposal, ADMIN_TOKEN)).body
  for (const verb of ['start', 'promote']) await app.post(`${PROPOSALS_PATH}/${id}/${verb}`, {}, ADMIN_TOKEN) // 4
  expect(await limitOf()).toBe(2)
  await put(3) // version 5
  await approvals(1)
  expect(await rollBack(4)).toBe(2)
})

test('without approvals and freeze, every version can be restored; a withdrawn one is guarded', async () => {
  const { app, rollBack, limitOf } = await started([1, 2, 3])
  expect(await rollBack(1)).toBe(1)
  const { status, body } = await app.post(`${RULE_SET}/rollback`, { version: (await versionOf()) - 1 }, ADMIN_TOKEN)
  expect([status, await limitOf()]).toEqual([200, 3])
  expect(body.guard).toMatchObject({ proposal_id: expect.stringMatching(/^prop_/) })

  async function versionOf() {
    return Number((await app.get(`${RULE_SET}?format=json`)).body.version)
  }
})

test('a refused rollback says which version is the predecessor, or which rules were rolled back', async () => {
  const { app, approvals, rollBack } = await started([1, 2, 3])
  await approvals(1)
  const [{ version = 0 } = {}] = (await app.get(`${RULE_SET}/versions`)).body.versions as { version?: number }[]
  const detailOf = async (target: number) =>
    (await app.post(`${RULE_SET}/rollback`, { version: target }, ADMIN_TOKEN)).body.detail
  expect(await detailOf(version - 2)).toContain(
    `Version ${version - 2} is not the predecessor of version ${version}, version ${version - 1}.`,
  )
  await rollBack(2)
  expect(await detailOf(version)).toContain(`Version ${version} brings back what was rolled back (posts).`)
})
