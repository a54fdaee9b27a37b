// Embedded PostgreSQL (PGlite) in a thread of this process, in a folder that it locks. Has one connection, so queries
// wait for the running transaction; background work also waits for all other work. An acknowledged commit is on disk.

import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { PACKAGE_FOLDER } from '../package-facts.ts'
import { SerialQueue } from '../serial-queue.ts'
import { createDatabase } from './create-database.ts'
import { type Database, DatabaseUnavailable, type Queries, type Row, TEMPORARY } from './database.ts'
import { type FolderLock, lockFolder } from './folder-lock.ts'

const THREAD = fileURLToPath(new URL('threads/embedded-database.mjs', PACKAGE_FOLDER))

/** Throws if another process uses the folder. Creates the database if there is none, which takes some seconds. */
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

/** Serializes queries and transactions. */
function openThread(thread: DatabaseThread, lock: FolderLock): Database {
  const queue = new SerialQueue()
  const channels = new Map<string, Set<() => void>>()
  thread.onNotify = (channel) => {
    for (const onNotify of channels.get(channel) ?? []) onNotify()
  }
  let closing: Promise<void> | undefined
  const close = async () => {
    await queue.runInBackground(() => thread.close()) // last
    lock.release()
  }
  return {
    kind: 'embedded',
    query: <R extends Row>(sql: string, parameters?: readonly unknown[]) =>
      queue.run(() => thread.query<R>(sql, parameters)),
    transaction: (work) => queue.run(() => transaction(thread, work)),
    background: {
      query: (sql, parameters) => queue.runInBackground(() => thread.query(sql, parameters)),
      transaction: (work) => queue.runInBackground(() => transaction(thread, work)),
    },
    listen: async (channel, onNotify) => {
      const callbacks = channels.get(channel) ?? new Set()
      if (callbacks.size === 0) await queue.run(() => thread.send({ channel }))
      channels.set(channel, callbacks.add(onNotify))
      return { stop: async () => void callbacks.delete(onNotify) }
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
  return TEMPORARY.test(code) ? new DatabaseUnavailable(message) : Object.assign(new Error(message), { code })
}

type Pending = { readonly resolve: (rows: Row[]) => void; readonly reject: (error: Error) => void }
type Reply = {
  readonly id?: number
  readonly rows?: Row[]
  readonly error?: { readonly message: string; readonly code?: string }
  readonly notified?: string
  /** Reason why the thread ended. */
  readonly failed?: string
}

class DatabaseThread implements Queries {
  onNotify: (channel: string) => void = () => {}
  readonly #worker: Worker
  readonly #pending = new Map<number, Pending>()
  #sent = 0
  #ended: Error | undefined

  constructor(folder: string) {
    this.#worker = new Worker(THREAD, { workerData: { folder } })
    this.#worker.unref()
    this.#worker.on('message', (reply: Reply) => this.#receive(reply))
    this.#worker.on('error', (error) => this.#end(error.message))
    this.#worker.on('exit', () => this.#end('the thread exited'))
  }

  async query<R extends Row>(sql: string, parameters?: readonly unknown[]): Promise<R[]> {
    return (await this.send({ sql, parameters })) as R[]
  }

  send(request: Readonly<Record<string, unknown>>): Promise<Row[]> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended)
    this.#sent += 1
    const id = this.#sent
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject })
      this.#worker.ref() // keeps the process alive until the reply
      this.#worker.postMessage({ id, ...request })
    })
  }

  async close(): Promise<void> {
    await this.send({ close: true }).catch(() => {})
    await this.#worker.terminate()
  }

  #receive({ id, rows = [], error, notified, failed }: Reply): void {
    if (notified !== undefined) this.onNotify(notified)
    if (failed !== undefined) this.#end(failed)
    const pending = this.#pending.get(id ?? 0)
    if (pending === undefined) return
    this.#pending.delete(id ?? 0)
    if (this.#pending.size === 0) this.#worker.unref()
    if (error === undefined) pending.resolve(rows)
    else pending.reject(errorOf(error))
  }

  #end(why: string): void {
    this.#ended ??= new DatabaseUnavailable(`the embedded database stopped: ${why}`)
    for (const { reject } of this.#pending.values()) reject(this.#ended)
    this.#pending.clear()
  }
}
