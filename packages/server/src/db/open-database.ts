// Opens the configured database, which holds rules, tokens, the audit log and events.

import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Settings } from '../settings/settings.ts'
import type { Database } from './database.ts'

export type DatabaseSettings = Pick<Settings, 'database' | 'dataDir'>

/** Folder of the embedded database inside the data folder. */
export const DATABASE_FOLDER = 'database'

/** Databases that were opened ahead, by data folder, until `openDatabase` takes them over. */
const openedAhead = new Map<string, Promise<Database>>()

/** The next `openDatabase` with this folder returns this database, or throws its error. */
export function openAhead(dataDir: string, database: Promise<Database>): void {
  database.catch(() => {}) // openDatabase throws it
  openedAhead.set(dataDir, database)
}

/** Opens an existing embedded database in its thread while the modules of the service load. */
export function beginOpening({ rules, database, dataDir, workers = 1 }: Settings): void {
  const isEmbedded = rules === undefined && database === undefined && workers === 1
  if (isEmbedded && existsSync(join(dataDir, DATABASE_FOLDER))) openAhead(dataDir, openDatabase({ database, dataDir }))
}

/** Loads only the driver in use, because both are large. */
export async function openDatabase({ database, dataDir }: DatabaseSettings): Promise<Database> {
  if (database !== undefined) return (await import('./postgres.ts')).openPostgres(database)
  const ahead = openedAhead.get(dataDir)
  openedAhead.delete(dataDir)
  if (ahead !== undefined) return ahead
  return (await import('./embedded.ts')).openEmbedded(resolve(dataDir), DATABASE_FOLDER)
}
