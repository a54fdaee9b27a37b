// Sink that stores batches in ClickHouse, each row exactly once. 18.16 does not detect an insert that was sent twice,
// and a busy server may run an insert long after the client gave up. Therefore every insert is a statement that stores
// nothing if rows of its block are stored, and its query id is a lock: ClickHouse refuses a second query with the id of
// a running one.

import { inSlices } from 'sluice'
import type { Batch } from '../event.ts'
import { type BatchId, BatchRejected, type Sink } from '../sink.ts'
import { type Block, slicedBlocks } from './blocks.ts'
import { type ClickHouse, ClickHouseError, type QuerySettings } from './client.ts'
import {
  addUpBlock,
  type ClickHouseSchema,
  columns,
  hasRollup,
  minuteTable,
  type SecondTable,
  sentColumns,
} from './schema.ts'
import { literal } from './sql-text.ts'

/** ClickHouse splits larger inserts into several blocks, which are not stored together. */
const ROWS_MAX = 1_000_000
const ONE_BLOCK: QuerySettings = {
  max_block_size: 1_048_576,
  min_insert_block_size_rows: 1_048_576,
  min_insert_block_size_bytes: 1_073_741_824,
}

/** Codes of errors in the rows themselves: texts, escapes, quotes, numbers, dates and types that cannot be read. */
const MALFORMED: ReadonlySet<number> = new Set([6, 25, 26, 27, 33, 34, 38, 41, 53, 72, 117, 131, 349])
/** The table or its database does not exist: an operator dropped it. */
const DROPPED: ReadonlySet<number> = new Set([60, 81])

export class ClickHouseSink implements Sink {
  readonly name = 'clickhouse'
  readonly #client: ClickHouse
  readonly #schema: ClickHouseSchema

  constructor(client: ClickHouse, schema: ClickHouseSchema) {
    this.#client = client
    this.#schema = schema
  }

  async write(id: BatchId, batch: Batch, isRetry: boolean): Promise<number> {
    try {
      await this.#schema.ready()
      for (const block of await inSlices(slicedBlocks(id, batch))) await this.#store(id, block, isRetry)
      return 0
    } catch (error) {
      throw this.#meaning(error)
    }
  }

  async close(): Promise<void> {
    await this.#client.close()
  }

  async #store(id: BatchId, block: Block, isRetry: boolean): Promise<void> {
    const { table, rows } = block
    if (rows > ROWS_MAX) throw new BatchRejected(`${rows} rows of ${table} exceed ${ROWS_MAX}`)
    if (!isRetry || !(await this.#exists(this.#rowsOf(id, block)))) return this.#insert(id, block)
    // ClickHouse stores the rows of a block before their sums: a crash in between loses the sums.
    if (hasRollup(table) && !(await this.#exists(this.#markerOf(id, block, table)))) {
      await this.#addUp(id, block, table)
    }
  }

  /** `sent` is shorter than the block if the request ended early: ClickHouse does not notice. */
  async #insert(id: BatchId, block: Block): Promise<void> {
    const { table, lines, rows } = block
    const sent = sentColumns(table)
    const names = sent.map(([name]) => name).join(', ')
    const isComplete = `(SELECT count() FROM sent) = ${rows}`
    const isNew = `(SELECT count() FROM ${this.#rowsOf(id, block)}) = 0`
    const sql = `INSERT INTO ${this.#client.database}.${table} (${names})
      SELECT ${names} FROM sent WHERE ${isComplete} AND ${isNew}`
    const queryId = queryIdOf(id, block)
    await this.#client.insertSelect({ sql, structure: columns(sent), lines, queryId, settings: ONE_BLOCK })
  }

  async #addUp(id: BatchId, block: Block, table: SecondTable): Promise<void> {
    const isMissing = `(SELECT count() FROM ${this.#markerOf(id, block, table)}) = 0`
    const rows = `${rowCondition(id, block)} AND ${isMissing}`
    await this.#client.command(addUpBlock(this.#client.database, table, rows), queryIdOf(id, block))
  }

  async #exists(rows: string): Promise<boolean> {
    return (await this.#client.query(`SELECT batch FROM ${rows} LIMIT 1`)).length > 0
  }

  #rowsOf(id: BatchId, block: Block): string {
    return `${this.#client.database}.${block.table} WHERE ${rowCondition(id, block)}`
  }

  #markerOf(id: BatchId, { day }: Block, table: SecondTable): string {
    const marker = `producer = ${literal(id.producer)} AND batch = ${id.seq} AND day = ${literal(day)}`
    return `${this.#client.database}.${minuteTable(table)} WHERE ${marker}`
  }

  #meaning(error: unknown): unknown {
    if (!(error instanceof ClickHouseError) || error.code === undefined) return error
    if (DROPPED.has(error.code)) this.#schema.forget()
    return MALFORMED.has(error.code) ? new BatchRejected(error.message) : error
  }
}

/** The range of times is the prefix of the sorting key: without it, ClickHouse would read the whole day. */
function rowCondition(id: BatchId, { table, day, fromSecond, toSecond }: Block): string {
  const time = hasRollup(table) ? 'time' : 'timestamp'
  const range = `${time} >= toDateTime(${fromSecond}) AND ${time} <= toDateTime(${toSecond})`
  return `day = ${literal(day)} AND ${range} AND producer = ${literal(id.producer)} AND batch = ${id.seq}`
}

function queryIdOf({ producer, seq }: BatchId, { table, day }: Block): string {
  return `sluice-${producer}-${seq}-${table}-${day}`
}
