// Is the database there, is it one that Sluice knows, and are its tables those of this version?

import { migrationsToRun } from '../db/migrate.ts'
import { openDatabase } from '../db/open-database.ts'
import { reasonOf } from '../problems/reason.ts'
import { clockFinding, doubtful, type Finding, well, wrong } from './finding.ts'

/** As `server_version_num` tells it. */
const OLDEST = { number: 150_000, name: '15' }

/** The embedded database needs no examination: it is opened by the one process that uses it. */
export async function examineDatabase(url: string): Promise<Finding[]> {
  const database = await openDatabase({ database: url, dataDir: '' })
  try {
    const [server] = await database.query<{ number: string; version: string }>(
      `SELECT current_setting('server_version_num') AS number, current_setting('server_version') AS version`,
    )
    const missing = await migrationsToRun(database)
    return [
      version(server?.version ?? 'unknown', Number(server?.number)),
      missing.length === 0
        ? well('PostgreSQL tables', 'up to date')
        : doubtful('PostgreSQL tables', `to be run: ${missing.join(', ')}`, 'start a node: it brings them up to date'),
      await clockFinding('PostgreSQL clock', async () => {
        const [row] = await database.query<{ now: Date }>('SELECT clock_timestamp() AS now')
        return row?.now.getTime() ?? Number.NaN
      }),
    ]
  } catch (error) {
    const { host, pathname } = new URL(url)
    const found = `${host}${pathname} does not answer: ${reasonOf(error)}`
    return [wrong('PostgreSQL', found, 'start it, open the way to it, or give another URL or password with --database')]
  } finally {
    await database.close()
  }
}

function version(found: string, number: number): Finding {
  if (number >= OLDEST.number) return well('PostgreSQL', found)
  return wrong('PostgreSQL', found, `use PostgreSQL ${OLDEST.name} or newer`)
}
