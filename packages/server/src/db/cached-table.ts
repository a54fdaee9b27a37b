// Caches a small table in memory: reads it at the start, after each notification and every few seconds. While the
// database is down, the last known rows apply; a node that starts during the outage uses its copy on disk.

import type { Log } from '../log.ts'
import type { Database, Listening, Queries } from './database.ts'
import { Refresher } from './refresher.ts'
import { TableCopy } from './table-copy.ts'

export type CachedTableDeps<T> = {
  readonly database: Database
  readonly channel: string
  /** Name of the table, for the log. */
  readonly table: string
  readonly read: (queries: Queries) => Promise<T>
  readonly use: (value: T) => void
  /** Undefined for the embedded database, which needs no copy. */
  readonly copyPath: string | undefined
  readonly log: Log
}

export class CachedTable<T> {
  readonly #deps: CachedTableDeps<T>
  readonly #copy: TableCopy<T>
  #unreachable = false
  readonly #refresher: Refresher = new Refresher(() => this.#load())
  #listening: Listening | undefined

  constructor(deps: CachedTableDeps<T>) {
    this.#deps = deps
    this.#copy = new TableCopy(deps.table, deps.copyPath, deps.log)
  }

  async start(): Promise<void> {
    await this.refresh()
    if (this.#unreachable) await this.#copy.read(this.#deps.use)
    this.#listening = await this.#deps.database.listen(this.#deps.channel, () => void this.refresh())
    this.#refresher.poll()
  }

  /** Resolves once rows at least as new as this call are loaded. Never rejects. */
  refresh(): Promise<void> {
    return this.#refresher.refresh()
  }

  async stop(): Promise<void> {
    const stopped = this.#refresher.stop()
    await this.#listening?.stop()
    await stopped
  }

  async #load(): Promise<void> {
    const { database, read, use, table, log } = this.#deps
    try {
      const value = await read(database)
      use(value)
      await this.#copy.write(value)
      if (this.#unreachable) log.event('table_reachable', { table })
      this.#unreachable = false
    } catch (error) {
      if (!this.#unreachable) log.event('table_unreachable', { table, reason: String(error) })
      this.#unreachable = true
    }
  }
}
