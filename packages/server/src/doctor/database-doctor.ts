// Checks that PostgreSQL is reachable, recent enough, migrated, and has a correct clock.

import { type MigrationState, migrationState } from '../db/migrate.ts'
import { openDatabase } from '../db/open-database.ts'
import { reasonOf } from '../problems/reason.ts'
import { clockFinding, type Finding, failure, ok, warning } from './finding.ts'

/** In the format of `server_version_num`. */
const VERSION_MIN = { number: 150_000, name: '15' }

/** Not for the embedded database, which only one process can open. */
export async function examineDatabase(url: string): Promise<Finding[]> {
  const database = await openDatabase({ database: url, dataDir: '' })
  try {
    const [server] = await database.query<{ number: string; version: string }>(
      `SELECT current_setting('server_version_num') AS number, current_setting('server_version') AS version`,
    )
    return [
      version(server?.version ?? 'unknown', Number(server?.number)),
      tables(await migrationState(database)),
      await clockFinding('PostgreSQL clock', async () => {
        const [row] = await database.query<{ now: Date }>('SELECT clock_timestamp() AS now')
        return row?.now.getTime() ?? Number.NaN
      }),
    ]
  } catch (error) {
    const { host, pathname } = new URL(url)
    const found = `${host}${pathname} is unreachable: ${reasonOf(error)}`
    return [
      failure(
        'PostgreSQL',
        found,
        'start it, allow connections from this machine, or correct the URL or password of --database',
      ),
    ]
  } finally {
    await database.close()
  }
}

function version(found: string, number: number): Finding {
  if (number >= VERSION_MIN.number) return ok('PostgreSQL', found)
  return failure('PostgreSQL', found, `use PostgreSQL ${VERSION_MIN.name} or newer`)
}

function tables({ incompatible, pending, newer }: MigrationState): Finding {
  const about = 'PostgreSQL tables'
  if (incompatible !== undefined) return failure(about, incompatible.found, incompatible.fix)
  if (pending.length > 0)
    return warning(about, `pending migrations: ${pending.join(', ')}`, 'start a node: it runs them')
  if (newer.length === 0) return ok(about, 'up to date')
  return ok(about, `up to date, with compatible migrations of a newer version: ${newer.join(', ')}`)
}
