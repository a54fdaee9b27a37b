import { describe, expect, test } from 'vitest'
import { ROLES, type Role } from '../src/access/roles.ts'
import { createToken, revokeToken } from '../src/access/token-table.ts'
import { type Approver, approvalProblem, familyOf } from '../src/approvals/approval-rules.ts'
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
    other: 'tok_other',
    'child of another': 'tok_other_child',
    author: 'tok_author',
    'created by the author': 'tok_second',
    'created by a token that the author created': 'tok_third',
    'creator of the author': 'tok_boss',
    'creator of the creator': 'tok_first',
    'sibling of the author': 'tok_sibling',
    'cousin of the author': 'tok_cousin',
    'admin token of the settings': 'admin-token',
    'child of the admin token of the settings': 'tok_settings_child',
  }
  const creators: Readonly<Record<string, string>> = {
    ...{ tok_other: 'command', tok_other_child: 'tok_other', tok_settings_child: 'admin-token', tok_first: 'sluice' },
    ...{ tok_boss: 'tok_first', tok_author: 'tok_boss', tok_sibling: 'tok_boss' },
    ...{ tok_second: 'tok_author', tok_third: 'tok_second', tok_uncle: 'tok_first', tok_cousin: 'tok_uncle' },
  }
  const line = Object.entries(creators).map(([id, created_by]) => ({ id, created_by }))
  const family = familyOf('tok_author', line)
  const ages = { older: new Date(CREATED.getTime() - 1), same: CREATED, younger: new Date(CREATED.getTime() + 1) }
  const states = {
    valid: { revoked: false, expired: false },
    revoked: { revoked: true, expired: false },
    expired: { revoked: false, expired: true },
  }
  const rows = Object.entries(relations).flatMap(([relation, id]) =>
    [...ROLES, undefined].flatMap((role) =>
      Object.entries(ages).flatMap(([age, recordedAt]) =>
        Object.entries(states).map(([state, flags]) => {
          const known = { id, family: familyOf(id, line), recordedAt, ...flags }
          const approver: Approver = { ...known, role: role as Role | undefined }
          return { relation, role, age, state, approver }
        }),
      ),
    ),
  )

  test(`allows exactly: approver or admin, unrelated to the author, older, valid (${rows.length} rows)`, () => {
    const allowed = rows.filter(({ approver }) => approvalProblem(change, family, approver) === undefined)
    expect(allowed.map(({ relation, role, age, state }) => [relation, role, age, state])).toEqual(
      [
        ...['other', 'child of another'],
        ...['admin token of the settings', 'child of the admin token of the settings'],
      ].flatMap((relation) => ['approver', 'admin'].map((role) => [relation, role, 'older', 'valid'])),
    )
  })

  test('the admin token of the settings approves what it has not written', () => {
    const approver: Approver = {
      ...{ id: 'admin-token', role: 'admin', recordedAt: undefined, revoked: false, expired: false },
      family: 'admin-token',
    }
    expect(approvalProblem(change, family, approver)).toBeUndefined()
    expect(approvalProblem({ ...change, author: 'admin-token' }, 'admin-token', approver)).toMatch(/author/)
    expect(approvalProblem({ ...change, author: 'tok_settings_child' }, 'admin-token', approver)).toBe(
      'the token admin-token is related to the author, tok_settings_child: admin-token created the other, directly ' +
        'or through other tokens. Use a token that another admin created, or create one on the host: sluice token ' +
        'create <name> --role approver --database <url>',
    )
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

  test('of related tokens count as one, and the second one is refused', async () => {
    const database = await opened()
    const author = await token(database, 'author', 'editor', 'command')
    const boss = await token(database, 'boss', 'admin', 'command')
    const helper = await token(database, 'helper', 'approver', boss.id)
    const other = await token(database, 'other', 'approver', 'command')
    const thing = await thingBy(database, author.id)
    expect((await approve(database, thing, helper)).enough).toBe(false)
    await expect(approve(database, thing, boss)).rejects.toMatchObject({
      problem: {
        code: 'APPROVAL_FORBIDDEN',
        detail: expect.stringMatching(/related to a token that has approved.*Ask the holder of an unrelated token/),
      },
    })
    await database.query(
      "INSERT INTO approvals (kind, subject_id, attempt, token_id, at) VALUES ('proposal', 'prop_1', 1, $1, now())",
      [boss.id], // given before related tokens were refused
    )
    expect(await readApprovals(database, thing)).toMatchObject({ given: [{ tokenId: helper.id }], enough: false })
    expect((await approve(database, thing, other)).enough).toBe(true)
    await revokeToken(database, helper.id, 'sluice', AT)
    expect((await readApprovals(database, thing)).given.map(({ tokenId }) => tokenId)).toEqual([boss.id, other.id])
  })

  test('follow a chain of creators to its start, however long it is', async () => {
    const database = await opened()
    const author = await token(database, 'author', 'admin', 'command')
    let last = author
    for (let made = 0; made < 40; made += 1) last = await token(database, `helper ${made}`, 'admin', last.id)
    const thing = await thingBy(database, author.id)
    await expect(approve(database, thing, last)).rejects.toMatchObject({ problem: { code: 'APPROVAL_FORBIDDEN' } })
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
