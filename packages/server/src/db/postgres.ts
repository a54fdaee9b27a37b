// PostgreSQL driver: a small pool for queries, and one connection for LISTEN. Timeouts bound connecting and
// queries.

import pg from 'pg'
import {
  type Database,
  DatabaseUnavailable,
  LISTENER_NAME,
  type Listening,
  type Queries,
  type Row,
  TEMPORARY,
  type Transactions,
} from './database.ts'

const CONNECTIONS_MAX = 4
const CONNECT_MS_MAX = 3000
const QUERY_MS_MAX = 20_000
/** A node that hangs or loses its connection during a change must not block the others. */
const LOCKED_MS_MAX = 10_000
const RECONNECT_MS_MIN = 100
const RECONNECT_MS_MAX = 2000
const INT8 = 20

/** bigint as number: no value here reaches 2^53. */
const types: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) => (oid === INT8 ? Number : pg.types.getTypeParser(oid, format)),
}

/** Connects on the first query, so that a node starts even while the server is down. */
export function openPostgres(url: string): Database {
  const config = {
    connectionString: url,
    connectionTimeoutMillis: CONNECT_MS_MAX,
    query_timeout: QUERY_MS_MAX,
    statement_timeout: QUERY_MS_MAX,
    lock_timeout: LOCKED_MS_MAX,
    idle_in_transaction_session_timeout: LOCKED_MS_MAX,
    keepAlive: true,
    application_name: 'sluice',
    types,
  }
  const pool = new pg.Pool({ ...config, max: CONNECTIONS_MAX })
  pool.on('error', () => {}) // an idle connection broke; the next query gets a new one
  const listener = new Listener(() => new pg.Client({ ...config, query_timeout: undefined, statement_timeout: 0 }))
  const work: Transactions = {
    query: queriesOf(pool).query,
    transaction: (run) => transaction(pool, run),
  }
  return {
    kind: 'postgres',
    ...work,
    background: work,
    listen: (channel, onNotify) => listener.listen(channel, onNotify),
    close: async () => {
      await listener.close()
      await pool.end()
    },
  }
}

function queriesOf(client: pg.Pool | pg.PoolClient): Queries {
  return {
    async query<R extends Row>(sql: string, parameters?: readonly unknown[]) {
      const result = await client.query(sql, parameters && [...parameters]).catch(rethrow)
      const last = [result].flat().at(-1) // several statements return several results, contrary to the types
      return (last?.rows ?? []) as R[]
    },
  }
}

async function transaction<T>(pool: pg.Pool, work: (queries: Queries) => Promise<T>): Promise<T> {
  const client = await pool.connect().catch(rethrow)
  const ignore = () => {} // the current or next query rejects with this error
  client.on('error', ignore)
  let rollbackError: Error | undefined
  try {
    await client.query('BEGIN').catch(rethrow)
    const result = await work(queriesOf(client))
    await client.query('COMMIT').catch(rethrow)
    return result
  } catch (error) {
    await client.query('ROLLBACK').catch((second: Error) => {
      rollbackError = second
    })
    throw error
  } finally {
    client.off('error', ignore)
    client.release(rollbackError)
  }
}

/** SQLSTATE invalid_catalog_name. */
const NO_DATABASE = '3D000'

function missingDatabase(message: string): string {
  const [, name = '<name>'] = /"([\w-]+)"/.exec(message) ?? []
  return `${message}; create it with: createdb ${name}`
}

function rethrow(error: Error & { code?: string }): never {
  if (error.code === NO_DATABASE) throw new DatabaseUnavailable(missingDatabase(error.message), { cause: error })
  const isQueryError = error instanceof pg.DatabaseError && !TEMPORARY.test(error.code ?? '')
  throw isQueryError ? error : new DatabaseUnavailable(error.message || String(error.code), { cause: error })
}

/** One connection for all channels; reconnects when it breaks. */
class Listener {
  readonly #connect: () => pg.Client
  readonly #channels = new Map<string, Set<() => void>>()
  #client: pg.Client | undefined
  #timer: NodeJS.Timeout | undefined
  #waitMs = RECONNECT_MS_MIN
  #closed = false

  constructor(connect: () => pg.Client) {
    this.#connect = connect
  }

  async listen(channel: string, onNotify: () => void): Promise<Listening> {
    const callbacks = this.#channels.get(channel) ?? new Set()
    this.#channels.set(channel, callbacks.add(onNotify))
    const isFirst = this.#client === undefined && this.#timer === undefined
    if (isFirst) await this.#start()
    else await this.#client?.query(listenSql(channel)).catch(() => {}) // a broken connection is reopened anyway
    return { stop: async () => void callbacks.delete(onNotify) }
  }

  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#timer)
    await this.#client?.end().catch(() => {})
  }

  async #start(): Promise<void> {
    this.#timer = undefined
    const client = this.#connect()
    this.#client = client
    client.on('error', () => {}) // `end` follows
    client.on('notification', ({ channel }) => this.#onNotify(channel))
    client.once('end', () => this.#reconnect(client))
    try {
      await client.connect()
      await client.query(`SET application_name = '${LISTENER_NAME}'`) // the URL may set another name
      for (const channel of this.#channels.keys()) await client.query(listenSql(channel))
      this.#waitMs = RECONNECT_MS_MIN
      for (const channel of this.#channels.keys()) this.#onNotify(channel)
    } catch {
      this.#reconnect(client)
    }
  }

  #onNotify(channel: string): void {
    for (const onNotify of this.#channels.get(channel) ?? []) onNotify()
  }

  #reconnect(broken: pg.Client): void {
    if (this.#closed || this.#client !== broken) return
    this.#client = undefined
    broken.end().catch(() => {})
    this.#timer = setTimeout(() => void this.#start(), this.#waitMs).unref()
    this.#waitMs = Math.min(this.#waitMs * 2, RECONNECT_MS_MAX)
  }
}

function listenSql(channel: string): string {
  return `LISTEN ${pg.escapeIdentifier(channel)}`
}
