// Runs one suite on both databases: PostgreSQL and the embedded one make the same guarantees.

import { cpSync, existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type PostgresProcess, startPostgres } from 'sluice/testing'
import { afterAll, beforeAll, describe, onTestFinished } from 'vitest'
import { stopAfterRun } from '../../../scripts/test-run.ts'
import type { Database } from '../src/db/database.ts'
import { type DatabaseSettings, openDatabase } from '../src/db/open-database.ts'

export type TestDatabase = {
  /** Settings of a new, empty database. */
  readonly empty: () => DatabaseSettings
  /** Opens an empty database for one test. */
  readonly open: (settings?: DatabaseSettings) => Promise<Database>
}

/** Runs the suite twice. Each test gets its own database. */
export function describeDatabases(title: string, suite: (database: TestDatabase) => void): void {
  describe(`${title}, on PostgreSQL`, () => {
    const postgres = usePostgres()
    const empty = () => ({ database: postgres().createDatabase(), dataDir: temporaryFolder() })
    suite({ empty, open: (settings = empty()) => openForTest(settings) })
  })
  describe(`${title}, on the embedded database`, () => {
    const { empty, shared } = useEmbedded()
    const open = async (settings?: DatabaseSettings) => {
      if (settings !== undefined) return openForTest(settings)
      await shared().query('DROP SCHEMA public CASCADE; CREATE SCHEMA public')
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

let postgresOfWorker: Promise<PostgresProcess> | undefined

/**
 * The PostgreSQL of this worker: all its test files share it, one after the other. A test that shuts it down starts it
 * again. The run stops it at its end.
 */
export function usePostgres(): () => PostgresProcess {
  let postgres: PostgresProcess | undefined
  beforeAll(async () => {
    postgresOfWorker ??= startPostgres()
    postgres = await postgresOfWorker
    stopAfterRun(postgres.folder)
    await postgres.up()
  })
  return () => postgres as PostgresProcess // beforeAll has run
}

/** A folder that is deleted after the test. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-data-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** Opening an embedded database takes a second; emptying one is fast. */
function useEmbedded(): { empty: () => DatabaseSettings; shared: () => Database } {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-shared-'))
  let shared: Database | undefined
  beforeAll(async () => {
    await fillWithEmptyDatabase(folder)
    shared = await openDatabase({ database: undefined, dataDir: folder })
  })
  afterAll(async () => {
    await shared?.close()
    rmSync(folder, { recursive: true, force: true })
  })
  const empty = () => {
    const dataDir = temporaryFolder()
    cpSync(TEMPLATE, dataDir, { recursive: true }) // made by beforeAll
    return { database: undefined, dataDir }
  }
  return { empty, shared: () => shared as Database } // beforeAll has run
}

/** An empty embedded database that all tests copy, because creating one takes five seconds of CPU time. */
const TEMPLATE = fileURLToPath(new URL('../../../node_modules/.sluice-empty-database', import.meta.url))

/** Creates the contents of a data folder as the first start of a node would. */
export async function fillWithEmptyDatabase(folder: string): Promise<void> {
  if (!existsSync(TEMPLATE)) {
    const mine = `${TEMPLATE}-${process.pid}`
    const database = await openDatabase({ database: undefined, dataDir: mine })
    await database.query('SELECT 1')
    await database.close()
    if (!existsSync(TEMPLATE)) renameSync(mine, TEMPLATE)
    rmSync(mine, { recursive: true, force: true })
  }
  cpSync(TEMPLATE, folder, { recursive: true })
}

/** A data folder with an empty database, for one test. */
export async function emptyDataDir(): Promise<string> {
  const folder = temporaryFolder()
  await fillWithEmptyDatabase(folder)
  return folder
}
