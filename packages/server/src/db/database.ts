// Common interface of PostgreSQL and the embedded database. Both use the same SQL and types: integers are returned as
// numbers, timestamps as Dates, jsonb as its value; jsonb parameters are passed as text.

export type Row = Readonly<Record<string, unknown>>

export type Queries = {
  /** Returns the rows. Without parameters, `sql` may contain several statements; returns the rows of the last. */
  query<R extends Row = Row>(sql: string, parameters?: readonly unknown[]): Promise<R[]>
}

export interface Transactions extends Queries {
  /** Runs `work` in a transaction and rolls back if it throws. `work` must use only the queries passed to it. */
  transaction<T>(work: (queries: Queries) => Promise<T>): Promise<T>
}

export interface Database extends Transactions {
  readonly kind: 'postgres' | 'embedded'
  /** For events and analytics: the embedded database runs all other work first, PostgreSQL runs both at once. */
  readonly background: Transactions
  /**
   * Calls `onNotify` for each NOTIFY on the channel, and after each reconnect, because notifications may have been
   * missed. Keeps listening until stopped, even while the database is down.
   */
  listen(channel: string, onNotify: () => void): Promise<Listening>
  close(): Promise<void>
}

export type Listening = { stop(): Promise<void> }

/** The database is unreachable or overloaded. SQL errors are thrown unchanged. */
export class DatabaseUnavailable extends Error {
  override readonly name = 'DatabaseUnavailable'
}

/** Name of the connection on which a node listens, in pg_stat_activity. Nodes of the first versions do not set it. */
export const LISTENER_NAME = 'sluice listener'

/** SQLSTATEs of temporary failures: connection, resources, shutdown, read-only server, timeouts, lock conflicts. */
export const TEMPORARY: RegExp = /^(08|53|57P|25006|25P03|40001|40P01|55P03|57014)/
