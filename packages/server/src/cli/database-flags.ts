// Flags of commands that can open the database themselves instead of calling a node.

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Database } from '../db/database.ts'
import { DATABASE_FOLDER, openDatabase } from '../db/open-database.ts'
import { reasonOf } from '../problems/reason.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { Given } from './arguments.ts'
import { CommandError, type Flag } from './command.ts'
import { SETTING_FLAGS } from './setting-flags.ts'

/** SQLSTATE undefined_table. */
const NO_SUCH_TABLE = '42P01'

/** Without variables and defaults, because the command calls a node unless one of these flags is given. */
export const DATABASE_FLAGS: readonly Flag[] = SETTING_FLAGS.filter(({ name }) => {
  return name === 'database' || name === 'data-dir'
}).map(({ shownFallback, env, ...flag }) => ({
  ...flag,
  help: `Access the database directly, without a node. ${flag.help}`,
}))

export function namesDatabase(given: Given): boolean {
  return given.has('database') || given.has('data-dir')
}

export async function withDatabase<T>(given: Given, work: (database: Database) => Promise<T>): Promise<T> {
  const [url, folder = ''] = [given.text('database'), given.text('data-dir')]
  if (url === undefined && !existsSync(join(folder, DATABASE_FOLDER))) {
    const fix = 'give the data folder of a node: this folder contains no database'
    throw new CommandError(`--data-dir: ${fix} (got ${JSON.stringify(folder)})`, EXIT.invalid)
  }
  const database = await openDatabase({ database: url, dataDir: folder }).catch(rethrow)
  try {
    return await work(database).catch(rethrow)
  } finally {
    await database.close()
  }
}

function rethrow(error: unknown): never {
  if (error instanceof CommandError) throw error
  const isEmpty = (error as { code?: unknown }).code === NO_SUCH_TABLE
  const why = isEmpty ? 'it contains no Sluice tables. Is it the right database?' : reasonOf(error)
  throw new CommandError(`cannot use the database: ${why}`)
}
