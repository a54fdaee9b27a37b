// Copy of a table on disk, for a node that starts while the database is down.

import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { dirname } from 'node:path'
import type { Log } from '../log.ts'

export class TableCopy<T> {
  readonly #table: string
  readonly #path: string | undefined
  readonly #log: Log
  #written = ''

  /** Without a path, there is no copy: the embedded database needs none. */
  constructor(table: string, path: string | undefined, log: Log) {
    this.#table = table
    this.#path = path
    this.#log = log
  }

  /** Never rejects. Writes nothing if the value is the one written last. */
  async write(value: T): Promise<void> {
    const path = this.#path
    if (path === undefined) return
    const text = JSON.stringify(value)
    if (text === this.#written) return
    try {
      await mkdir(dirname(path), { recursive: true, mode: 0o700 })
      const temporary = `${path}.${hostname()}.${process.pid}` // the pid alone is always 1 in containers
      await writeFile(temporary, text, { mode: 0o600 })
      await rename(temporary, path)
      this.#written = text
    } catch (error) {
      this.#log.event('table_copy_failed', { table: this.#table, file: path, reason: String(error) })
    }
  }

  /** Calls `use` with the copy, if there is one. */
  async read(use: (value: T) => void): Promise<void> {
    const path = this.#path
    if (path === undefined) return
    try {
      use(JSON.parse(await readFile(path, 'utf8')) as T) // written by `write`
      this.#log.event('table_copy_used', { table: this.#table, file: path })
    } catch {
      this.#log.event('table_copy_missing', { table: this.#table, file: path })
    }
  }
}
