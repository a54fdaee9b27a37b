import { hostname } from 'node:os'
import { startRedis } from 'sluice/testing'
import { expect, onTestFinished, test } from 'vitest'
import { appendAudit, verifyAudit } from '../src/audit/audit.ts'
import type { Database } from '../src/db/database.ts'
import { migrate } from '../src/db/migrate.ts'
import { DRILL_PATH } from '../src/http/routes/drill.ts'
import { RESET_PATH } from '../src/http/routes/reset.ts'
import { describeDatabases } from './databases.ts'
import { ADMIN_TOKEN, serveApp, serveSettings } from './service.ts'

const AT = new Date('2026-01-02T03:04:05.678Z')

function append(database: Database, target: string): Promise<void> {
  const entry = { actor: 'ann', action: 'rule.update', target, diff: { limit: [1, 2] }, reason: 'tests' }
  return database.transaction((queries) => appendAudit(queries, entry, AT))
}

/** Changes that are possible only with the triggers disabled. */
async function byHand(database: Database, sql: string): Promise<void> {
  await database.query(
    `ALTER TABLE audit DISABLE TRIGGER audit_is_append_only; ${sql};
     ALTER TABLE audit ENABLE TRIGGER audit_is_append_only`,
  )
}

describeDatabases('the audit log', ({ empty, open }) => {
  const filled = async () => {
    const database = await open()
    await migrate(database)
    for (const target of ['a', 'b', 'c', 'd']) await append(database, target)
    return database
  }

  test('is intact unless it is tampered with, also under concurrent writes', async () => {
    const database = await filled()
    await Promise.all(Array.from({ length: 20 }, (_, index) => append(database, `rule_${index}`)))
    expect(await verifyAudit(database)).toEqual({
      intact: true,
      rows: 24,
      hash: expect.stringMatching(/^[\da-f]{64}$/),
    })
    const [row] = await database.query('SELECT * FROM audit WHERE seq = 2')
    expect(row).toMatchObject({ seq: 2, at: AT, actor: 'ann', action: 'rule.update', target: 'b', reason: 'tests' })
  })

  test('records resets and drills: who, what and why', async () => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const settings = empty()
    const node = await serveSettings({ ...settings, redis: redis.url, storeDeadlineMs: 5000 })
    const reset = { rule_id: 'demo', key: 'a\u0000\ud800', reason: 'a mistake of ours' }
    expect(await node.post(RESET_PATH, reset, ADMIN_TOKEN)).toMatchObject({ status: 200 })
    expect(await node.post(RESET_PATH, { ...reset, rule_id: 'none' }, ADMIN_TOKEN)).toMatchObject({ status: 400 })
    for (const drill of [{ seconds: 30, reason: 'the yearly one' }, { seconds: 0 }])
      expect(await node.post(DRILL_PATH, drill, ADMIN_TOKEN)).toMatchObject({ status: 200 })
    await node.close()
    const database = await open(settings)
    const told = await database.query(
      "SELECT actor, action, target, diff, reason FROM audit WHERE action IN ('bucket.reset', 'drill') ORDER BY seq",
    )
    const by = { actor: 'admin-token', action: 'drill', target: hostname() }
    expect(told).toEqual([
      {
        ...{ actor: 'admin-token', action: 'bucket.reset', target: 'rule demo', reason: 'a mistake of ours' },
        diff: JSON.stringify({ key: reset.key }),
      },
      { ...by, diff: '{"seconds":30}', reason: 'the yearly one' },
      { ...by, diff: '{"seconds":0}', reason: null },
    ])
    expect(await verifyAudit(database)).toMatchObject({ intact: true })
  })

  test('an action that cannot be audited is not executed', async () => {
    const database = await filled()
    const app = await serveApp([{ rule_id: 'one', limit: 1, window_seconds: 60, scope: 'per_user' }], undefined, {
      database,
    })
    await app.check({ client_id: 'alice' })
    await database.query("ALTER TABLE audit ADD CHECK (action <> 'bucket.reset')")
    expect(await app.post(RESET_PATH, { rule_id: 'one', key: 'alice' }, ADMIN_TOKEN)).toMatchObject({ status: 500 })
    expect(await app.check({ client_id: 'alice' })).toMatchObject({ allowed: false })
  })

  test('a change that was rolled back leaves no entry', async () => {
    const database = await filled()
    const change = database.transaction(async (queries) => {
      await appendAudit(queries, { actor: 'ann', action: 'x', target: 'y', diff: null }, AT)
      throw new Error('on purpose')
    })
    await expect(change).rejects.toThrow('on purpose')
    expect(await verifyAudit(database)).toMatchObject({ intact: true, rows: 4 })
  })

  test.each([
    ...['at = now()', "actor = 'eve'", "action = 'x'", "target = 'x'", "diff = '{}'", 'reason = NULL', "hash = ''"].map(
      (edit) => [`${edit} in a row`, `UPDATE audit SET ${edit} WHERE seq = 2`, 2] as const,
    ),
    ['the first row deleted', 'DELETE FROM audit WHERE seq = 1', 2],
    ['a row deleted', 'DELETE FROM audit WHERE seq = 2', 3],
    [
      'a row deleted and the others moved up',
      // in two steps: one UPDATE may move row 4 before row 3, and collide with it
      `DELETE FROM audit WHERE seq = 2; UPDATE audit SET seq = -seq WHERE seq > 2;
       UPDATE audit SET seq = -seq - 1 WHERE seq < 0`,
      2,
    ],
    ['the last row deleted', 'DELETE FROM audit WHERE seq = 4', 4],
    ['all rows deleted', 'TRUNCATE audit', 4],
    [
      'two rows exchanged',
      `UPDATE audit SET seq = -2 WHERE seq = 2; UPDATE audit SET seq = 2 WHERE seq = 3;
       UPDATE audit SET seq = 3 WHERE seq = -2`,
      2,
    ],
    [
      'a row copied',
      `INSERT INTO audit SELECT 5, at, actor, action, target, diff, reason, hash FROM audit WHERE seq = 4;
       UPDATE audit_head SET seq = 5`,
      5,
    ],
    [
      'a row added behind the last one',
      "INSERT INTO audit SELECT 5, at, 'eve', action, target, diff, reason, hash FROM audit WHERE seq = 4",
      5,
    ],
    [
      'a row added before the first one',
      "INSERT INTO audit SELECT 0, at, 'eve', action, target, diff, reason, hash FROM audit WHERE seq = 4",
      4,
    ],
    ['the head deleted', 'DELETE FROM audit_head', 4],
    ['a time changed by a microsecond', "UPDATE audit SET at = at + interval '1 microsecond' WHERE seq = 2", 2],
    ['the last row edited', "UPDATE audit SET actor = 'eve' WHERE seq = 4", 4],
  ] as const)('verification fails with %s by hand', async (_, sql, seq) => {
    const database = await filled()
    await byHand(database, sql)
    expect(await verifyAudit(database)).toMatchObject({ intact: false, seq })
  })
})
