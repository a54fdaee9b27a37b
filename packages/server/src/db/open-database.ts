// Opens the configured database, which holds rules, tokens, the audit log and events.

import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Settings } from '../settings/settings.ts'
import type { Database } from './database.ts'

export type DatabaseSettings = Pick<Settings, 'database' | 'dataDir'>

/** Folder of the embedded database inside the data folder. */
export const DATABASE_FOLDER = 'database'

/** Opening that began before the service was loaded, until `openDatabase` takes it over. */
let begun: { readonly dataDir: string; readonly database: Promise<Database> } | undefined

/**
 * Begins to open an existing embedded database in its thread, so that this takes place while the modules of the service
 * load. The next `openDatabase` with this folder returns it, or throws its error.
 */
export function beginOpening({ rules, database, dataDir, workers = 1 }: Settings): void {
  const isEmbedded = rules === undefined && database === undefined && workers === 1
  if (!isEmbedded || !existsSync(join(dataDir, DATABASE_FOLDER))) return
  const opening = openDatabase({ database, dataDir })
  opening.catch(() => {}) // openDatabase throws it
  begun = { dataDir, database: opening }
}

/** Loads only the driver in use, because both are large. */
export async function openDatabase({ database, dataDir }: DatabaseSettings): Promise<Database> {
  if (database !== undefined) return (await import('./postgres.ts')).openPostgres(database)
  if (begun?.dataDir === dataDir) {
    const { database: opening } = begun
    begun = undefined
    return opening
  }
  return (await import('./embedded.ts')).openEmbedded(resolve(dataDir), DATABASE_FOLDER)
}
