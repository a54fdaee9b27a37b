// The database behind one small interface, whichever of the two it is. Both speak the same SQL: a whole number comes
// back as a number, a time as a Date, jsonb as its value; jsonb is handed over as text.

export type Row = Readonly<Record<string, unknown>>

export type Queries = {
  /** Rows of the answer. Without parameters there may be several statements: the rows are those of the last. */
  query<R extends Row = Row>(sql: string, parameters?: readonly unknown[]): Promise<R[]>
}

export interface Database extends Queries {
  readonly kind: 'postgres' | 'embedded'
  /** What `work` does is done as a whole, or not at all when it throws. It must use no other queries than its own. */
  transaction<T>(work: (queries: Queries) => Promise<T>): Promise<T>
  /**
   * Calls `wake` for each NOTIFY on the channel, and whenever the connection that listens was made anew, since nobody
   * knows what was missed meanwhile. It goes on, also while the database is down, until it is stopped.
   */
  listen(channel: string, wake: () => void): Promise<Listening>
  close(): Promise<void>
}

export type Listening = { stop(): Promise<void> }

/** The database could not be asked. What it answered with an error is that error. */
export class DatabaseUnavailable extends Error {
  override readonly name = 'DatabaseUnavailable'
}

/**
 * SQLSTATEs and classes of them that mean "not now": connection, resources, shutdown, a server that is read-only, and
 * whatever took too long or stood in the way of somebody else.
 */
export const NOT_NOW: RegExp = /^(08|53|57P|25006|25P03|40001|40P01|55P03|57014)/
