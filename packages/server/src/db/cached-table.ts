// Caches a small table in memory: reads it at the start, after each notification and every few seconds. While the
// database is down, the last known rows apply; a node that starts during the outage uses its copy on disk.

import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { dirname } from 'node:path'
import type { Log } from '../log.ts'
import type { Database, Listening, Queries } from './database.ts'
import { Refresher } from './refresher.ts'

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
  #unreachable = false
  #copiedText = ''
  readonly #refresher: Refresher = new Refresher(() => this.#load())
  #listening: Listening | undefined

  constructor(deps: CachedTableDeps<T>) {
    this.#deps = deps
  }

  async start(): Promise<void> {
    await this.refresh()
    if (this.#unreachable) await this.#readCopy()
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
      await this.#writeCopy(value)
      if (this.#unreachable) log.event('table_reachable', { table })
      this.#unreachable = false
    } catch (error) {
      if (!this.#unreachable) log.event('table_unreachable', { table, reason: String(error) })
      this.#unreachable = true
    }
  }

  async #writeCopy(value: T): Promise<void> {
    const { copyPath, table, log } = this.#deps
    const text = JSON.stringify(value)
    if (copyPath === undefined || text === this.#copiedText) return
    try {
      await mkdir(dirname(copyPath), { recursive: true, mode: 0o700 })
      const temporary = `${copyPath}.${hostname()}.${process.pid}` // the pid alone is always 1 in containers
      await writeFile(temporary, text, { mode: 0o600 })
      await rename(temporary, copyPath)
      this.#copiedText = text
    } catch (error) {
      log.event('table_copy_failed', { table, file: copyPath, reason: String(error) })
    }
  }

  async #readCopy(): Promise<void> {
    const { copyPath, use, table, log } = this.#deps
    if (copyPath === undefined) return
    try {
      use(JSON.parse(await readFile(copyPath, 'utf8')) as T) // written by #writeCopy
      log.event('table_copy_used', { table, file: copyPath })
    } catch {
      log.event('table_copy_missing', { table, file: copyPath })
    }
  }
}
