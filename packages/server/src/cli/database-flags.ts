// Commands that can do without a node: they open the database themselves when it is named.

import { existsSync } from 'node:fs'
import type { Database } from '../db/database.ts'
import { openDatabase } from '../db/open-database.ts'
import { reasonOf } from '../reason.ts'
import type { Given } from './arguments.ts'
import { CommandError, EXIT, type Flag } from './command.ts'
import { SETTING_FLAGS } from './setting-flags.ts'

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
  if (url === undefined && !existsSync(folder))
    throw new CommandError(`--data-dir: give a folder that exists (got ${JSON.stringify(folder)})`, EXIT.wrong)
  const database = await openDatabase({ database: url, dataDir: folder }).catch(rethrow)
  try {
    return await work(database).catch(rethrow)
  } finally {
    await database.close()
  }
}

function rethrow(error: unknown): never {
  if (error instanceof CommandError) throw error
  throw new CommandError(`the database cannot be used: ${reasonOf(error)}`)
}
