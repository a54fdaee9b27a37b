// Stores rows of Kafka in ClickHouse exactly once, no matter which process is killed and when, even if two consumers
// believe that they own a partition. An insert is one statement that skips rows up to the largest stored offset, and
// its query id is a lock: ClickHouse refuses a second query with the id of a running one. So no insert, however late it
// arrives, stores a row twice. Rows of a table and a day are stored in the order of their offsets, so everything below
// the largest one is stored.

import type { Block } from '../clickhouse/blocks.ts'
import type { ClickHouseClient, QuerySettings } from '../clickhouse/client.ts'
import { addUpBlock, type ClickHouseSchema, hasRollup, minuteTable, TABLES, type Table } from '../clickhouse/schema.ts'
import { literal } from '../clickhouse/sql-text.ts'
import { blockOf, type MessageGroup, producerOf, type TopicPartition } from './blocks.ts'
import type { ProducerState } from './deduplicator.ts'

/** Position to continue from. All rows below `next` are stored; `producers` is the state of Deduplicator at `next`. */
export type Checkpoint = { readonly next: number; readonly producers: readonly ProducerState[] }

const POSITIONS = 'sluice_kafka_positions'
/** Rows of an insert are one block. */
const ONE_BLOCK: QuerySettings = {
  max_block_size: 1_048_576,
  min_insert_block_size_rows: 1_048_576,
  min_insert_block_size_bytes: 1_073_741_824,
}

type Columns = { readonly names: string; readonly structure: string }

export class ClickHouseWriter {
  readonly #client: ClickHouseClient
  readonly #schema: ClickHouseSchema
  readonly #columns: Map<Table, Columns> = new Map()

  constructor(client: ClickHouseClient, schema: ClickHouseSchema) {
    this.#client = client
    this.#schema = schema
  }

  /** Creates missing tables and reads their columns. */
  async open(): Promise<void> {
    await this.#schema.ready()
    const { database } = this.#client
    await this.#client.command(
      `CREATE TABLE IF NOT EXISTS ${database}.${POSITIONS}
         (topic String, kafka_partition Int32, next_offset Int64, producers String)
         ENGINE = ReplacingMergeTree(next_offset) PARTITION BY tuple() ORDER BY (topic, kafka_partition)`,
    )
    for (const table of TABLES) {
      const columns = await this.#client.query<{ name: string; type: string }>(
        `SELECT name, type FROM system.columns WHERE database = ${literal(database)} AND table = ${literal(table)}`,
      )
      const names = columns.map(({ name }) => name).join(', ')
      this.#columns.set(table, { names, structure: columns.map(({ name, type }) => `${name} ${type}`).join(', ') })
    }
  }

  /** Undefined if nothing of the partition is stored. */
  async checkpoint({ topic, partition }: TopicPartition): Promise<Checkpoint | undefined> {
    const [row] = await this.#client.query<{ next: string | number; state: string }>(
      `SELECT max(next_offset) AS next, argMax(producers, next_offset) AS state
         FROM ${this.#client.database}.${POSITIONS}
         WHERE topic = ${literal(topic)} AND kafka_partition = ${partition} GROUP BY topic`,
    )
    if (row === undefined) return undefined
    return { next: Number(row.next), producers: JSON.parse(row.state) as ProducerState[] }
  }

  /** Call it when all rows below `next` are stored. Later calls may have lower positions: the largest one counts. */
  async save({ topic, partition }: TopicPartition, { next, producers }: Checkpoint): Promise<void> {
    const values = `(${literal(topic)}, ${partition}, ${next}, ${literal(JSON.stringify(producers))})`
    await this.#client.command(`INSERT INTO ${this.#client.database}.${POSITIONS} VALUES ${values}`)
  }

  /**
   * Stores the rows of a group that are not stored yet, and returns their number. `since`: rows from this offset may
   * be stored, by an insert whose answer was lost or by another consumer.
   */
  async store(source: TopicPartition, group: MessageGroup, since: number | undefined): Promise<number> {
    const block = blockOf(source, group)
    if (since === undefined) return this.#insert(source, block)
    await this.#addUpMissing(source, block, since)
    const next = await this.#storedEnd(source, block)
    const messages = group.messages.filter(({ offset }) => offset >= next)
    return messages.length === 0 ? 0 : this.#insert(source, blockOf(source, { ...group, messages }))
  }

  async #insert(source: TopicPartition, block: Block): Promise<number> {
    const { table, lines, rows } = block
    const columns = this.#columns.get(table)
    if (columns === undefined) throw new Error('the writer is not open')
    const { names, structure } = columns
    await this.#client.insertSelect({
      sql: `INSERT INTO ${this.#client.database}.${table} (${names})
        SELECT ${names} FROM sent WHERE kafka_offset >= (${this.#storedEndSql(source, block)})`,
      structure,
      lines,
      queryId: this.#lockOf(source, table),
      settings: ONE_BLOCK,
    })
    return rows
  }

  async #storedEnd(source: TopicPartition, block: Block): Promise<number> {
    const [row] = await this.#client.query<{ next: string | number }>(this.#storedEndSql(source, block))
    return Number(row?.next ?? 0)
  }

  /**
   * Offset after the largest stored one of the table and day. Looks only at the times of the block, the prefix of the
   * sorting key: rows of the block have no other times, so a stored one is found.
   */
  #storedEndSql(source: TopicPartition, block: Block): string {
    return `SELECT max(kafka_offset + 1) AS next FROM ${this.#client.database}.${block.table}
      WHERE ${dayOf(source, block)} AND ${timesOf(block)}`
  }

  /**
   * A crash of ClickHouse can store rows without their sums per minute. Adds up such blocks: those without a marker.
   * Checked again in the statement, which holds the lock of the inserts.
   */
  async #addUpMissing(source: TopicPartition, block: Block, since: number): Promise<void> {
    const { table } = block
    if (!hasRollup(table)) return
    const { database } = this.#client
    const minutes = `${database}.${minuteTable(table)}`
    const own = `${dayOf(source, block)} AND batch >= ${since}`
    const unmarked = await this.#client.query<{ batch: string | number }>(
      `SELECT DISTINCT batch FROM ${database}.${table} WHERE ${own} AND ${timesOf(block)}
         AND batch NOT IN (SELECT batch FROM ${minutes} WHERE ${own})`,
    )
    for (const { batch } of unmarked) {
      const isUnmarked = `(SELECT count() FROM ${minutes} WHERE ${own} AND batch = ${batch}) = 0`
      const rows = `${own} AND batch = ${batch} AND ${isUnmarked}`
      await this.#client.command(addUpBlock(database, table, rows), this.#lockOf(source, table))
    }
  }

  #lockOf({ topic, partition }: TopicPartition, table: Table): string {
    return `sluice-kafka-${this.#client.database}-${table}-${topic}-${partition}`
  }
}

function dayOf(source: TopicPartition, { day }: Block): string {
  return `day = ${literal(day)} AND producer = ${literal(producerOf(source))}`
}

function timesOf({ table, fromSecond, toSecond }: Block): string {
  const time = hasRollup(table) ? 'time' : 'timestamp'
  return `${time} >= toDateTime(${fromSecond}) AND ${time} <= toDateTime(${toSecond})`
}
