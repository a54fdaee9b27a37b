// A small table that a node knows by heart: read at the start, whenever somebody tells of a change, and every few
// seconds in case nobody could. While the database is away, what was last known stays; a node that starts meanwhile
// takes it from its copy on disk.

import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { dirname } from 'node:path'
import type { Log } from '../log.ts'
import type { Database, Listening, Queries } from './database.ts'
import { Refreshing } from './refreshing.ts'

export type FollowedParts<T> = {
  readonly database: Database
  readonly channel: string
  /** For people: `tokens`. */
  readonly what: string
  readonly read: (queries: Queries) => Promise<T>
  readonly use: (value: T) => void
  /** Where the copy is; undefined: a database in this very folder needs none. */
  readonly copyPath: string | undefined
  readonly log: Log
}

export class Followed<T> {
  readonly #parts: FollowedParts<T>
  #lost = false
  #copied = ''
  readonly #refreshing: Refreshing = new Refreshing(() => this.#load())
  #listening: Listening | undefined

  constructor(parts: FollowedParts<T>) {
    this.#parts = parts
  }

  async start(): Promise<void> {
    await this.refresh()
    if (this.#lost) await this.#useCopy()
    this.#listening = await this.#parts.database.listen(this.#parts.channel, () => void this.refresh())
    this.#refreshing.poll()
  }

  /** Resolves once what the table held when this was called, or something newer, is known here. Never rejects. */
  refresh(): Promise<void> {
    return this.#refreshing.refresh()
  }

  async stop(): Promise<void> {
    const stopped = this.#refreshing.stop()
    await this.#listening?.stop()
    await stopped
  }

  async #load(): Promise<void> {
    const { database, read, use, what, log } = this.#parts
    try {
      const value = await read(database)
      use(value)
      await this.#keepCopy(value)
      if (this.#lost) log.info(`the ${what} can be read again`)
      this.#lost = false
    } catch (error) {
      if (!this.#lost) log.error({ reason: String(error) }, `the ${what} cannot be read: what is known of them stays`)
      this.#lost = true
    }
  }

  async #keepCopy(value: T): Promise<void> {
    const { copyPath, what, log } = this.#parts
    const text = JSON.stringify(value)
    if (copyPath === undefined || text === this.#copied) return
    try {
      await mkdir(dirname(copyPath), { recursive: true, mode: 0o700 })
      const beside = `${copyPath}.${hostname()}.${process.pid}` // in containers every process is number 1
      await writeFile(beside, text, { mode: 0o600 })
      await rename(beside, copyPath)
      this.#copied = text
    } catch (error) {
      log.warn({ reason: String(error), file: copyPath }, `the ${what} could not be kept on disk`)
    }
  }

  async #useCopy(): Promise<void> {
    const { copyPath, use, what, log } = this.#parts
    if (copyPath === undefined) return
    try {
      use(JSON.parse(await readFile(copyPath, 'utf8')) as T) // written by #keepCopy
      log.warn({ file: copyPath }, `started with the ${what} that this node last knew`)
    } catch {
      log.warn({ file: copyPath }, `there is no copy of the ${what}: none are known until the database answers`)
    }
  }
}
