// Both databases for one suite: whatever is promised about the database is promised by PostgreSQL and by the embedded
// one.

import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type PostgresProcess, startPostgres } from 'sluice/testing'
import { afterAll, beforeAll, describe, onTestFinished } from 'vitest'
import type { Database } from '../src/db/database.ts'
import { type DatabaseSettings, openDatabase } from '../src/db/open-database.ts'

export type TestDatabase = {
  /** Settings of a new, empty database. */
  readonly empty: () => DatabaseSettings
  /** Opens it, or one that is as good as new, for one test. */
  readonly open: (settings?: DatabaseSettings) => Promise<Database>
}

/** Runs the suite twice. Each test gets a database of its own. */
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

/** A PostgreSQL for all tests of a describe. */
export function usePostgres(): () => PostgresProcess {
  let postgres: PostgresProcess | undefined
  beforeAll(async () => {
    postgres = await startPostgres()
  })
  afterAll(() => postgres?.stop())
  return () => postgres as PostgresProcess // beforeAll has run
}

/** A folder that is gone after the test. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-data-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** To make an embedded database takes seconds and to open one takes one, but to copy or to empty one is quick. */
function useEmbedded(): { empty: () => DatabaseSettings; shared: () => Database } {
  const template = mkdtempSync(join(tmpdir(), 'sluice-template-'))
  const folder = mkdtempSync(join(tmpdir(), 'sluice-shared-'))
  let shared: Database | undefined
  beforeAll(async () => {
    const database = await openDatabase({ database: undefined, dataDir: template })
    await database.query('SELECT 1')
    await database.close()
    cpSync(template, folder, { recursive: true })
    shared = await openDatabase({ database: undefined, dataDir: folder })
  })
  afterAll(async () => {
    await shared?.close()
    for (const made of [template, folder]) rmSync(made, { recursive: true, force: true })
  })
  const empty = () => {
    const dataDir = temporaryFolder()
    cpSync(template, dataDir, { recursive: true })
    return { database: undefined, dataDir }
  }
  return { empty, shared: () => shared as Database } // beforeAll has run
}
