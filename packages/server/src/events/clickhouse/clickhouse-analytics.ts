// Analytics over ClickHouse. The SQL is the common subset of 18.16 and current versions. Aliases are short and differ
// from all columns: ClickHouse replaces a column by an alias of the same name everywhere in a query.

import {
  type Analytics,
  type ClientQuery,
  type ClientReport,
  type Dimension,
  type EventsQuery,
  type Filter,
  type LatencyPoint,
  type Point,
  QueryInvalid,
  type Range,
  type RefusedClient,
  type RefusedClientsQuery,
  type RollupName,
  rollupOf,
  type Series,
  type Summary,
  stepSeconds,
  type TimelineQuery,
  type TopQuery,
  type TopRow,
} from '../analytics.ts'
import { type ClientKind, type DecisionEvent, type EventSource, NONE, OTHER } from '../event.ts'
import { dayOf } from './blocks.ts'
import type { ClickHouse } from './client.ts'
import { eventColumns, readEvent, type StoredEvent } from './event-row.ts'
import { type ClickHouseSchema, minuteTable } from './schema.ts'
import { literal } from './sql-text.ts'

/** ClickHouse's DateTime and Date end in 2105 or later. */
const SECOND_MAX = 4_260_211_200
/** Cap on rows of an answer. */
const ROWS_MAX = 100_000

const ALL = 'all'
const CLIENT_COLUMNS: Readonly<Record<ClientKind, string>> = { user: 'client_id', api_key: 'api_key', ip: 'ip' }
const CLIENT_NAME = "ifNull(client_id, ifNull(api_key, ifNull(ip, '')))"
const TABLES = { counts: 'sluice_counts', limits: 'sluice_limits', clients: 'sluice_clients' } as const

type Count = number | string
type CountsRow = { readonly at: Count; readonly a: Count; readonly r: Count; readonly n: Count }

export class ClickHouseAnalytics implements Analytics {
  readonly name = 'clickhouse'
  readonly #client: ClickHouse
  readonly #schema: ClickHouseSchema

  constructor(client: ClickHouse, schema: ClickHouseSchema) {
    this.#client = client
    this.#schema = schema
  }

  async timeline(query: TimelineQuery): Promise<readonly Series[]> {
    const { filter, by, seriesMax } = query
    const rollup = rollupOf(filter, by)
    const from = this.#from(rollup, query, filter)
    const sums = sumsOf(rollup, filter)
    const name = by === undefined ? literal(ALL) : nameOf(by)
    const ranked = `SELECT ${name} AS name FROM ${from} AND ${name} != ${literal(OTHER)}
      GROUP BY name HAVING ${sums.a} + ${sums.r} > 0 ORDER BY ${sums.a} + ${sums.r} DESC, name LIMIT ${seriesMax}`
    const series = by === undefined ? name : `if(${name} IN (${ranked}), ${name}, ${literal(OTHER)})`
    const rows = await this.#rows<CountsRow & { readonly series: string }>(
      `SELECT ${series} AS series, ${startOf(query.stepMs)} AS at, ${sums.a} AS a, ${sums.r} AS r
       FROM ${from} GROUP BY ${by === undefined ? '' : 'series, '}at HAVING a + r > 0 ORDER BY at`,
    )
    return toSeries(rows)
  }

  async top({ of, by, search, limit, filter, ...range }: TopQuery): Promise<readonly TopRow[]> {
    const rollup = rollupOf(filter, of)
    if (rollup === 'counts' && by === 'near_limit') return []
    const from = this.#from(rollup, range, filter)
    const sums = sumsOf(rollup, filter)
    const name = of === 'client' ? 'client' : nameOf(of)
    const kind = of === 'client' ? 'kind' : "''"
    const column = { refused: 'r', allowed: 'a', near_limit: 'n' }[by]
    const found = search === undefined ? '' : ` AND positionCaseInsensitiveUTF8(${name}, ${literal(search)}) > 0`
    const rows = await this.#rows<CountsRow & { readonly name: string; readonly category: string }>(
      `SELECT ${name} AS name, ${kind} AS category, ${sums.a} AS a, ${sums.r} AS r, ${sums.n} AS n
       FROM ${from}${found} GROUP BY name${of === 'client' ? ', category' : ''}
       HAVING ${column} > 0 ORDER BY ${column} DESC, name, category`,
      limit,
    )
    return rows.map(({ name, category, a, r, n }) => ({
      name,
      ...(of === 'client' ? { kind: category as ClientKind } : {}),
      allowed: Number(a),
      refused: Number(r),
      near_limit: Number(n),
    }))
  }

  async refusedClients({ filter, limit, ...range }: RefusedClientsQuery): Promise<readonly RefusedClient[]> {
    const kinds = Object.entries(CLIENT_COLUMNS).map(([kind, column]) => `isNotNull(${column}), ${literal(kind)}`)
    const rows = await this.#rows<{ readonly name: string; readonly category: ClientKind; readonly n: Count }>(
      `SELECT ${CLIENT_NAME} AS name, multiIf(${kinds.join(', ')}, '') AS category, count() AS n
       FROM ${this.#fromEvents(range, { ...filter, result: 'refused' })}
       GROUP BY name, category HAVING category != '' ORDER BY n DESC, name, category`,
      limit,
    )
    return rows.map(({ name, category, n }) => ({ name, kind: category, refused: Number(n) }))
  }

  async client({ kind, client, stepMs, events, ...range }: ClientQuery): Promise<ClientReport> {
    const sums = sumsOf('clients', {})
    const rows = await this.#rows<CountsRow>(
      `SELECT ${startOf(stepMs)} AS at, ${sums.a} AS a, ${sums.r} AS r, ${sums.n} AS n
       FROM ${this.#from('clients', range, {})} AND kind = ${literal(kind)} AND client = ${literal(client)}
       GROUP BY at HAVING a + r > 0 ORDER BY at`,
    )
    const points = rows.map(toPoint)
    return {
      allowed: total(points.map(({ allowed }) => allowed)),
      refused: total(points.map(({ refused }) => refused)),
      near_limit: total(rows.map(({ n }) => Number(n))),
      points,
      events: await this.events({ filter: { kind, client }, ...range, limit: events }),
    }
  }

  async latency({ stepMs, ...range }: Range & { readonly stepMs: number }): Promise<readonly LatencyPoint[]> {
    const rows = await this.#rows<{ at: Count; le: Count; n: Count }>(
      `SELECT ${startOf(stepMs)} AS at, le_us AS le, sum(count) AS n
       FROM ${this.#fromTable(minuteTable('sluice_latency'), range)}
       GROUP BY at, le HAVING n > 0 ORDER BY at, le = -1, le`,
    )
    const points = new Map<number, [number, number][]>()
    for (const { at, le, n } of rows) {
      const atMs = Number(at) * 1000
      const buckets = points.get(atMs) ?? []
      if (buckets.push([Number(le), Number(n)]) === 1) points.set(atMs, buckets)
    }
    return [...points].map(([atMs, buckets]) => ({ atMs, buckets }))
  }

  async summary({ filter, ...range }: Range & { readonly filter: Filter }): Promise<Summary> {
    const rollup = rollupOf(filter, undefined)
    const sums = sumsOf(rollup, filter)
    const from = this.#from(rollup, range, filter)
    const name = rollup === 'counts' ? 'source' : literal(ALL)
    const rows = await this.#rows<CountsRow & { readonly name: EventSource }>(
      `SELECT ${name} AS name, ${sums.a} AS a, ${sums.r} AS r
       FROM ${from}${rollup === 'counts' ? ' GROUP BY name' : ''} HAVING a + r > 0 ORDER BY a + r DESC, name`,
    )
    const sources = rows.map(({ name, a, r }) => ({ name, count: Number(a) + Number(r) }))
    return {
      allowed: total(rows.map(({ a }) => Number(a))),
      refused: total(rows.map(({ r }) => Number(r))),
      sources: rollup === 'counts' ? sources : [],
    }
  }

  async events({ filter, limit, before, ...given }: EventsQuery): Promise<readonly DecisionEvent[]> {
    const range = { ...given, toMs: Math.min(given.toMs, (before?.timestamp ?? Number.POSITIVE_INFINITY) + 1) }
    const page =
      before === undefined ? '' : ` AND (timestamp_ms < ${before.timestamp} OR event_id < ${literal(before.event_id)})`
    const from = this.#fromEvents(range, filter) + page
    // Finds out how far to go back before it reads and sorts whole rows.
    const newest = await this.#rows<{ t: Count }>(`SELECT timestamp_ms AS t FROM ${from} ORDER BY t DESC`, limit)
    const oldest = newest.at(-1)
    if (oldest === undefined) return []
    const since = `timestamp >= toDateTime(${Math.floor(Number(oldest.t) / 1000)}) AND timestamp_ms >= ${oldest.t}`
    const rows = await this.#rows<StoredEvent>(
      `SELECT ${eventColumns()} FROM ${from} AND ${since}
       ORDER BY timestamp_ms DESC, event_id DESC`,
      limit,
    )
    return rows.map(readEvent)
  }

  /** With a `limit`, returns as many rows; without, refuses answers that are too large. */
  async #rows<Row>(sql: string, limit?: number): Promise<Row[]> {
    await this.#schema.ready()
    const rows = await this.#client.query<Row>(`${sql} LIMIT ${Math.min(limit ?? ROWS_MAX + 1, ROWS_MAX + 1)}`)
    if (rows.length <= ROWS_MAX) return rows
    throw new QueryInvalid(`step: the answer has more than ${ROWS_MAX} rows; use a larger step or a shorter range`)
  }

  #fromEvents(range: Range, filter: EventsQuery['filter']): string {
    const selected = eventConditions(filter).join(' AND ')
    const times = `timestamp_ms >= ${whole(range.fromMs)} AND timestamp_ms < ${whole(range.toMs)}`
    // PREWHERE: reads the other columns only near rows that match.
    const prewhere = selected === '' ? '' : `PREWHERE ${selected}`
    return `${this.#client.database}.sluice_events ${prewhere} WHERE ${inRange('timestamp', range)} AND ${times}`
  }

  #from(rollup: RollupName, range: Range, filter: Filter): string {
    const conditions = filterConditions(rollup, filter).map((condition) => ` AND ${condition}`)
    return this.#fromTable(minuteTable(TABLES[rollup]), range) + conditions.join('')
  }

  /** Rows with a producer are markers of blocks, not minutes. */
  #fromTable(table: string, range: Range): string {
    return `${this.#client.database}.${table} WHERE producer = '' AND batch = 0 AND ${inRange('time', range)}`
  }
}

function inRange(column: string, { fromMs, toMs }: Range): string {
  const second = (ms: number) => Math.min(SECOND_MAX, Math.max(0, Math.ceil(ms / 1000)))
  const isTime = column === 'time'
  // A minute is in the range if its start is; an event of the first second may be.
  const [from, to] = [isTime ? second(fromMs) : second(Math.floor(fromMs / 1000) * 1000), second(toMs)]
  return `day >= ${literal(dayOf(from))} AND day <= ${literal(dayOf(to))}
    AND ${column} >= toDateTime(${from}) AND ${column} < toDateTime(${to})`
}

function startOf(stepMs: number): string {
  const seconds = stepSeconds(stepMs)
  return `intDiv(toUInt32(time), ${seconds}) * ${seconds}`
}

/** Decisions allowed (a), refused (r) and near the limit (n). */
function sumsOf(rollup: RollupName, { result }: Filter): { a: string; r: string; n: string } {
  const none = 'toUInt64(0)'
  if (rollup === 'counts') {
    return { a: `sumIf(count, result = 'allowed')`, r: `sumIf(count, result = 'refused')`, n: none }
  }
  const [isAllowed, isRefused] = [result !== 'refused', result !== 'allowed']
  return {
    a: isAllowed ? 'sum(allowed)' : none,
    r: isRefused ? 'sum(refused)' : none,
    n: isAllowed ? 'sum(near_limit)' : none,
  }
}

function nameOf(dimension: Dimension): string {
  return dimension === 'limit' ? "concat(rule, '/', limit_name)" : dimension
}

function filterConditions(rollup: RollupName, filter: Filter): string[] {
  return (Object.keys(filter) as Dimension[]).flatMap((name) => {
    const value = filter[name]
    const isColumn = name !== 'result' || rollup === 'counts'
    return value === undefined || !isColumn ? [] : [`${nameOf(name)} = ${literal(value)}`]
  })
}

function eventConditions({ kind, client, ...filter }: EventsQuery['filter']): string[] {
  const optional = (column: string) => `ifNull(${column}, ${literal(NONE)})`
  const columns = { rule: optional('rule_id'), plan: optional('plan'), tenant: optional('tenant') }
  const names = { ...columns, endpoint: 'endpoint_pattern', source: 'source', result: undefined }
  const conditions = (Object.keys(names) as (keyof typeof names)[]).flatMap((name) => {
    const value = filter[name]
    if (value === undefined) return []
    return name === 'result'
      ? [`allowed = ${value === 'allowed' ? 1 : 0} AND operation = 'check'`]
      : [`${names[name]} = ${literal(value)}`]
  })
  const kinds = kind === undefined ? Object.values(CLIENT_COLUMNS) : [CLIENT_COLUMNS[kind]]
  if (client !== undefined) conditions.push(`(${kinds.map((name) => `${name} = ${literal(client)}`).join(' OR ')})`)
  else if (kind !== undefined) conditions.push(`isNotNull(${CLIENT_COLUMNS[kind]})`)
  return conditions
}

function toSeries(rows: readonly (CountsRow & { readonly series: string })[]): Series[] {
  const points = new Map<string, Point[]>()
  for (const row of rows) {
    const list = points.get(row.series) ?? []
    if (list.push(toPoint(row)) === 1) points.set(row.series, list)
  }
  const ranked = [...points].map(([name, list]) => {
    const decisions = total(list.map(({ allowed, refused }) => allowed + refused))
    return { name, points: list, rank: name === OTHER ? -1 : decisions }
  })
  ranked.sort((a, b) => b.rank - a.rank || Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)))
  return ranked.map(({ name, points: list }) => ({ name, points: list }))
}

function toPoint({ at, a, r }: CountsRow): Point {
  return { atMs: Number(at) * 1000, allowed: Number(a), refused: Number(r) }
}

function total(counts: readonly number[]): number {
  return counts.reduce((sum, count) => sum + count, 0)
}

/** For SQL; infinite ranges become the largest exact number. */
function whole(ms: number): number {
  return Math.min(Number.MAX_SAFE_INTEGER, Math.max(0, Math.ceil(ms)))
}
