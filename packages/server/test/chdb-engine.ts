// A current ClickHouse engine inside the process (npm `chdb`), behind the interface of our client: proves that tables
// and queries are valid on it. 546 MB, so it is not a dependency: `npm run soak` installs it into a cache folder.

import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import { type ClickHouse, ClickHouseError, type InsertSelect } from '../src/events/clickhouse/client.ts'

const CACHE = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'sluice', 'chdb-3.4.0')

type Session = { query(sql: string, format?: string): string; cleanup(): void }
type Chdb = { Session: new (folder: string) => Session }

/** Returns why there is no engine, and prints it; undefined if there is one. */
export function chdbMissing(): string | undefined {
  if (existsSync(join(CACHE, 'node_modules', 'chdb'))) return undefined
  const reason = `no current ClickHouse engine in ${CACHE} (npm run soak installs it): its tests are skipped`
  process.stderr.write(`sluice: ${reason}\n`)
  return reason
}

export class ChdbEngine implements ClickHouse {
  readonly database = 'sluice'
  readonly #folder: string = mkdtempSync(join(tmpdir(), 'sluice-chdb-'))
  readonly #session: Session

  constructor() {
    const { Session } = createRequire(join(CACHE, 'package.json'))('chdb') as Chdb
    this.#session = new Session(this.#folder)
  }

  async command(sql: string): Promise<void> {
    this.#run(sql)
  }

  /** Without HTTP there are no tables that live as long as a request. */
  async insertSelect({ sql, structure, lines, settings }: InsertSelect): Promise<void> {
    const list = Object.entries(settings).map(([name, value]) => `${name} = ${value}`)
    this.#run(`CREATE OR REPLACE TABLE default.sent (${structure}) ENGINE = Memory`)
    this.#run(`INSERT INTO default.sent SETTINGS async_insert = 0 FORMAT JSONEachRow\n${lines}`)
    this.#run(`${sql.replaceAll('FROM sent', 'FROM default.sent')} SETTINGS ${list.join(', ')}`)
  }

  async query<Row>(sql: string): Promise<Row[]> {
    const lines = this.#run(sql).split('\n')
    return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as Row)
  }

  async close(): Promise<void> {
    this.#session.cleanup()
    rmSync(this.#folder, { recursive: true, force: true })
  }

  #run(sql: string): string {
    try {
      return this.#session.query(sql, 'JSONEachRow')
    } catch (error) {
      const code = /Code: (\d+)/.exec(String(error))?.[1]
      throw new ClickHouseError(String(error), code === undefined ? undefined : Number(code))
    }
  }
}
