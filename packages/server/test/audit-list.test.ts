import { expect, test } from 'vitest'
import { type AuditEntry, appendAudit } from '../src/audit/audit.ts'
import type { ListedEntry } from '../src/audit/audit-list.ts'
import type { Database } from '../src/db/database.ts'
import { migrate } from '../src/db/migrate.ts'
import { AUDIT_PATH } from '../src/http/routes/audit-list.ts'
import { KILL_SWITCH_PATH } from '../src/http/routes/kill-switch.ts'
import { RESET_PATH } from '../src/http/routes/reset.ts'
import { TOKENS_PATH } from '../src/http/routes/tokens.ts'
import { describeDatabases } from './databases.ts'
import { ADMIN_TOKEN, type App, type Client, serveApp } from './service.ts'

const NOON_MS = Date.parse('2030-01-31T12:00:00Z')
const DEMO = { rule_id: 'demo', scope: 'per_user', limit: 1, window_seconds: 60 }

type Page = { readonly entries: readonly ListedEntry[]; readonly next: string | null }

async function list({ get }: Client, query: Record<string, string> = {}): Promise<Page> {
  const { status, body } = await get(`${AUDIT_PATH}?${new URLSearchParams(query)}`, ADMIN_TOKEN)
  expect({ status, body }).toMatchObject({ status: 200 })
  return body as unknown as Page
}

async function seqs(app: Client, query: Record<string, string>): Promise<number[]> {
  return (await list(app, query)).entries.map(({ seq }) => seq)
}

function append(database: Database, entry: Partial<AuditEntry>, atMs = NOON_MS): Promise<void> {
  const whole = { actor: 'ann', action: 'rule.update', target: 'demo', diff: {}, ...entry }
  return database.transaction((queries) => appendAudit(queries, whole, new Date(atMs)))
}

describeDatabases('the list of audit entries', ({ open }) => {
  /** A node, and a log without the entry of its first token. */
  const serve = async (): Promise<{ app: App; database: Database }> => {
    const database = await open()
    await migrate(database)
    await database.query(
      `INSERT INTO api_tokens (id, name, role, hash, created_at) VALUES ('tok_1', 'ci', 'check', 'x', '2029-01-01')`,
    )
    return { app: await serveApp([DEMO], undefined, { database }), database }
  }

  /** One entry a minute, from 12:00. */
  const filled = async () => {
    const node = await serve()
    const entries: Partial<AuditEntry>[] = [
      { action: 'rule.create', diff: { version: 2 }, reason: 'new' },
      { action: 'rule.update', actor: 'bob' },
      { action: 'rules.import', target: 'rules', diff: { changes: [{ rule_id: 'imported', change: 'created' }] } },
      { action: 'kill_switch.on', target: 'rule demo', actor: 'bob' },
      { action: 'killXswitch.on', target: 'rule other' },
      { action: 'rule', target: 'demo2' },
      { action: 'token.create', target: 'tok_1', actor: 'tok_1' },
    ]
    for (const [index, entry] of entries.entries()) await append(node.database, entry, NOON_MS + index * 60_000)
    return node
  }

  test('has who, what, when and why of each change, newest first', async () => {
    const { app } = await filled()
    const { entries, next } = await list(app)
    expect(next).toBeNull()
    expect(entries.map(({ seq }) => seq)).toEqual([7, 6, 5, 4, 3, 2, 1])
    const hash = expect.stringMatching(/^[\da-f]{64}$/)
    expect(entries.at(-1)).toEqual({
      ...{ seq: 1, at: '2030-01-31T12:00:00.000Z', actor: 'ann', actor_name: null, action: 'rule.create' },
      ...{ target: 'demo', diff: { version: 2 }, reason: 'new', hash },
    })
    expect(entries[0]).toMatchObject({ actor: 'tok_1', actor_name: 'ci', reason: null })
  })

  test.each([
    [{ actor: 'bob' }, [4, 2]],
    [{ actor: 'BOB' }, []],
    [{ action: 'rule.update' }, [2]],
    [{ action: 'rule.*' }, [2, 1]],
    [{ action: 'kill_switch.*' }, [4]],
    [{ action: 'rule' }, [6]],
    [{ target: 'demo' }, [4, 2, 1]],
    [{ target: 'rule demo' }, [4]],
    [{ target: 'dem' }, []],
    [{ target: 'imported' }, [3]],
    [{ target: 'import' }, []],
    [{ target: 'rules' }, [3]],
    [{ since: '2030-01-31T12:05:00Z' }, [7, 6]],
    [{ until: '2030-01-31T12:01:00Z' }, [1]],
    [{ since: '2030-01-31T14:01:00+02:00', until: '2030-01-31T12:03:00Z' }, [3, 2]],
    [{ actor: 'bob', action: 'kill_switch.on', target: 'demo', since: '2030-01-31', until: '2030-02-01' }, [4]],
    [{ since: '0000-01-01', until: '9999-12-31' }, [7, 6, 5, 4, 3, 2, 1]],
    [{ after: '999999999999999', limit: '1' }, [7]],
    [{ after: '3' }, [2, 1]],
    [{ after: '0' }, []],
  ])('%j finds %j', async (query, expected) => {
    const { app } = await filled()
    expect(await seqs(app, query as Record<string, string>)).toEqual(expected)
  })

  test('paging returns each entry once, also at equal times and while others are written', async () => {
    const { app, database } = await serve()
    for (let count = 1; count <= 25; count += 1) await append(database, { actor: count % 5 === 0 ? 'bob' : 'ann' })
    for (const [filter, expected] of [
      [{}, Array.from({ length: 25 }, (_, index) => 25 - index)],
      [{ actor: 'bob' }, [25, 20, 15, 10, 5]],
    ] as const) {
      const seen: number[] = []
      for (let after: string | null = ''; after !== null; ) {
        const page: Page = await list(app, { ...filter, limit: '2', ...(after === '' ? {} : { after }) })
        seen.push(...page.entries.map(({ seq }) => seq))
        after = page.next
        await append(database, { actor: 'later' })
      }
      expect(seen.filter((seq) => seq <= 25)).toEqual(expected)
      expect(new Set(seen).size).toBe(seen.length)
    }
  })

  test('a page ends early if diffs are large, and the next one continues', async () => {
    const { app, database } = await serve()
    const diff = { text: 'x'.repeat(600_000) }
    for (let count = 0; count < 4; count += 1) await append(database, { diff })
    const first = await list(app)
    expect(first).toMatchObject({
      entries: [
        { seq: 4, diff },
        { seq: 3, diff },
      ],
      next: '3',
    })
    expect(await list(app, { after: '3' })).toMatchObject({ entries: [{ seq: 2 }, { seq: 1 }], next: null })
    await append(database, { diff: 'y'.repeat(3_000_000) })
    expect(await list(app)).toMatchObject({ entries: [{ seq: 5 }], next: '5' })
  })

  test('hostile texts are listed as they are, and found as they are', async () => {
    const { app, database } = await serve()
    const hostile = `'; DROP TABLE audit; -- $1 ? % _ \\ "\u{1f6b0}`
    const controls = 'a\nb\u001b[2J\u009b\u202e'
    await append(database, { actor: hostile, target: hostile, reason: hostile, diff: { [hostile]: hostile } })
    await append(database, { actor: controls, target: controls, diff: '\u0000\ud800' })
    expect(await list(app)).toMatchObject({
      entries: [
        { actor: controls, target: controls, diff: '\u0000\ud800' },
        { actor: hostile, target: hostile, reason: hostile, diff: { [hostile]: hostile } },
      ],
    })
    expect(await seqs(app, { actor: hostile, target: hostile })).toEqual([1])
    expect(await seqs(app, { actor: "' OR 1=1 --" })).toEqual([])
    expect(await seqs(app, { target: '%' })).toEqual([])
  })

  test('an entry whose diff was edited by hand is listed as text', async () => {
    const { app, database } = await filled()
    await database.query('ALTER TABLE audit DISABLE TRIGGER audit_is_append_only')
    await database.query(`UPDATE audit SET diff = '{"limit": ' WHERE seq = 7`)
    expect((await list(app, { limit: '1' })).entries).toMatchObject([{ seq: 7, diff: '{"limit": ' }])
  })

  test('has the changes made through the API', async () => {
    const { app } = await serve()
    const made = await app.post(TOKENS_PATH, { name: 'bot', role: 'viewer' }, ADMIN_TOKEN)
    expect(made).toMatchObject({ status: 201 })
    const kill = { rule_id: 'demo', on: true, reason: 'too strict' }
    expect(await app.post(KILL_SWITCH_PATH, kill, ADMIN_TOKEN)).toMatchObject({ status: 200 })
    const reset = { rule_id: 'demo', key: 'alice' }
    expect(await app.post(RESET_PATH, reset, ADMIN_TOKEN)).toMatchObject({ status: 200 })
    const actor = 'admin-token'
    expect((await list(app)).entries).toMatchObject([
      { actor, action: 'bucket.reset', target: 'rule demo', diff: { key: 'alice' } },
      { actor, action: 'kill_switch.on', target: 'rule demo', reason: 'too strict' },
      { actor, action: 'token.create', target: made.body.token_id, diff: { name: 'bot', role: 'viewer' } },
    ])
  })
})

test('without a database there is none', async () => {
  const app = await serveApp([DEMO])
  expect(await app.get(AUDIT_PATH, ADMIN_TOKEN)).toMatchObject({ status: 409, body: { code: 'NO_DATABASE' } })
})

const ACTION_FIX = 'give an action such as rule.update, or a group of actions such as rule.*'
const TIME_FIX = 'give a time such as 2030-01-31T12:00:00Z'

test.each([
  [{ action: '*' }, 'action', ACTION_FIX],
  [{ action: 'rule*' }, 'action', ACTION_FIX],
  [{ action: 'rule.%' }, 'action', ACTION_FIX],
  [{ action: 'a'.repeat(65) }, 'action', ACTION_FIX],
  [{ actor: '' }, 'actor', 'give 1 to 256 characters without control characters and direction overrides'],
  [{ target: 'a\u001b[2J' }, 'target', 'give 1 to 256 characters without control characters and direction overrides'],
  [{ since: 'yesterday' }, 'since', TIME_FIX],
  [{ until: '7' }, 'until', TIME_FIX],
  [{ since: '2030-01-31', until: '2030-01-31' }, 'until', 'give a time after since'],
  [{ after: '-1' }, 'after', 'give the `next` of the previous page'],
  [{ limit: '1001' }, 'limit', 'give a whole number from 1 to 1000'],
  [{ actr: 'x' }, 'actr', 'unknown field; did you mean "actor"?'],
])('%j is a 400', async (query, field, fix) => {
  const app = await serveApp([DEMO])
  const { status, body } = await app.get(
    `${AUDIT_PATH}?${new URLSearchParams(query as Record<string, string>)}`,
    ADMIN_TOKEN,
  )
  expect({ status, errors: body.errors }).toMatchObject({ status: 400, errors: [{ field, fix }] })
})
