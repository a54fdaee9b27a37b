// Opens the configured rule source and, if it is the database, the rule store, which makes changes.

import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { LimiterError } from 'sluice'
import type { Database } from '../db/database.ts'
import { DATABASE_FOLDER, openDatabase } from '../db/open-database.ts'
import { isEtcdUrl, parseEtcdUrl } from '../settings/etcd-address.ts'
import type { Settings } from '../settings/settings.ts'
import { databaseSource } from './database-source.ts'
import { EtcdSource } from './etcd/etcd-source.ts'
import { fileSource } from './file-source.ts'
import type { RuleSource } from './rule-source.ts'
import { RuleStore } from './rule-store.ts'
import { RuleSnapshot } from './snapshot.ts'

export type OpenRules = {
  readonly source: RuleSource
  /** Undefined unless the source is the database; other sources are read-only for a node. */
  readonly store: RuleStore | undefined
  readonly snapshot: RuleSnapshot | undefined
  readonly database: Database | undefined
}

export type RuleSettings = Pick<Settings, 'rules' | 'database' | 'dataDir'>

export async function openRules(settings: RuleSettings): Promise<OpenRules> {
  const { rules: path, dataDir } = settings
  if (path !== undefined && isEtcdUrl(path)) {
    const source = etcdSource(path)
    const snapshot = new RuleSnapshot(resolve(dataDir), source.location)
    return { source, store: undefined, snapshot, database: undefined }
  }
  if (path !== undefined) {
    return { source: fileSource(path), store: undefined, snapshot: undefined, database: undefined }
  }
  const database = await openDatabase(settings)
  const source = databaseSource(database, locationOf(settings))
  const snapshot = new RuleSnapshot(resolve(dataDir), source.location)
  return { source, store: new RuleStore(database), snapshot, database }
}

/** Whether the embedded database does not exist yet. */
export function isFirstStart({ rules, database, dataDir }: RuleSettings): boolean {
  return rules === undefined && database === undefined && !existsSync(join(dataDir, DATABASE_FOLDER))
}

function etcdSource(url: string): RuleSource {
  const address = parseEtcdUrl(url)
  if (typeof address === 'string') throw new LimiterError('OPTION_INVALID', `--rules: ${address}`)
  return new EtcdSource(address)
}

/** Without user and password. */
function locationOf({ database, dataDir }: RuleSettings): string {
  if (database === undefined) return `the database in ${resolve(dataDir)}`
  const { host, pathname } = new URL(database)
  return `PostgreSQL at ${host}${pathname}`
}
