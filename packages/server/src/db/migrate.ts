// Runs pending migrations at every start, in the order of their names and in one transaction. An advisory lock
// serializes nodes that start together. An applied migration must never be edited, not even its comments. A version
// that does not know an applied migration starts only if the migration has a line `-- Compatible: <why>`.

import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { PACKAGE_FOLDER, VERSION } from '../package-facts.ts'
import type { Database, Queries } from './database.ts'

const FOLDER = new URL('migrations/', PACKAGE_FOLDER)
/** Key of the advisory lock; arbitrary. */
const LOCK = 7_365_851

/** Notified when a migration has run. */
export const MIGRATIONS_CHANNEL = 'sluice_migrations'

type Migration = { readonly name: string; readonly sql: string; readonly hash: string }

/** A newer version has changed the tables in a way that this version cannot work with. */
export class DatabaseTooNew extends Error {
  override readonly name = 'DatabaseTooNew'
}

/** `compatible`: versions that do not know the migration may start. `version`: the one that ran it. */
const TABLE = `
  CREATE TABLE IF NOT EXISTS schema_migrations (
    name text PRIMARY KEY, hash text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(),
    compatible boolean NOT NULL DEFAULT false, version text);
  DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'schema_migrations'::regclass AND attname = 'version') THEN
      ALTER TABLE schema_migrations ADD COLUMN compatible boolean NOT NULL DEFAULT false, ADD COLUMN version text;
    END IF;
  END $$`
const COMPATIBLE = /^-- Compatible: \S/m

/** Returns the names of the migrations that it ran. Throws DatabaseTooNew. */
export function migrate(database: Database, migrations: readonly Migration[] = readMigrations()): Promise<string[]> {
  return database.transaction(async (queries) => {
    await queries.query(`SELECT pg_advisory_xact_lock(${LOCK})`)
    await queries.query(TABLE)
    await requireCompatible(queries, migrations)
    const ran: string[] = []
    const applied = await appliedHashes(queries)
    for (const { name, sql, hash } of migrations) {
      const known = applied.get(name)
      if (known === hash) continue
      if (known !== undefined) throw new Error(`migration ${name} was edited after it ran: add a new one instead`)
      await queries.query(sql)
      await queries.query('INSERT INTO schema_migrations (name, hash, compatible, version) VALUES ($1, $2, $3, $4)', [
        name,
        hash,
        COMPATIBLE.test(sql),
        VERSION,
      ])
      ran.push(name)
    }
    if (ran.length > 0) await queries.query(`SELECT pg_notify('${MIGRATIONS_CHANNEL}', '')`)
    return ran
  })
}

async function requireCompatible(queries: Queries, migrations: readonly Migration[]): Promise<void> {
  const known = migrations.map(({ name }) => name)
  const problem = await incompatibility(queries, known)
  if (problem !== undefined) throw new DatabaseTooNew(`${problem.found}: ${problem.fix}`)
}

type Incompatibility = { readonly found: string; readonly fix: string }

/** Migrations of a newer version for which this one does not start. Undefined: there are none. Writes nothing. */
async function incompatibility(queries: Queries, known: readonly string[]): Promise<Incompatibility | undefined> {
  // The columns are absent until a version that has them has started on the database.
  const unknown = await queries.query<{ name: string; version: string | null }>(
    `SELECT name, to_jsonb(applied)->>'version' AS version FROM schema_migrations AS applied
     WHERE NOT coalesce((to_jsonb(applied)->>'compatible')::boolean, false) AND name <> ALL($1)
     ORDER BY applied_at, name`,
    [known],
  )
  const last = unknown.at(-1)
  if (last === undefined) return undefined
  const names = unknown.map(({ name }) => name.replace(/\.sql$/, '')).join(', ')
  const needed = last.version === null ? 'the version that ran them' : last.version
  return {
    found: `the database has migrations that Sluice ${VERSION} does not know (${names})`,
    fix: `start ${needed} or a newer version`,
  }
}

export type MigrationState = {
  /** Reason for which this version does not start on the database. */
  readonly incompatible: Incompatibility | undefined
  readonly pending: readonly string[]
  /** Names of migrations of newer versions. */
  readonly newer: readonly string[]
}

/** Compares the database with the migrations of this version. Writes nothing. */
export async function migrationState(database: Database): Promise<MigrationState> {
  const [found] = await database.query<{ exists: boolean }>(
    `SELECT to_regclass('schema_migrations') IS NOT NULL AS exists`,
  )
  const known = readMigrations().map(({ name }) => name)
  if (!found?.exists) return { incompatible: undefined, pending: known, newer: [] }
  const applied = await appliedHashes(database)
  return {
    incompatible: await incompatibility(database, known),
    pending: known.filter((name) => !applied.has(name)),
    newer: await newerMigrations(database),
  }
}

async function appliedHashes(queries: Queries): Promise<Map<string, string>> {
  const rows = await queries.query<{ name: string; hash: string }>('SELECT name, hash FROM schema_migrations')
  return new Map(rows.map(({ name, hash }) => [name, hash]))
}

/** `0001_tables`, … */
export function migrationNames(): string[] {
  const names = readdirSync(FOLDER).filter((name) => name.endsWith('.sql'))
  return names.sort().map((name) => name.slice(0, -'.sql'.length))
}

/** Migrations of a newer version that ran on this database. */
export async function newerMigrations(queries: Queries): Promise<string[]> {
  const known = new Set(migrationNames())
  const applied = await appliedHashes(queries)
  return [...applied.keys()].map((name) => name.replace(/\.sql$/, '')).filter((name) => !known.has(name))
}

function readMigrations(): Migration[] {
  return migrationNames().map((name) => {
    const sql = readFileSync(new URL(`${name}.sql`, FOLDER), 'utf8')
    return { name: `${name}.sql`, sql, hash: createHash('sha256').update(sql).digest('hex') }
  })
}
