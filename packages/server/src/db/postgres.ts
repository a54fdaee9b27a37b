// PostgreSQL: a few connections for queries, and one more that only listens. A server that does not answer is an error
// within seconds, never a query that waits for ever.

import pg from 'pg'
import { type Database, DatabaseUnavailable, type Listening, NOT_NOW, type Queries, type Row } from './database.ts'

const CONNECTIONS_MAX = 4
const CONNECT_MS_MAX = 3000
const QUERY_MS_MAX = 20_000
/** A node that froze in the middle of a change, or was cut off, must not keep all others from making theirs. */
const LOCKED_MS_MAX = 10_000
const RECONNECT_MS_MIN = 100
const RECONNECT_MS_MAX = 2000
const INT8 = 20

/** A count that JavaScript can hold: no table of ours will ever have 2^53 rows. */
const types: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) => (oid === INT8 ? Number : pg.types.getTypeParser(oid, format)),
}

/** Connects when it is first asked something, so that a node starts also while the server is down. */
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
  pool.on('error', () => {}) // of an idle connection; whoever asks next gets a new one
  const listener = new Listener(() => new pg.Client({ ...config, query_timeout: undefined, statement_timeout: 0 }))
  return {
    kind: 'postgres',
    query: queriesOf(pool).query,
    transaction: (work) => transaction(pool, work),
    listen: (channel, wake) => listener.listen(channel, wake),
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
      const last = [result].flat().at(-1) // several statements give several results, whatever the types say
      return (last?.rows ?? []) as R[]
    },
  }
}

async function transaction<T>(pool: pg.Pool, work: (queries: Queries) => Promise<T>): Promise<T> {
  const client = await pool.connect().catch(rethrow)
  const broken = () => {} // told to the query that is under way, or to the next one
  client.on('error', broken)
  let trouble: Error | undefined
  try {
    await client.query('BEGIN').catch(rethrow)
    const result = await work(queriesOf(client))
    await client.query('COMMIT').catch(rethrow)
    return result
  } catch (error) {
    await client.query('ROLLBACK').catch((second: Error) => {
      trouble = second
    })
    throw error
  } finally {
    client.off('error', broken)
    client.release(trouble)
  }
}

function rethrow(error: Error & { code?: string }): never {
  const answered = error instanceof pg.DatabaseError && !NOT_NOW.test(error.code ?? '')
  throw answered ? error : new DatabaseUnavailable(error.message || String(error.code), { cause: error })
}

/** One connection for all channels, made anew whenever it breaks. */
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

  async listen(channel: string, wake: () => void): Promise<Listening> {
    const wakes = this.#channels.get(channel) ?? new Set()
    this.#channels.set(channel, wakes.add(wake))
    const isFirst = this.#client === undefined && this.#timer === undefined
    if (isFirst) await this.#start()
    else await this.#client?.query(listenSql(channel)).catch(() => {}) // a broken connection begins again by itself
    return { stop: async () => void wakes.delete(wake) }
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
    client.on('notification', ({ channel }) => this.#wake(channel))
    client.once('end', () => this.#again(client))
    try {
      await client.connect()
      for (const channel of this.#channels.keys()) await client.query(listenSql(channel))
      this.#waitMs = RECONNECT_MS_MIN
      for (const channel of this.#channels.keys()) this.#wake(channel)
    } catch {
      this.#again(client)
    }
  }

  #wake(channel: string): void {
    for (const wake of this.#channels.get(channel) ?? []) wake()
  }

  #again(broken: pg.Client): void {
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
