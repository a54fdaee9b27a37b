// Settings → the database that holds rules, tokens, audit and violations.

import { resolve } from 'node:path'
import type { Settings } from '../settings/settings.ts'
import type { Database } from './database.ts'

export type DatabaseSettings = Pick<Settings, 'database' | 'dataDir'>

/** Of the embedded one, in the data folder. */
export const DATABASE_FOLDER = 'database'

/** Each is loaded when needed only: neither is small. */
export async function openDatabase({ database, dataDir }: DatabaseSettings): Promise<Database> {
  if (database !== undefined) return (await import('./postgres.ts')).openPostgres(database)
  return (await import('./embedded.ts')).openEmbedded(resolve(dataDir), DATABASE_FOLDER)
}
