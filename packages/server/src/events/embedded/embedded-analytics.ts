// Queries over the events and rollups in the database of the rules.

import type { Queries, Row } from '../../db/database.ts'
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

const MINUTE_MS = 60_000
/** Largest number of minutes in an integer column. */
const MINUTE_MAX = 2 ** 31 - 1
/** Latest time that PostgreSQL and Date both accept. */
const TIME_MS_MAX = Date.UTC(9999, 11, 31)

export function embeddedAnalytics(queries: Queries): Analytics {
  return {
    name: 'embedded',
    timeline: (query) => timeline(queries, query),
    top: (query) => top(queries, query),
    refusedClients: (query) => refusedClients(queries, query),
    client: (query) => client(queries, query),
    latency: (query) => latency(queries, query),
    summary: (query) => summary(queries, query),
    events: (query) => findEvents(queries, query),
  }
}

/** Conditions with numbered parameters; `?` in a condition is the next parameter. */
class Where {
  readonly parameters: unknown[] = []
  readonly #conditions: string[] = []

  and(condition: string, ...values: readonly unknown[]): this {
    const texts = values.map((value) => this.parameter(value))
    this.#conditions.push(condition.replace(/\?/g, () => texts.shift() ?? ''))
    return this
  }

  parameter(value: unknown): string {
    return `$${this.parameters.push(value)}`
  }

  toString(): string {
    return `WHERE ${this.#conditions.join(' AND ')}`
  }
}

const TABLES: Readonly<Record<RollupName, string>> = {
  counts: 'event_counts',
  limits: 'event_limits',
  clients: 'event_clients',
}

/** Table of a rollup. Counts without plan and tenant have a table of their own, with far fewer rows. */
function tableOf(rollup: RollupName, { plan, tenant }: Filter, by: string | undefined): string {
  const isOverview = [plan, tenant].every((value) => value === undefined) && by !== 'plan' && by !== 'tenant'
  return rollup === 'counts' && isOverview ? 'event_overview' : TABLES[rollup]
}

const LIMIT_NAME = `rule || '/' || limit_name`

function columnOf(name: Dimension): string {
  return name === 'limit' ? LIMIT_NAME : name
}

/** Minutes that start within the range. */
function within({ fromMs, toMs }: Range): Where {
  const minuteOf = (ms: number) => Math.min(MINUTE_MAX, Math.ceil(ms / MINUTE_MS))
  return new Where().and('minute >= ? AND minute < ?', minuteOf(fromMs), minuteOf(toMs))
}

/** `result` is no condition: it makes the counts of the other result 0. */
function matching(range: Range, { result: _result, ...filter }: Filter): Where {
  const where = within(range)
  for (const [name, value] of Object.entries(filter)) {
    if (value !== undefined) where.and(`${columnOf(name as Dimension)} = ?`, value)
  }
  return where
}

/** Sums of the columns allowed, refused and near_limit. */
function sumsOf(rollup: RollupName, { result }: Filter): string {
  const sum = (name: 'allowed' | 'refused' | 'near_limit') => {
    const isOther = result !== undefined && result !== (name === 'refused' ? 'refused' : 'allowed')
    if (isOther || (rollup === 'counts' && name === 'near_limit')) return `0::bigint AS ${name}`
    const value = rollup === 'counts' ? `CASE WHEN result = '${name}' THEN count ELSE 0 END` : name
    return `coalesce(sum(${value}), 0)::bigint AS ${name}`
  }
  return [sum('allowed'), sum('refused'), sum('near_limit')].join(', ')
}

function startOf(stepMs: number): string {
  const minutes = stepSeconds(stepMs) / 60
  return `minute - minute % ${minutes}`
}

type Counts = { readonly allowed: number; readonly refused: number; readonly near_limit: number }

async function timeline(queries: Queries, query: TimelineQuery): Promise<readonly Series[]> {
  const { filter, by, stepMs, seriesMax } = query
  const rollup = rollupOf(filter, by)
  const where = matching(query, filter)
  // Ranked in the database: passing every name at every step to this process takes seconds.
  const rows = await queries.query<Omit<Counts, 'near_limit'> & { readonly name: string; readonly at: number }>(
    `WITH named AS MATERIALIZED (
       SELECT ${by === undefined ? `'all'` : columnOf(by)} AS name, ${startOf(stepMs)} AS at, ${sumsOf(rollup, filter)}
       FROM ${tableOf(rollup, filter, by)} ${where} GROUP BY 1, 2
     ), shown AS (
       SELECT name FROM named WHERE name <> '${OTHER}' GROUP BY name
       ORDER BY sum(allowed + refused) DESC, name COLLATE "C" LIMIT ${where.parameter(seriesMax)}
     )
     SELECT coalesce(shown.name, '${OTHER}') AS name, at, sum(allowed)::bigint AS allowed,
       sum(refused)::bigint AS refused
     FROM named LEFT JOIN shown USING (name) GROUP BY 1, 2 HAVING sum(allowed + refused) > 0 ORDER BY 2`,
    where.parameters,
  )
  return toSeries(
    rows.map(({ name, at, allowed, refused }) => ({ name, atMs: at * MINUTE_MS, allowed, refused })),
    seriesMax,
  )
}

type NamedPoint = Point & { readonly name: string }

/** `other` is never ranked, and comes last. */
function toSeries(points: readonly NamedPoint[], seriesMax: number): readonly Series[] {
  const totals = new Map<string, number>()
  for (const { name, allowed, refused } of points) totals.set(name, (totals.get(name) ?? 0) + allowed + refused)
  const ranked = [...totals.keys()].filter((name) => name !== OTHER)
  ranked.sort((a, b) => (totals.get(b) ?? 0) - (totals.get(a) ?? 0) || Buffer.compare(Buffer.from(a), Buffer.from(b)))
  const shown = new Set(ranked.slice(0, seriesMax))
  const series = [...shown].map((name) => ({ name, points: points.filter((point) => point.name === name) }))
  const rest = summed(points.filter(({ name }) => !shown.has(name)))
  return [...series, ...(rest.length === 0 ? [] : [{ name: OTHER, points: rest }])].map((one) => ({
    name: one.name,
    points: one.points.map(({ atMs, allowed, refused }) => ({ atMs, allowed, refused })),
  }))
}

function summed(points: readonly Point[]): Point[] {
  const sums = new Map<number, { atMs: number; allowed: number; refused: number }>()
  for (const { atMs, allowed, refused } of points) {
    const sum = sums.get(atMs) ?? { atMs, allowed: 0, refused: 0 }
    sum.allowed += allowed
    sum.refused += refused
    sums.set(atMs, sum)
  }
  return [...sums.values()].sort((a, b) => a.atMs - b.atMs)
}

async function top(
  queries: Queries,
  { of, by, search, limit, filter, ...range }: TopQuery,
): Promise<readonly TopRow[]> {
  const rollup = rollupOf(filter, of)
  const where = matching(range, filter)
  const kind = of === 'client' ? 'kind' : 'NULL'
  const name = of === 'client' ? 'client' : columnOf(of)
  const found = search === undefined ? '' : `AND strpos(lower(name), ${where.parameter(search.toLowerCase())}) > 0`
  const rows = await queries.query<Counts & { readonly name: string; readonly kind: ClientKind | null }>(
    `SELECT * FROM (
       SELECT ${name} AS name, ${kind} AS kind, ${sumsOf(rollup, filter)}
       FROM ${tableOf(rollup, filter, of)} ${where} GROUP BY 1, 2
     ) AS named
     WHERE ${by} > 0 ${found} ORDER BY ${by} DESC, name COLLATE "C", kind COLLATE "C" LIMIT ${where.parameter(limit)}`,
    where.parameters,
  )
  return rows.map(({ kind: own, ...row }) => (own === null ? row : { ...row, kind: own }))
}

async function client(queries: Queries, query: ClientQuery): Promise<ClientReport> {
  const { kind, client: name, stepMs, events: limit, fromMs, toMs } = query
  const where = within(query).and('kind = ?', kind).and('client = ?', name)
  const rows = await queries.query<Counts & { readonly at: number }>(
    `SELECT ${startOf(stepMs)} AS at, ${sumsOf('clients', {})} FROM event_clients ${where} GROUP BY 1 ORDER BY 1`,
    where.parameters,
  )
  const events = await findEvents(queries, { filter: { kind, client: name }, fromMs, toMs, limit })
  const sum = (column: keyof Counts) => rows.reduce((total, row) => total + row[column], 0)
  const points = rows
    .filter(({ allowed, refused }) => allowed + refused > 0)
    .map(({ at, allowed, refused }) => ({ atMs: at * MINUTE_MS, allowed, refused }))
  return { allowed: sum('allowed'), refused: sum('refused'), near_limit: sum('near_limit'), points, events }
}

async function latency(queries: Queries, query: Range & { readonly stepMs: number }): Promise<readonly LatencyPoint[]> {
  const where = within(query)
  const rows = await queries.query<{ at: number; le_us: number; count: number }>(
    `SELECT ${startOf(query.stepMs)} AS at, le_us, sum(count)::bigint AS count
     FROM event_latency ${where} GROUP BY 1, 2 HAVING sum(count) > 0 ORDER BY 1, le_us = -1, le_us`,
    where.parameters,
  )
  const points = new Map<number, (readonly [number, number])[]>()
  for (const { at, le_us, count } of rows) points.set(at, [...(points.get(at) ?? []), [le_us, count]])
  return [...points].map(([at, buckets]) => ({ atMs: at * MINUTE_MS, buckets }))
}

async function summary(queries: Queries, query: Range & { readonly filter: Filter }): Promise<Summary> {
  const { filter } = query
  const rollup = rollupOf(filter, undefined)
  const where = matching(query, filter)
  const name = rollup === 'counts' ? 'source' : `''`
  const rows = await queries.query<Counts & { readonly name: EventSource }>(
    `SELECT ${name} AS name, ${sumsOf(rollup, filter)}
     FROM ${tableOf(rollup, filter, undefined)} ${where} GROUP BY 1`,
    where.parameters,
  )
  const sources = rows.map(({ name: source, allowed, refused }) => ({ name: source, count: allowed + refused }))
  return {
    allowed: rows.reduce((sum, row) => sum + row.allowed, 0),
    refused: rows.reduce((sum, row) => sum + row.refused, 0),
    sources: rollup === 'counts' ? sources.filter(({ count }) => count > 0).sort(byCount) : [],
  }
}

type Named = { readonly name: string; readonly count: number }

function byCount(a: Named, b: Named): number {
  return b.count - a.count || (a.name < b.name ? -1 : 1)
}

const CLIENT_COLUMNS: Readonly<Record<ClientKind, string>> = { user: 'client_id', api_key: 'api_key', ip: 'ip' }
const KIND_COLUMNS = Object.values(CLIENT_COLUMNS)

async function refusedClients(queries: Queries, query: RefusedClientsQuery): Promise<readonly RefusedClient[]> {
  const name = `coalesce(${KIND_COLUMNS.join(', ')})`
  const kinds = Object.entries(CLIENT_COLUMNS).map(([kind, column]) => `WHEN ${column} IS NOT NULL THEN '${kind}'`)
  const where = eventsWhere({ ...query, filter: { ...query.filter, result: 'refused' } }).and(`${name} IS NOT NULL`)
  return queries.query<RefusedClient>(
    `SELECT ${name} AS name, CASE ${kinds.join(' ')} END AS kind, count(*)::bigint AS refused
     FROM events ${where} GROUP BY 1, 2
     ORDER BY refused DESC, ${name} COLLATE "C", CASE ${kinds.join(' ')} END COLLATE "C"
     LIMIT ${where.parameter(query.limit)}`,
    where.parameters,
  )
}

async function findEvents(queries: Queries, query: EventsQuery): Promise<readonly DecisionEvent[]> {
  const where = eventsWhere(query)
  const rows = await queries.query<Row & { readonly at: Date }>(
    `SELECT * FROM events ${where} ORDER BY at DESC, event_id DESC LIMIT ${where.parameter(query.limit)}`,
    where.parameters,
  )
  return rows.map(({ id: _id, at, ...event }) => ({ ...event, timestamp: at.getTime() }) as unknown as DecisionEvent)
}

function eventsWhere({ filter, fromMs, toMs, before }: Omit<EventsQuery, 'limit'>): Where {
  const { rule, endpoint, plan, tenant, result, source, kind, client: name } = filter
  if ('limit' in filter && filter.limit !== undefined) throw new QueryInvalid('limit: events are not filtered by limit')
  const [from, to] = [fromMs, toMs].map((ms) => new Date(Math.min(ms, TIME_MS_MAX)).toISOString())
  const where = new Where().and('at >= ? AND at < ?', from, to)
  for (const [column, value] of Object.entries({ rule_id: rule, plan, tenant })) {
    if (value === NONE) where.and(`(${column} IS NULL OR ${column} = ?)`, NONE)
    else if (value !== undefined) where.and(`${column} = ?`, value)
  }
  for (const [column, value] of Object.entries({ endpoint_pattern: endpoint, source })) {
    if (value !== undefined) where.and(`${column} = ?`, value)
  }
  // As in partial indexes. Refunds and resets are stored as allowed.
  if (result !== undefined) where.and(result === 'allowed' ? `allowed AND operation = 'check'` : 'NOT allowed')
  if (before !== undefined) {
    const { timestamp, event_id: id } = before
    where.and('(at, event_id) < (?::timestamptz, ?::uuid)', new Date(timestamp).toISOString(), id)
  }
  const columns = kind === undefined ? KIND_COLUMNS : [CLIENT_COLUMNS[kind]]
  if (name !== undefined) where.and(`(${columns.map((one) => `${one} = ?`).join(' OR ')})`, ...columns.map(() => name))
  else if (kind !== undefined) where.and(`${CLIENT_COLUMNS[kind]} IS NOT NULL`)
  return where
}
