// Splits a batch into blocks: rows of one table and one day. ClickHouse stores a block as one part of one partition,
// and therefore completely or not at all.

import { mapped, type Sliced } from 'sluice'
import type { Batch, DecisionEvent, LimitRow } from '../event.ts'
import type { BatchId } from '../sink.ts'
import type { Table } from './schema.ts'
import { jsonText } from './sql-text.ts'

export type Block = {
  readonly table: Table
  /** `2026-01-31`, in UTC. */
  readonly day: string
  /** JSONEachRow. */
  readonly lines: string
  readonly rows: number
  /** First and last second of its rows, since the epoch. */
  readonly fromSecond: number
  readonly toSecond: number
}

/** A line of JSON without its last brace: the columns that all rows of a block share are appended. */
type Line = { readonly second: number; readonly open: string }

const DAY_SECONDS = 86_400

/** Additional properties of rows, such as kafka_partition and kafka_offset, are stored if there is such a column. */
export function blocksOf(id: BatchId, batch: Batch): Block[] {
  const work = slicedBlocks(id, batch)
  for (;;) {
    const step = work.next()
    if (step.done) return step.value
  }
}

/** `blocksOf` as sliced work: 10,000 events take longer than a check may wait. */
export function* slicedBlocks(id: BatchId, batch: Batch): Sliced<Block[]> {
  const origin = `"producer":${jsonText(id.producer)},"batch":${id.seq}`
  return [
    ...split('sluice_events', yield* mapped(batch.events, eventLine), origin),
    ...split('sluice_counts', yield* mapped(batch.counts, timedLine), origin),
    ...split('sluice_limits', yield* mapped(batch.limits, limitLine), origin),
    ...split('sluice_clients', yield* mapped(batch.clients, timedLine), origin),
    ...split('sluice_latency', yield* mapped(batch.latency, timedLine), origin),
  ]
}

/** Appends changed columns as text, which takes half the time of a second copy of the event. */
function eventLine({ timestamp, allowed, decision_us, ...event }: DecisionEvent): Line {
  const second = Math.floor(timestamp / 1000)
  const times = `"timestamp":${second},"timestamp_ms":${timestamp}`
  // ClickHouse refuses fractions in columns of whole numbers.
  const numbers = `"allowed":${allowed ? 1 : 0},"decision_us":${Math.round(decision_us)}`
  return { second, open: `${openJson(event)},${times},${numbers}` }
}

function timedLine(row: { readonly time: number }): Line {
  return { second: row.time, open: openJson(row) }
}

function limitLine({ limit, ...row }: LimitRow): Line {
  return timedLine({ ...row, limit_name: limit } as { time: number })
}

function openJson(row: object): string {
  return jsonText(row).slice(0, -1)
}

function split(table: Table, lines: readonly Line[], origin: string): Block[] {
  const days = new Map<number, Line[]>()
  for (const line of lines) {
    const day = Math.floor(line.second / DAY_SECONDS)
    const ofDay = days.get(day)
    if (ofDay === undefined) days.set(day, [line])
    else ofDay.push(line)
  }
  return [...days].map(([number, ofDay]) => {
    const day = dayOf(number * DAY_SECONDS)
    const end = `,"day":"${day}",${origin}}\n`
    let [text, fromSecond, toSecond] = ['', Number.POSITIVE_INFINITY, 0]
    for (const { second, open } of ofDay) {
      text += open + end
      fromSecond = Math.min(fromSecond, second)
      toSecond = Math.max(toSecond, second)
    }
    return { table, day, lines: text, rows: ofDay.length, fromSecond, toSecond }
  })
}

/** The day of a second since the epoch, as ClickHouse writes a Date. */
export function dayOf(second: number): string {
  return new Date(second * 1000).toISOString().slice(0, 10)
}
