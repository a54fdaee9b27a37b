// Runs one suite on both databases: PostgreSQL and the embedded one make the same guarantees.

import { createHash } from 'node:crypto'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type PostgresProcess, startPostgres } from 'sluice/testing'
import { afterAll, beforeAll, describe, onTestFinished, vi } from 'vitest'
import { RUN_FOLDER, stopAfterRun } from '../../../scripts/test-run.ts'
import type { Database } from '../src/db/database.ts'
import { migrate } from '../src/db/migrate.ts'
import { type DatabaseSettings, openAhead, openDatabase } from '../src/db/open-database.ts'

export type TestDatabase = {
  /** Settings of a new, empty database. */
  readonly empty: () => DatabaseSettings
  /** Opens an empty database for one test. Without settings, all tests share it, one after the other. */
  readonly open: (settings?: DatabaseSettings) => Promise<Database>
}

/** `migrated`: without rows, whose migrations have run. `blank`: without tables. */
type Kind = 'migrated' | 'blank'

/** Runs the suite twice. Each test gets an empty database. */
export function describeDatabases(
  title: string,
  suite: (database: TestDatabase) => void,
  kind: Kind = 'migrated',
): void {
  describe(`${title}, on PostgreSQL`, () => {
    const postgres = usePostgres()
    const empty = () => ({
      database: postgres().createDatabase(kind === 'blank' ? '' : undefined),
      dataDir: temporaryFolder(),
    })
    const open = async (settings?: DatabaseSettings) => {
      if (settings !== undefined) return openForTest(settings)
      const shared = await openForTest({ database: await postgres().shared(kind), dataDir: '' })
      await shared.query(EMPTY[kind])
      return shared
    }
    suite({ empty, open })
  })
  describe(`${title}, on the embedded database`, () => {
    const { empty, shared } = useEmbedded(kind === 'blank' ? BLANK : MIGRATED)
    const open = async (settings?: DatabaseSettings) => {
      if (settings !== undefined) return openForTest(settings)
      await shared().query(EMPTY[kind])
      return shared()
    }
    suite({ empty, open })
  })
}

async function openForTest(settings: DatabaseSettings): Promise<Database> {
  const database = await openDatabase(settings)
  onTestFinished(() => database.close())
  return database
}

type SharedPostgres = PostgresProcess & {
  /** The URL of a database that `EMPTY` empties before each test: copying one takes a hundred times as long. */
  shared(kind: Kind): Promise<string>
}

let postgresOfWorker: Promise<SharedPostgres> | undefined

/**
 * The PostgreSQL of this worker: all its test files share it, one after the other. A test that shuts it down starts it
 * again. The run stops it at its end. `createDatabase()` copies a database whose migrations have run,
 * `createDatabase('')` an empty one.
 */
export function usePostgres(): () => SharedPostgres {
  let postgres: SharedPostgres | undefined
  beforeAll(async () => {
    postgresOfWorker ??= startMigrated()
    postgres = await postgresOfWorker
    stopAfterRun(postgres.folder)
    await postgres.up()
  })
  return () => postgres as SharedPostgres // beforeAll has run
}

async function startMigrated(): Promise<SharedPostgres> {
  const postgres = await startPostgres()
  const template = postgres.createDatabase()
  await withDatabase(template, migrate)
  const name = new URL(template).pathname.slice(1)
  const createDatabase = (from = name) => postgres.createDatabase(from)
  const prepare = async (kind: Kind) => {
    const url = createDatabase(kind === 'blank' ? '' : undefined)
    if (kind === 'migrated') await withDatabase(url, (database) => database.query(KEEP_ROWS))
    return url
  }
  const prepared: Partial<Record<Kind, Promise<string>>> = {}
  const shared = (kind: Kind) => {
    prepared[kind] ??= prepare(kind)
    return prepared[kind]
  }
  return { ...postgres, createDatabase, shared }
}

async function withDatabase(url: string, work: (database: Database) => Promise<unknown>): Promise<void> {
  const database = await openDatabase({ database: url, dataDir: '' })
  await work(database)
  await database.close()
}

/** A folder that is deleted after the test. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-data-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** Keeps the rows that migrations insert, as JSON by table. */
const KEEP_ROWS = `
  CREATE SCHEMA kept;
  CREATE TABLE kept.tables (name text PRIMARY KEY, rows json);
  DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
      EXECUTE format('INSERT INTO kept.tables SELECT %L, json_agg(t) FROM %I t', name, name);
    END LOOP;
  END $$`

/** Restores those rows and restarts sequences. Triggers are off, because some of them protect rows. */
const RESTORE_ROWS = `
  SET session_replication_role = replica;
  DO $$ DECLARE kept record; name text; BEGIN
    FOR kept IN SELECT * FROM kept.tables LOOP
      EXECUTE format('DELETE FROM %I', kept.name);
      EXECUTE format('INSERT INTO %I SELECT * FROM json_populate_recordset(NULL::%I, $1)', kept.name, kept.name)
        USING coalesce(kept.rows, '[]');
    END LOOP;
    FOR name IN SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' LOOP
      EXECUTE format('ALTER SEQUENCE %I RESTART', name);
    END LOOP;
  END $$;
  SET session_replication_role = origin`

const EMPTY: Record<Kind, string> = {
  blank: 'DROP SCHEMA public CASCADE; CREATE SCHEMA public',
  migrated: RESTORE_ROWS,
}

/** Opening an embedded database takes a second; emptying one is fast. */
function useEmbedded(template: Template): { empty: () => DatabaseSettings; shared: () => Database } {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-shared-'))
  let shared: Database | undefined
  beforeAll(async () => {
    await fillFrom(template, folder)
    shared = await openDatabase({ database: undefined, dataDir: folder })
    if (template === MIGRATED) await shared.query(KEEP_ROWS)
  })
  afterAll(async () => {
    await shared?.close()
    rmSync(folder, { recursive: true, force: true })
  })
  const empty = () => {
    const dataDir = temporaryFolder()
    cpSync(template.folder, dataDir, { recursive: true }) // made by beforeAll
    return { database: undefined, dataDir }
  }
  return { empty, shared: () => shared as Database } // beforeAll has run
}

/** `from`: the template that it is made of. */
type Template = {
  readonly folder: string
  readonly from?: Template
  prepare(database: Database): Promise<unknown>
}

/** Embedded databases that tests copy: creating one takes five seconds of CPU time, the migrations two. */
const BLANK: Template = { folder: templateFolder('blank'), prepare: (database) => database.query('SELECT 1') }
const MIGRATED: Template = {
  folder: templateFolder(`migrated-${hashOfMigrations()}`),
  from: BLANK,
  prepare: (database) => migrate(database),
}

function templateFolder(name: string): string {
  return fileURLToPath(new URL(`../../../node_modules/.sluice-${name}-database`, import.meta.url))
}

function hashOfMigrations(): string {
  const folder = new URL('../migrations/', import.meta.url)
  const files = readdirSync(folder).sort()
  const hash = createHash('sha256')
  for (const name of files) hash.update(name).update(readFileSync(new URL(name, folder)))
  return hash.digest('hex').slice(0, 16)
}

async function fillFrom(template: Template, target: string): Promise<void> {
  await makeOnce(template)
  cpSync(template.folder, target, { recursive: true })
}

/** One worker makes the template; the others wait for it. */
async function makeOnce(template: Template): Promise<void> {
  const { folder } = template
  const lock = join(process.env[RUN_FOLDER] ?? tmpdir(), `${basename(folder)}.lock`)
  while (!existsSync(folder)) {
    if (isNewFolder(lock)) await make(template).finally(() => rmSync(lock, { recursive: true }))
    else await vi.waitUntil(() => existsSync(folder) || !existsSync(lock), { timeout: 180_000 })
  }
}

async function make({ folder, from, prepare }: Template): Promise<void> {
  const mine = `${folder}-${process.pid}`
  if (from !== undefined) await fillFrom(from, mine)
  const database = await openDatabase({ database: undefined, dataDir: mine })
  await prepare(database)
  await database.close()
  if (existsSync(folder))
    rmSync(mine, { recursive: true }) // another run made it meanwhile
  else renameSync(mine, folder)
}

function isNewFolder(path: string): boolean {
  try {
    mkdirSync(path)
    return true
  } catch {
    return false
  }
}

/** Creates the contents of a data folder as a node would: a database without rows, whose migrations have run. */
export function fillWithEmptyDatabase(folder: string): Promise<void> {
  return fillFrom(MIGRATED, folder)
}

/** A data folder with an empty database, for one test. */
export async function emptyDataDir(): Promise<string> {
  const folder = temporaryFolder()
  await fillWithEmptyDatabase(folder)
  return folder
}

type SharedEmbedded = { readonly dataDir: string; readonly database: Database; isTaken: boolean }

let sharedOfWorker: Promise<SharedEmbedded> | undefined

/**
 * The data folder of a node with an empty embedded database, for one test. The database is open already, and all tests
 * of this worker share it, one after the other, because opening one takes half a second. A test that needs a second one
 * meanwhile gets its own.
 */
export async function sharedDataDir(): Promise<string> {
  sharedOfWorker ??= openShared()
  const shared = await sharedOfWorker
  if (shared.isTaken) return emptyDataDir()
  shared.isTaken = true
  onTestFinished(() => {
    shared.isTaken = false
  })
  await shared.database.query(RESTORE_ROWS)
  openAhead(shared.dataDir, Promise.resolve(withoutClose(shared.database)))
  return shared.dataDir
}

async function openShared(): Promise<SharedEmbedded> {
  const dataDir = mkdtempSync(join(process.env[RUN_FOLDER] ?? tmpdir(), 'embedded-'))
  await fillWithEmptyDatabase(dataDir)
  const database = await openDatabase({ database: undefined, dataDir })
  await database.query(KEEP_ROWS)
  return { dataDir, database, isTaken: false }
}

/** A node closes its database: here that ends its subscriptions. */
function withoutClose(database: Database): Database {
  const listening: { stop(): Promise<void> }[] = []
  return {
    ...database,
    listen: async (channel, onNotify) => {
      const started = await database.listen(channel, onNotify)
      listening.push(started)
      return started
    },
    close: async () => {
      for (const each of listening) await each.stop()
    },
  }
}
