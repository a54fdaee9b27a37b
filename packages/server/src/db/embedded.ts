// PostgreSQL inside this process (PGlite), in a thread of its own and in a folder that no other process uses. It has
// one connection: whoever asks waits for the transaction under way. A commit that was answered is on the disk.

import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { Turns } from '../turns.ts'
import { createDatabase } from './create-database.ts'
import { type Database, DatabaseUnavailable, NOT_NOW, type Queries, type Row } from './database.ts'
import { type FolderLock, lockFolder } from './folder-lock.ts'

const THREAD = fileURLToPath(new URL('../../threads/embedded-database.mjs', import.meta.url))

/** Throws when another process uses the folder. Creates the database in an empty one, which takes some seconds. */
export async function openEmbedded(dataDir: string, folder: string): Promise<Database> {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 })
  const lock = lockFolder(dataDir)
  try {
    await createDatabase(join(dataDir, folder))
  } catch (error) {
    lock.release()
    throw error
  }
  return openThread(new DatabaseThread(join(dataDir, folder)), lock)
}

/** Queries to the thread, one transaction after the other. */
function openThread(thread: DatabaseThread, lock: FolderLock): Database {
  const turns = new Turns()
  const channels = new Map<string, Set<() => void>>()
  thread.onNotify = (channel) => {
    for (const wake of channels.get(channel) ?? []) wake()
  }
  let closing: Promise<void> | undefined
  const close = async () => {
    await turns.take(() => thread.close())
    lock.release()
  }
  return {
    kind: 'embedded',
    query: <R extends Row>(sql: string, parameters?: readonly unknown[]) =>
      turns.take(() => thread.query<R>(sql, parameters)),
    transaction: (work) => turns.take(() => transaction(thread, work)),
    listen: async (channel, wake) => {
      const wakes = channels.get(channel) ?? new Set()
      if (wakes.size === 0) await turns.take(() => thread.ask({ channel }))
      channels.set(channel, wakes.add(wake))
      return { stop: async () => void wakes.delete(wake) }
    },
    close: () => {
      closing ??= close()
      return closing
    },
  }
}

async function transaction<T>(thread: DatabaseThread, work: (queries: Queries) => Promise<T>): Promise<T> {
  await thread.query('BEGIN')
  try {
    const query: Queries['query'] = (sql, parameters) => thread.query(sql, parameters)
    const result = await work({ query })
    await thread.query('COMMIT')
    return result
  } catch (error) {
    await thread.query('ROLLBACK')
    throw error
  }
}

function errorOf({ message, code = '' }: { message: string; code?: string }): Error {
  return NOT_NOW.test(code) ? new DatabaseUnavailable(message) : Object.assign(new Error(message), { code })
}

type Question = { readonly resolve: (rows: Row[]) => void; readonly reject: (error: Error) => void }
type Answer = {
  readonly id?: number
  readonly rows?: Row[]
  readonly error?: { readonly message: string; readonly code?: string }
  readonly notified?: string
  /** The thread ends for this reason. */
  readonly failed?: string
}

class DatabaseThread implements Queries {
  onNotify: (channel: string) => void = () => {}
  readonly #worker: Worker
  readonly #open = new Map<number, Question>()
  #asked = 0
  #ended: Error | undefined

  constructor(folder: string) {
    this.#worker = new Worker(THREAD, { workerData: { folder } })
    this.#worker.unref()
    this.#worker.on('message', (answer: Answer) => this.#answered(answer))
    this.#worker.on('error', (error) => this.#end(error.message))
    this.#worker.on('exit', () => this.#end('it was closed'))
  }

  async query<R extends Row>(sql: string, parameters?: readonly unknown[]): Promise<R[]> {
    return (await this.ask({ sql, parameters })) as R[]
  }

  ask(question: Readonly<Record<string, unknown>>): Promise<Row[]> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended)
    this.#asked += 1
    const id = this.#asked
    return new Promise((resolve, reject) => {
      this.#open.set(id, { resolve, reject })
      this.#worker.ref() // the process lives on until the answer is there
      this.#worker.postMessage({ id, ...question })
    })
  }

  async close(): Promise<void> {
    await this.ask({ close: true }).catch(() => {})
    await this.#worker.terminate()
  }

  #answered({ id, rows = [], error, notified, failed }: Answer): void {
    if (notified !== undefined) this.onNotify(notified)
    if (failed !== undefined) this.#end(failed)
    const question = this.#open.get(id ?? 0)
    if (question === undefined) return
    this.#open.delete(id ?? 0)
    if (this.#open.size === 0) this.#worker.unref()
    if (error === undefined) question.resolve(rows)
    else question.reject(errorOf(error))
  }

  #end(why: string): void {
    this.#ended ??= new DatabaseUnavailable(`the embedded database has ended: ${why}`)
    for (const { reject } of this.#open.values()) reject(this.#ended)
    this.#open.clear()
  }
}
