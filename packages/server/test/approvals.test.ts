import { describe, expect, test } from 'vitest'
import { ROLES, type Role } from '../src/access/roles.ts'
import { createToken, revokeToken } from '../src/access/token-table.ts'
import { type Approver, approvalProblem } from '../src/approvals/approval-rules.ts'
import { approve, readApprovals } from '../src/approvals/approval-table.ts'
import { applyApprovals, setApprovals } from '../src/approvals/required-approvals.ts'
import { verifyAudit } from '../src/audit/audit.ts'
import type { Database } from '../src/db/database.ts'
import { migrate } from '../src/db/migrate.ts'
import { approvalsRequired } from '../src/rules/write-paths.ts'
import { describeDatabases } from './databases.ts'
import { captureLog } from './service.ts'

const AT = new Date('2030-01-01T00:00:00Z')
const CREATED = new Date('2030-01-01T12:00:00Z')

describe('the approval matrix', () => {
  const change = { author: 'tok_author', createdAt: CREATED }
  const relations = {
    other: { id: 'tok_other', creators: ['sluice'] },
    author: { id: 'tok_author', creators: ['sluice'] },
    'created by the author': { id: 'tok_second', creators: ['tok_author', 'sluice'] },
    'created by a token that the author created': { id: 'tok_third', creators: ['tok_second', 'tok_author', 'sluice'] },
    'creator of the author': { id: 'tok_boss', creators: ['sluice'] },
  }
  const ages = { older: new Date(CREATED.getTime() - 1), same: CREATED, younger: new Date(CREATED.getTime() + 1) }
  const states = {
    valid: { revoked: false, expired: false },
    revoked: { revoked: true, expired: false },
    expired: { revoked: false, expired: true },
  }
  const rows = Object.entries(relations).flatMap(([relation, token]) =>
    [...ROLES, undefined].flatMap((role) =>
      Object.entries(ages).flatMap(([age, recordedAt]) =>
        Object.entries(states).map(([state, flags]) => {
          const approver: Approver = { ...token, role: role as Role | undefined, recordedAt, ...flags }
          return { relation, role, age, state, approver }
        }),
      ),
    ),
  )

  test(`allows exactly: approver or admin, another person, older than the change, valid (${rows.length} rows)`, () => {
    const allowed = rows.filter(({ approver }) => approvalProblem(change, approver) === undefined)
    expect(allowed.map(({ relation, role, age, state }) => [relation, role, age, state])).toEqual(
      ['other', 'creator of the author'].flatMap((relation) =>
        ['approver', 'admin'].map((role) => [relation, role, 'older', 'valid']),
      ),
    )
  })

  test('the admin token of the settings approves what it has not written', () => {
    const approver: Approver = {
      ...{ id: 'admin-token', role: 'admin', recordedAt: undefined, creators: [], revoked: false, expired: false },
    }
    expect(approvalProblem(change, approver)).toBeUndefined()
    expect(approvalProblem({ ...change, author: 'admin-token' }, approver)).toMatch(/author/)
  })
})

describeDatabases('approvals', ({ open }) => {
  const opened = async () => {
    const database = await open()
    await migrate(database)
    await setApprovals(database, 2, 'command', AT)
    return database
  }
  const token = async (database: Database, name: string, role: Role, actor: string) => {
    const made = await createToken(database, { name, role, expiresAt: null }, actor, AT)
    return { id: made?.token.tokenId ?? '', role }
  }
  const thingBy = async (database: Database, author: string) => {
    await database.query('SELECT pg_sleep(0.002)') // a token of the same millisecond counts as newer
    const [row] = await database.query<{ now: Date }>('SELECT clock_timestamp() AS now')
    return { kind: 'proposal', id: 'prop_1', author, createdAt: row?.now as Date }
  }

  test('count once per token, and only while the token is valid and keeps its role', async () => {
    const database = await opened()
    const author = await token(database, 'author', 'admin', 'sluice')
    const [one, two] = [
      await token(database, 'one', 'approver', 'sluice'),
      await token(database, 'two', 'admin', 'sluice'),
    ]
    const thing = await thingBy(database, author.id)
    expect(await approve(database, thing, one)).toMatchObject({
      given: [{ tokenId: one.id }],
      required: 2,
      enough: false,
    })
    expect((await approve(database, thing, one)).enough).toBe(false)
    expect((await approve(database, thing, two)).enough).toBe(true)
    expect((await readApprovals(database, { ...thing, attempt: 2 })).given).toEqual([])
    await database.query("UPDATE api_tokens SET role = 'viewer' WHERE id = $1", [two.id])
    expect((await readApprovals(database, thing)).given).toMatchObject([{ tokenId: one.id }])
    await revokeToken(database, one.id, 'sluice', AT)
    expect((await readApprovals(database, thing)).given).toEqual([])
  })

  test('are refused to the author, to tokens that the author created, and to younger tokens', async () => {
    const database = await opened()
    const author = await token(database, 'author', 'admin', 'sluice')
    const second = await token(database, 'second', 'admin', author.id)
    const third = await token(database, 'third', 'approver', second.id)
    const thing = await thingBy(database, author.id)
    const younger = await token(database, 'younger', 'approver', 'sluice')
    for (const caller of [author, second, third, younger]) {
      await expect(approve(database, thing, caller)).rejects.toMatchObject({ problem: { code: 'APPROVAL_FORBIDDEN' } })
    }
    expect((await readApprovals(database, thing)).given).toEqual([])
  })

  test('are required as often as the database says: a start raises the number and never lowers it', async () => {
    const database = await opened()
    const { log, logged } = captureLog()
    await applyApprovals(database, undefined, log, AT)
    await applyApprovals(database, 1, log, AT)
    expect(await approvalsRequired(database)).toBe(2)
    expect(logged).toMatchObject([{ event: 'approvals_differ', wanted: 1, required: 2 }])
    await applyApprovals(database, 3, log, AT)
    expect(await approvalsRequired(database)).toBe(3)
    expect(await setApprovals(database, 0, 'command', AT)).toBe(3)
    expect(await approvalsRequired(database)).toBe(0)
    expect(await approve(database, await thingBy(database, 'a'), { id: 'a', role: 'viewer' })).toMatchObject({
      enough: true,
    })
    const actions = await database.query("SELECT diff FROM audit WHERE action = 'approvals.set' ORDER BY seq")
    expect(actions.map(({ diff }) => JSON.parse(String(diff)))).toEqual([
      { before: 0, required: 2 },
      { before: 2, required: 3 },
      { before: 3, required: 0 },
    ])
    expect(await verifyAudit(database)).toMatchObject({ intact: true })
  })
})
