import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { parseRules } from 'sluice'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { DatabaseUnavailable } from '../src/db/database.ts'
import { lockFolder } from '../src/db/folder-lock.ts'
import { migrate } from '../src/db/migrate.ts'
import { DATABASE_FOLDER, openDatabase } from '../src/db/open-database.ts'
import { embeddedAnalytics } from '../src/events/embedded/embedded-analytics.ts'
import { embeddedSink } from '../src/events/embedded/embedded-sink.ts'
import { VERSION } from '../src/package-facts.ts'
import { RuleStore } from '../src/rules/rule-store.ts'
import { describeDatabases, emptyDataDir, temporaryFolder, usePostgres } from './databases.ts'
import { batchOf, eventRow } from './event-rows.ts'

describeDatabases(
  'the database',
  ({ open, empty }) => {
    test('returns integers, times, addresses and JSON as native values', async () => {
      const { query } = await open()
      const at = new Date('2026-01-02T03:04:05.678Z')
      const sql =
        'SELECT $1::bigint AS big, $2::timestamptz AS at, $3::jsonb AS json, $4::inet AS ip, $5::text AS missing'
      const [row] = await query(sql, [2 ** 53 - 1, at, '{"a":[1,"x"]}', '203.0.113.42', null])
      expect(row).toEqual({ big: 2 ** 53 - 1, at, json: { a: [1, 'x'] }, ip: '203.0.113.42', missing: null })
    })

    test('treats parameters as values, even if they contain SQL', async () => {
      const { query } = await open()
      const text = `'; DROP TABLE rules; -- "\\ $1 ü 🚰`
      expect(await query('SELECT $1::text AS text', [text])).toEqual([{ text }])
    })

    test('a transaction that throws is rolled back, one that completes is committed', async () => {
      const database = await open()
      await database.query('CREATE TABLE t (a int)')
      const work = database.transaction(async ({ query }) => {
        await query('INSERT INTO t VALUES (1)')
        throw new Error('on purpose')
      })
      await expect(work).rejects.toThrow('on purpose')
      expect(await database.query('SELECT a FROM t')).toEqual([])
      await database.transaction(({ query }) => query('INSERT INTO t VALUES (2)'))
      expect(await database.query('SELECT a FROM t')).toEqual([{ a: 2 }])
    })

    test('concurrent transactions do not see uncommitted changes of each other', async () => {
      const database = await open()
      await database.query('CREATE TABLE t (a int); INSERT INTO t VALUES (0)')
      const addOne = () =>
        database.transaction(async ({ query }) => {
          const [row] = await query<{ a: number }>('SELECT a FROM t FOR UPDATE')
          await query('UPDATE t SET a = $1', [(row?.a ?? 0) + 1])
        })
      await Promise.all(Array.from({ length: 10 }, addOne))
      expect(await database.query('SELECT a FROM t')).toEqual([{ a: 10 }])
    })

    test('an SQL error has its code and is not an outage', async () => {
      const database = await open()
      const error = await database.query('SELECT * FROM nowhere', []).catch((caught) => caught)
      expect(error).toMatchObject({ code: '42P01' })
      expect(error).not.toBeInstanceOf(DatabaseUnavailable)
    })

    test.each([
      ['a full disk', '53100'],
      ['too many connections', '53300'],
      ['a deadlock', '40P01'],
      ['a lock that is not to be had', '55P03'],
      ['a question that takes too long', '57014'],
    ])('%s is an outage, not an SQL error', async (_, code) => {
      const { query } = await open()
      const failure = query(`DO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '${code}'; END $$`)
      await expect(failure).rejects.toBeInstanceOf(DatabaseUnavailable)
    })

    test('a NOTIFY reaches its listeners once its transaction is committed', async () => {
      const database = await open()
      let woken = 0
      const listening = await database.listen('some-channel', () => {
        woken += 1
      })
      const before = woken
      await database.transaction(({ query }) => query("SELECT pg_notify('some-channel', '')"))
      await vi.waitFor(() => expect(woken).toBe(before + 1), { timeout: 10_000 })
      await listening.stop()
    })

    test('migrations run once, and existing rows stay', async () => {
      const settings = empty()
      const first = await openDatabase(settings)
      expect(await migrate(first)).toContain('0001_tables.sql')
      await first.query("INSERT INTO rules VALUES ('a', 1, '{}')")
      await first.close()
      const second = await open(settings)
      expect(await migrate(second)).toEqual([])
      expect(await second.query('SELECT rule_id FROM rules')).toEqual([{ rule_id: 'a' }])
    })

    test('a migration that arrives after a later one still runs', async () => {
      const database = await open()
      const named = (name: string) => ({ name: `${name}.sql`, sql: `CREATE TABLE late_${name} (a int)`, hash: name })
      const [one, two, three] = [named('1'), named('2'), named('3')]
      expect(await migrate(database, [one, three])).toEqual(['1.sql', '3.sql'])
      expect(await migrate(database, [one, two, three])).toEqual(['2.sql'])
      expect(await migrate(database, [one, two, three])).toEqual([])
    })

    test('a newer migration keeps an older version from starting, unless it is marked as compatible', async () => {
      const database = await open()
      const one = { name: '1.sql', sql: 'CREATE TABLE one (a int)', hash: 'x' }
      const harmless = { name: '2.sql', sql: '-- Compatible: a view.\nCREATE VIEW two AS SELECT 2', hash: 'y' }
      const breaking = { name: '3.sql', sql: 'ALTER TABLE one RENAME TO three', hash: 'z' }
      await migrate(database, [one, harmless])
      expect(await migrate(database, [one])).toEqual([])
      await migrate(database, [one, harmless, breaking])
      await database.query("UPDATE schema_migrations SET version = '9.1.0' WHERE name = '3.sql'")
      await expect(migrate(database, [one])).rejects.toThrow(
        `the database has migrations that Sluice ${VERSION} does not know (3): start 9.1.0 or a newer version`,
      )
      expect(await migrate(database, [one, harmless, breaking])).toEqual([])
    })

    test('the table of migrations of an earlier version is continued', async () => {
      const database = await open()
      const one = { name: '1.sql', sql: 'CREATE TABLE one (a int)', hash: 'x' }
      await database.query(`CREATE TABLE schema_migrations (
        name text PRIMARY KEY, hash text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());
        INSERT INTO schema_migrations (name, hash) VALUES ('1.sql', 'x')`)
      const two = { name: '2.sql', sql: '-- Compatible: a table.\nCREATE TABLE two (a int)', hash: 'y' }
      expect(await migrate(database, [one, two])).toEqual(['2.sql'])
      const rows = await database.query('SELECT name, compatible, version FROM schema_migrations ORDER BY name')
      expect(rows).toEqual([
        { name: '1.sql', compatible: false, version: null },
        { name: '2.sql', compatible: true, version: VERSION },
      ])
    })

    test('a failed migration is rolled back, and an edited one is rejected', async () => {
      const database = await open()
      const good = { name: '1.sql', sql: 'CREATE TABLE one (a int)', hash: 'x' }
      const bad = { name: '2.sql', sql: 'CREATE TABLE two (a int); SELECT * FROM nowhere', hash: 'y' }
      await expect(migrate(database, [good, bad])).rejects.toThrow('nowhere')
      await expect(database.query('SELECT * FROM one')).rejects.toThrow('one')
      expect(await migrate(database, [good])).toEqual(['1.sql'])
      const edited = migrate(database, [{ ...good, hash: 'z' }])
      await expect(edited).rejects.toThrow('migration 1.sql was edited after it ran: add a new one instead')
    })

    test('rows of the audit log cannot be changed by accident', async () => {
      const database = await open()
      await migrate(database)
      for (const sql of ['UPDATE audit SET actor = $1', 'DELETE FROM audit WHERE actor = $1']) {
        await expect(database.query(sql, ['x'])).rejects.toThrow('rows of audit are never changed')
      }
    })
  },
  'blank',
)

test('each new migration says whether versions that do not know it may start beside it', () => {
  const folder = new URL('../migrations/', import.meta.url)
  const added = readdirSync(folder).filter((name) => name >= '0015')
  expect(added).not.toEqual([])
  for (const name of added)
    expect(readFileSync(new URL(name, folder), 'utf8'), name).toMatch(/^-- (Compatible|Incompatible): \S/m)
})

describe('PostgreSQL', () => {
  const postgres = usePostgres()

  test('a database that does not exist is named with the command that creates it', async () => {
    const address = new URL(postgres().createDatabase(''))
    address.pathname = '/not-created'
    const database = await openDatabase({ database: address.href, dataDir: temporaryFolder() })
    onTestFinished(() => database.close())
    await expect(database.query('SELECT 1')).rejects.toThrow(/"not-created" does not exist; .*: createdb not-created$/)
  })

  test('nodes that start together migrate an empty database once', async () => {
    const settings = { database: postgres().createDatabase(''), dataDir: temporaryFolder() }
    const nodes = await Promise.all(Array.from({ length: 4 }, () => openDatabase(settings)))
    const ran = await Promise.all(nodes.map((node) => migrate(node)))
    const files = readdirSync(new URL('../migrations', import.meta.url)).sort()
    expect(files[0]).toBe('0001_tables.sql')
    expect(ran.flat()).toEqual(files)
    await Promise.all(nodes.map((node) => node.close()))
  })

  test('a node that freezes during a change does not block the others for long', async () => {
    const database = await openDatabase({ database: postgres().createDatabase(), dataDir: temporaryFolder() })
    await database.query('CREATE TABLE t (a int); INSERT INTO t VALUES (1)')
    const limits = ['idle_in_transaction_session_timeout', 'lock_timeout'].map((name) => `current_setting('${name}')`)
    expect(await database.query(`SELECT ${limits[0]} AS idle, ${limits[1]} AS lock`)).toEqual([
      { idle: '10s', lock: '10s' },
    ])
    await database.transaction(async (frozen) => {
      await frozen.query('SELECT a FROM t FOR UPDATE')
      const second = database.transaction(async ({ query }) => {
        await query('SET LOCAL lock_timeout = 50')
        await query('UPDATE t SET a = 2')
      })
      await expect(second).rejects.toBeInstanceOf(DatabaseUnavailable)
    })
    await database.close()
  })

  test('while it is down every query fails immediately; then queries and notifications resume', async () => {
    const database = await openDatabase({ database: postgres().createDatabase(), dataDir: temporaryFolder() })
    let woken = 0
    await database.listen('c', () => {
      woken += 1
    })
    await database.query('SELECT 1')
    await postgres().down()
    await expect(database.query('SELECT 1')).rejects.toBeInstanceOf(DatabaseUnavailable)
    await expect(database.transaction(async () => {})).rejects.toBeInstanceOf(DatabaseUnavailable)
    const before = woken
    await postgres().up()
    await vi.waitFor(() => expect(woken).toBe(before + 1), { timeout: 10_000 })
    await database.query("SELECT pg_notify('c', '')")
    await vi.waitFor(() => expect(woken).toBe(before + 2), { timeout: 10_000 })
    await database.close()
  })
})

describe('the embedded database', () => {
  test('changes the rules before it stores events and answers analytics that wait', async () => {
    const database = await openDatabase({ database: undefined, dataDir: await emptyDataDir() })
    onTestFinished(() => database.close())
    const order: string[] = []
    const noted = (work: Promise<unknown>, name: string) => work.then(() => order.push(name))
    const [sink, analytics] = [embeddedSink(database.background), embeddedAnalytics(database.background)]
    const waiting = [1, 2, 3, 4].flatMap((seq) => [
      noted(sink.write({ producer: 'p', seq }, batchOf({ events: [eventRow()] }), false), 'events'),
      noted(analytics.summary({ fromMs: 0, toMs: 60_000, filter: {} }), 'analytics'),
    ])
    const change = { action: 'rules.replace', next: async () => parseRules([{ rule_id: 'r', limit: 1, window: '1m' }]) }
    const options = { author: { actor: 'test', reason: undefined }, path: 'rules.edit' as const }
    await Promise.all([...waiting, noted(new RuleStore(database).edit(change, options), 'rules')])
    expect(order.slice(0, 3)).toEqual(['events', 'rules', 'analytics']) // the first write had begun
    expect(order).toHaveLength(9)
  })

  test('makes checkpoints while it runs, so that its WAL stays bounded', async () => {
    const dataDir = await emptyDataDir()
    const thread = fileURLToPath(new URL('../threads/embedded-database.mjs', import.meta.url))
    const workerData = { folder: join(dataDir, DATABASE_FOLDER), checkpointMs: 20, checkpointBytes: 100_000 }
    const worker = new Worker(thread, { workerData })
    onTestFinished(async () => void (await worker.terminate()))
    const ask = async (sql: string) => {
      worker.postMessage({ id: 1, sql })
      const [{ rows }] = (await once(worker, 'message')) as [{ rows: { redo: string }[] }]
      return rows[0]?.redo
    }
    const lastCheckpoint = () => ask('SELECT redo_lsn::text AS redo FROM pg_control_checkpoint()')
    const before = await lastCheckpoint()
    await ask('CREATE TABLE t AS SELECT repeat(md5(n::text), 10) FROM generate_series(1, 1000) n')
    await vi.waitFor(async () => expect(await lastCheckpoint()).not.toBe(before), 30_000)
  })

  test('is created atomically: a start that is killed leaves no partial database behind', async () => {
    const dataDir = temporaryFolder()
    mkdirSync(join(dataDir, `${DATABASE_FOLDER}.new-1`))
    writeFileSync(join(dataDir, `${DATABASE_FOLDER}.new-1`, 'PG_VERSION'), '18')
    const database = await openDatabase({ database: undefined, dataDir })
    onTestFinished(() => database.close())
    expect(await database.query('SELECT 1 AS one')).toEqual([{ one: 1 }])
    expect(readdirSync(dataDir).sort()).toEqual([DATABASE_FOLDER, 'lock'])
  }, 120_000)
})

describe('the data folder', () => {
  test('belongs to one process: a second one fails with the fix', async () => {
    const dataDir = temporaryFolder()
    const lock = lockFolder(dataDir)
    await expect(openDatabase({ database: undefined, dataDir })).rejects.toThrow(
      `the data folder ${dataDir} is in use by process ${process.pid}: stop it, use another folder with --data-dir`,
    )
    lock.release()
    expect(existsSync(join(dataDir, 'lock'))).toBe(false)
  })

  test.each([
    ['has died', () => ({ pid: deadProcess() })],
    ['had a number that another process has by now', () => ({ started: 'before' })],
  ])('is taken over from a process that %s', (_, change) => {
    const folder = temporaryFolder()
    lockFolder(folder)
    const path = join(folder, 'lock')
    const held = JSON.parse(readFileSync(path, 'utf8'))
    writeFileSync(path, JSON.stringify({ ...held, ...change() }))
    lockFolder(folder).release()
  })

  test.runIf(process.platform === 'linux')('is taken over from a zombie process', async () => {
    const folder = temporaryFolder()
    lockFolder(folder)
    const shell = spawn('sh', ['-c', 'sleep 60 & echo $!; exec sleep 60'], { stdio: ['ignore', 'pipe', 'ignore'] })
    onTestFinished(() => void shell.kill())
    const [printed] = (await once(shell.stdout, 'data')) as [Buffer]
    const pid = Number(printed.toString())
    const stat = (of = pid) => readFileSync(`/proc/${of}/stat`, 'utf8').split(' ')
    await vi.waitFor(() => expect(stat(shell.pid)[1]).toBe('(sleep)'), 10_000) // its parent reaps no children
    process.kill(pid, 'SIGKILL')
    await vi.waitFor(() => expect(stat()[2]).toBe('Z'), 10_000)
    const path = join(folder, 'lock')
    const held = JSON.parse(readFileSync(path, 'utf8'))
    const [boot] = held.started.split(' ')
    writeFileSync(path, JSON.stringify({ ...held, pid, started: `${boot} ${stat()[21]}` }))
    lockFolder(folder).release()
  })

  test('is taken over when the lock was only half written', () => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'lock'), '{"pi')
    lockFolder(folder).release()
  })

  test('is not taken over while the lock is being written', async () => {
    const [folder, other] = [temporaryFolder(), temporaryFolder()]
    lockFolder(other)
    writeFileSync(join(folder, 'lock'), '')
    const [from, to] = [join(other, 'lock'), join(folder, 'lock')].map((path) => JSON.stringify(path))
    const writer = new Worker(`setTimeout(() => require('node:fs').copyFileSync(${from}, ${to}), 100)`, { eval: true })
    await once(writer, 'online')
    expect(() => lockFolder(folder)).toThrow('is in use by process')
    await writer.terminate()
  })

  test('is not taken over when the lock comes from another machine; the message says how to proceed', () => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'lock'), JSON.stringify({ pid: 1, started: 'x', host: 'elsewhere' }))
    expect(() => lockFolder(folder)).toThrow(
      /process 1 on the machine elsewhere \(if that machine no longer exists, delete .*lock\)/,
    )
  })
})

function deadProcess(): number {
  return Number(execFileSync(process.execPath, ['-p', 'process.pid'], { encoding: 'utf8' }))
}
