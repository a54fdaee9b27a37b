import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { verifyAudit } from '../src/audit/audit.ts'
import type { Database } from '../src/db/database.ts'
import { type DatabaseSettings, openDatabase } from '../src/db/open-database.ts'
import type { PlainRule } from '../src/rules/changes.ts'
import { RuleStore } from '../src/rules/rule-store.ts'
import { emptyDataDir, temporaryFolder, usePostgres } from './databases.ts'
import { type Running, start } from './process.ts'
import { ADMIN_TOKEN, clientOf, RULE_SET } from './service.ts'

const RULES = 300

function startNode({ database, dataDir }: DatabaseSettings): Promise<Running> {
  const where = database === undefined ? [] : ['--database', database]
  return start(['--admin-token', ADMIN_TOKEN, '--data-dir', dataDir, ...where], { SLUICE_DATA_DIR: dataDir })
}

/** Rules that all have the same limit, so that a partial import shows. */
function importSet({ address }: Running, limit: number) {
  const rules = Array.from({ length: RULES }, (_, index) => ({ rule_id: `r${index}`, limit, window: '1d' }))
  const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }
  return clientOf(address).send(RULE_SET, { method: 'PUT', headers, body: JSON.stringify({ rules }) })
}

async function killed(node: Running): Promise<void> {
  node.signal('SIGKILL')
  await node.ended()
}

/** The limit that all rules share. Throws if rules, version and audit entry disagree. */
async function wholeSet(database: Database): Promise<number> {
  const store = new RuleStore(database)
  const { version, rules } = await store.read()
  expect(await store.set(version)).toEqual(rules)
  expect(await verifyAudit(database)).toMatchObject({ intact: true, rows: version })
  const limits = [...new Set((rules as PlainRule[]).map(({ limit }) => limit))]
  expect([rules.length, limits.length]).toEqual([RULES, 1])
  return Number(limits[0])
}

async function opened(settings: DatabaseSettings): Promise<Database> {
  const database = await openDatabase(settings)
  onTestFinished(() => database.close())
  return database
}

describe('an import of a node that is killed is applied completely or not at all', () => {
  const postgres = usePostgres()

  test('on PostgreSQL: nothing before the commit, everything after it', async () => {
    const settings = { database: postgres().createDatabase(), dataDir: temporaryFolder() }
    const database = await opened(settings)
    const node = await startNode(settings)
    expect((await importSet(node, 1)).status).toBe(200)
    await database.transaction(async ({ query }) => {
      await query('LOCK TABLE audit IN EXCLUSIVE MODE') // the last table of an import: the others are written by then
      const cut = importSet(node, 2).catch(() => undefined)
      await vi.waitFor(async () => {
        const [row] = await database.query<{ waiting: number }>(
          `SELECT count(*) AS waiting FROM pg_stat_activity
           WHERE wait_event_type = 'Lock' AND query LIKE '%audit%'`,
        )
        expect(row?.waiting).toBe(1)
      }, 10_000)
      await killed(node)
      await cut
    })
    expect(await wholeSet(database)).toBe(1)
    const again = await startNode(settings)
    expect((await importSet(again, 3)).status).toBe(200)
    await killed(again)
    expect(await wholeSet(database)).toBe(3)
  })

  test('on the embedded database, at any moment', { timeout: 120_000 }, async () => {
    const settings = { database: undefined, dataDir: await emptyDataDir() }
    let before = 1
    let node = await startNode(settings)
    expect((await importSet(node, before)).status).toBe(200)
    for (const afterMs of [10, 80]) {
      const cut = importSet(node, before + 1).catch(() => undefined)
      const end = new Promise<void>((ended) => setTimeout(() => ended(killed(node)), afterMs))
      const answer = await cut
      await end
      const database = await openDatabase(settings)
      const found = await wholeSet(database)
      await database.close()
      expect([before, before + 1]).toContain(found)
      if (answer !== undefined) expect(found, 'what was answered is there').toBe(before + 1)
      before = found
      node = await startNode(settings)
    }
  })
})
