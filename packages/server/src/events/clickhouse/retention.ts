// Drops the partitions of days past their retention, at the start and every hour. Safe on several nodes: dropping a
// partition that is gone does nothing.

import { type Clock, wallClock } from 'sluice'
import type { Log } from '../../log.ts'
import { dayOf } from './blocks.ts'
import type { ClickHouse } from './client.ts'
import { type ClickHouseSchema, minuteTable, SECOND_TABLES, TABLES } from './schema.ts'
import { literal } from './sql-text.ts'

const INTERVAL_MS = 3_600_000
const DAY_SECONDS = 86_400
const DAY_MS = 86_400_000

/** Undefined if `retentionMs` is 0: rows are kept forever. */
export function retentionOf(
  client: ClickHouse,
  schema: ClickHouseSchema,
  retentionMs: number,
  log: Log,
): PartitionRetention | undefined {
  const keepDays = Math.ceil(retentionMs / DAY_MS)
  return keepDays === 0 ? undefined : new PartitionRetention({ client, schema, keepDays, log })
}

export type PartitionRetentionDeps = {
  readonly client: ClickHouse
  readonly schema: ClickHouseSchema
  /** Rows are kept for at least this many days, and at most one day longer. */
  readonly keepDays: number
  readonly log: Log
  readonly clock?: Clock | undefined
}

export class PartitionRetention {
  readonly #deps: PartitionRetentionDeps
  #timer: NodeJS.Timeout | undefined
  #running: Promise<void>
  #closed = false

  constructor(deps: PartitionRetentionDeps) {
    this.#deps = deps
    this.#running = this.#run()
  }

  /** Resolves when a run that has begun is complete. */
  settled(): Promise<void> {
    return this.#running
  }

  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#timer)
    await this.#running
  }

  async #run(): Promise<void> {
    const { schema, log } = this.#deps
    try {
      await schema.ready()
      await this.#dropOld()
    } catch (error) {
      if (!this.#closed) log.event('retention_failed', { table: 'clickhouse', reason: String(error) })
    }
    if (this.#closed) return
    this.#timer = setTimeout(() => {
      this.#running = this.#run()
    }, INTERVAL_MS).unref()
  }

  async #dropOld(): Promise<void> {
    const { client, keepDays, log, clock = wallClock } = this.#deps
    const oldest = dayOf(Math.floor(clock.nowUs() / 1e6) - keepDays * DAY_SECONDS)
    const tables = [...TABLES, ...SECOND_TABLES.map(minuteTable)]
    const partitions = await client.query<{ table: string; partition: string; rows: number | string }>(
      `SELECT table, partition, sum(rows) AS rows FROM system.parts
       WHERE active AND database = ${literal(client.database)} AND table IN (${tables.map(literal).join(', ')})
         AND partition < ${literal(oldest)}
       GROUP BY table, partition ORDER BY partition, table`,
    )
    for (const { table, partition, rows } of partitions) {
      if (this.#closed) return
      await client.command(`ALTER TABLE ${client.database}.${table} DROP PARTITION ${literal(partition)}`)
      log.event('retention_applied', { table, deleted: Number(rows), before: oldest })
    }
  }
}
