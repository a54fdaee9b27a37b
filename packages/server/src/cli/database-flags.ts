// Commands that can do without a node: they open the database themselves when it is named.

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Database } from '../db/database.ts'
import { DATABASE_FOLDER, openDatabase } from '../db/open-database.ts'
import { reasonOf } from '../problems/reason.ts'
import type { Given } from './arguments.ts'
import { CommandError, EXIT, type Flag } from './command.ts'
import { SETTING_FLAGS } from './setting-flags.ts'

/** What PostgreSQL calls it. */
const NO_SUCH_TABLE = '42P01'

/** Without their variables and fallbacks: a node is asked unless one of them is given here and now. */
export const DATABASE_FLAGS: readonly Flag[] = SETTING_FLAGS.filter(({ name }) => {
  return name === 'database' || name === 'data-dir'
}).map(({ shownFallback, env, ...flag }) => ({
  ...flag,
  help: `Do it in the database itself, without a node. ${flag.help}`,
}))

export function namesDatabase(given: Given): boolean {
  return given.has('database') || given.has('data-dir')
}

export async function withDatabase<T>(given: Given, work: (database: Database) => Promise<T>): Promise<T> {
  const [url, folder = ''] = [given.text('database'), given.text('data-dir')]
  if (url === undefined && !existsSync(join(folder, DATABASE_FOLDER))) {
    const fix = 'give the data folder of a node: no database is in this one'
    throw new CommandError(`--data-dir: ${fix} (got ${JSON.stringify(folder)})`, EXIT.wrong)
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
  const why = isEmpty ? 'it holds no tables of sluice: is it the right one?' : reasonOf(error)
  throw new CommandError(`the database cannot be used: ${why}`)
}
