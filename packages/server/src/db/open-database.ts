// Opens the configured database, which holds rules, tokens, the audit log and events.

import { resolve } from 'node:path'
import type { Settings } from '../settings/settings.ts'
import type { Database } from './database.ts'

export type DatabaseSettings = Pick<Settings, 'database' | 'dataDir'>

/** Folder of the embedded database inside the data folder. */
export const DATABASE_FOLDER = 'database'

/** Loads only the driver in use, because both are large. */
export async function openDatabase({ database, dataDir }: DatabaseSettings): Promise<Database> {
  if (database !== undefined) return (await import('./postgres.ts')).openPostgres(database)
  return (await import('./embedded.ts')).openEmbedded(resolve(dataDir), DATABASE_FOLDER)
}
