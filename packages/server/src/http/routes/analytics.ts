// GET /api/v1/analytics/*: decisions over time, top clients and rules, one client, latency, summary. Totals count every
// decision, whatever the sample rate.

import type { FastifyInstance } from 'fastify'
import type { Clock } from 'sluice'
import { DatabaseUnavailable } from '../../db/database.ts'
import {
  type Analytics,
  type ClientReport,
  type Dimension,
  type Filter,
  type Point,
  QueryInvalid,
  type Range,
  type TopQuery,
  type TopRow,
} from '../../events/analytics.ts'
import type { ClientKind, DecisionEvent } from '../../events/event.ts'
import { latencyOf } from '../../events/latency.ts'
import { invalidField, ProblemError, problem } from '../../problems/problem.ts'
import {
  FILTER,
  type FilterParameters,
  filterOf,
  LIMIT_FILTER,
  RANGE,
  type RangeParameters,
  rangeOf,
  STEP,
  stepOf,
} from '../bodies/analytics-query.ts'
import { answers, fact, limitQuery, type Schema } from '../bodies/schemas.ts'

export const ANALYTICS_PATH = '/api/v1/analytics'
const TIMELINE_BY: readonly Dimension[] = ['rule', 'endpoint', 'plan', 'tenant', 'result', 'source', 'limit']
const TOP_OF: readonly TopQuery['of'][] = ['client', 'rule', 'endpoint', 'plan', 'tenant', 'limit']
const TOP_BY: readonly TopQuery['by'][] = ['refused', 'allowed', 'near_limit']
const KINDS: readonly ClientKind[] = ['user', 'api_key', 'ip']
const SERIES_MAX = 20
const TOP = { default: 20, max: 1000 } as const
const CLIENT_EVENTS = 50
const SUMMARY_TOP = 5

type Deps = { readonly analytics: Analytics | undefined; readonly clock: Clock }

const config = { access: 'viewer' as const }
const tags = ['insight']
const count: Schema = { type: 'integer' }
const time: Schema = { type: 'string', description: 'RFC 3339.' }
const POINTS: Schema = {
  type: 'array',
  description: 'Steps without decisions are left out.',
  items: { type: 'object', properties: { at: time, allowed: count, refused: count } },
}
const LATENCY: Schema = {
  type: 'object',
  description: 'Time from a valid request to its decision, in microseconds, estimated from a histogram.',
  properties: { count, p50_us: { type: 'number' }, p95_us: { type: 'number' }, p99_us: { type: 'number' } },
}
const TOP_ROWS: Schema = {
  type: 'array',
  items: {
    type: 'object',
    properties: {
      name: { type: 'string' },
      kind: { type: 'string', enum: KINDS, description: 'Clients only: what the name is.' },
      allowed: count,
      refused: count,
      near_limit: { ...count, description: 'Part of `allowed`: at least 80 % of a limit was used.' },
    },
  },
}

function choice(description: string, choices: readonly string[]): Schema {
  return { type: 'string', enum: choices, description, 'x-fix': `use one of ${choices.join(', ')}` }
}

function query(properties: Readonly<Record<string, Schema>>): Schema {
  return { type: 'object', additionalProperties: false, properties }
}

function answer(properties: Readonly<Record<string, Schema>>): Record<number, unknown> {
  return answers({ type: 'object', properties: { from: time, to: time, ...properties } }, 400, 409, 503)
}

export function analyticsRoutes(app: FastifyInstance, deps: Deps): void {
  timelineRoute(app, deps)
  topRoute(app, deps)
  clientRoute(app, deps)
  latencyRoute(app, deps)
  summaryRoute(app, deps)
}

function timelineRoute(app: FastifyInstance, deps: Deps): void {
  const schema = {
    operationId: 'analyticsTimeline',
    summary: 'Decisions over time',
    description: 'Counts every decision of all nodes, per minute or longer, with a delay of about two seconds.',
    tags,
    querystring: query({
      ...RANGE,
      ...STEP,
      ...FILTER,
      ...LIMIT_FILTER,
      by: choice('One series per value of this property. Default: one series, `all`.', TIMELINE_BY),
    }),
    response: answer({
      step_seconds: count,
      series: { type: 'array', items: { type: 'object', properties: { name: { type: 'string' }, points: POINTS } } },
    }),
  }
  type Query = RangeParameters & FilterParameters & { readonly by?: Dimension }
  app.get<{ Querystring: Query }>(`${ANALYTICS_PATH}/timeline`, { schema, config }, async ({ query }) => {
    const range = rangeOf(query, nowMsOf(deps))
    const [stepMs, filter, { by }] = [stepOf(query, range), filterOf(query), query]
    const series = await ask(deps, (from) => from.timeline({ ...range, stepMs, filter, by, seriesMax: SERIES_MAX }))
    const shown = series.map(({ name, points }) => ({ name, points: points.map(shownPoint) }))
    return { ...shownRange(range), step_seconds: stepMs / 1000, series: shown }
  })
}

function topRoute(app: FastifyInstance, deps: Deps): void {
  const { properties: count } = limitQuery(TOP)
  const { limit: countSchema } = count as { limit: Schema }
  const schema = {
    operationId: 'analyticsTop',
    summary: 'Top clients, rules, endpoints, plans, tenants or limits',
    description:
      'Clients come from a sketch of the 200 busiest of each minute and node: their counts are lower bounds. With a ' +
      'filter, they come from the stored refusals, and only `refused` is known. Other counts are exact.',
    tags,
    querystring: query({
      ...RANGE,
      ...FILTER,
      of: choice('What to rank. Default: client.', TOP_OF),
      by: choice('What to rank by. Default: refused. near_limit: only clients and limits.', TOP_BY),
      search: fact('Only names that contain this text, in any case. Not with filters of clients.', 'user_12', 255),
      count: countSchema,
    }),
    response: answer({ top: TOP_ROWS }),
  }
  type Query = RangeParameters &
    Omit<FilterParameters, 'limit'> & {
      readonly of?: TopQuery['of']
      readonly by?: TopQuery['by']
      readonly search?: string
      readonly count?: string
    }
  app.get<{ Querystring: Query }>(`${ANALYTICS_PATH}/top`, { schema, config }, async ({ query }) => {
    const range = rangeOf(query, nowMsOf(deps))
    const { of = 'client', by = 'refused', search, count: wanted = TOP.default } = query
    const filter = filterOf(query)
    const limit = Number(wanted)
    requireKnown(of, by, filter)
    if (of === 'client' && isFiltered(filter)) {
      if (search !== undefined) throw invalidField('search', search, 'remove it, or the filters')
      return { ...shownRange(range), top: await ask(deps, (from) => from.refusedClients({ ...range, filter, limit })) }
    }
    const top = await ask(deps, (from) => from.top({ ...range, filter, of, by, search, limit }))
    return { ...shownRange(range), top: shownTop(of, top) }
  })
}

/** Throws if no series has the ranked count with these filters. */
function requireKnown(of: TopQuery['of'], by: TopQuery['by'], filter: Filter): void {
  for (const [field, value] of Object.entries(filter)) {
    const isKnown = value === undefined || (of === 'limit' ? field === 'rule' : of !== 'client' || field !== 'result')
    if (!isKnown) throw invalidField(field, value, `remove it: it does not apply to of=${of}`)
  }
  if (by === 'near_limit' && of !== 'client' && of !== 'limit') {
    throw invalidField('by', by, 'use refused or allowed, or rank of=client or of=limit')
  }
  if (by !== 'refused' && of === 'client' && isFiltered(filter)) {
    throw invalidField('by', by, 'use refused, or remove the filters: only refusals of clients are counted with them')
  }
}

function isFiltered(filter: Filter): boolean {
  return Object.values(filter).some((value) => value !== undefined)
}

function clientRoute(app: FastifyInstance, deps: Deps): void {
  const schema = {
    operationId: 'analyticsClient',
    summary: 'One client',
    description: 'Its counts, lower bounds as in `top`, over time, and its newest events.',
    tags,
    params: { type: 'object', properties: { id: { type: 'string', maxLength: 1024 } } },
    querystring: query({ ...RANGE, ...STEP, kind: choice('What the id is. Default: user.', KINDS) }),
    response: answer({
      client: { type: 'string' },
      kind: { type: 'string' },
      step_seconds: count,
      allowed: count,
      refused: count,
      near_limit: count,
      points: POINTS,
      events: { type: 'array', items: { type: 'object', additionalProperties: true } },
    }),
  }
  type Route = { Params: { id: string }; Querystring: RangeParameters & { readonly kind?: ClientKind } }
  app.get<Route>(`${ANALYTICS_PATH}/clients/:id`, { schema, config }, async ({ params: { id }, query }) => {
    const range = rangeOf(query, nowMsOf(deps))
    const { kind = 'user' } = query
    const stepMs = stepOf(query, range)
    const report: ClientReport = await ask(deps, (from) =>
      from.client({ ...range, kind, client: id, stepMs, events: CLIENT_EVENTS }),
    )
    const { points, events, ...sums } = report
    const shown = { points: points.map(shownPoint), events: events.map(shownEvent) }
    return { ...shownRange(range), client: id, kind, step_seconds: stepMs / 1000, ...sums, ...shown }
  })
}

function latencyRoute(app: FastifyInstance, deps: Deps): void {
  const points = { type: 'array', items: { ...LATENCY, properties: { at: time, ...(LATENCY.properties as object) } } }
  const schema = {
    operationId: 'analyticsLatency',
    summary: 'Latency of decisions over time',
    tags,
    querystring: query({ ...RANGE, ...STEP }),
    response: answer({ step_seconds: count, all: LATENCY, points }),
  }
  app.get<{ Querystring: RangeParameters }>(`${ANALYTICS_PATH}/latency`, { schema, config }, async ({ query }) => {
    const range = rangeOf(query, nowMsOf(deps))
    const stepMs = stepOf(query, range)
    const found = await ask(deps, (from) => from.latency({ ...range, stepMs }))
    const shown = found.map(({ atMs, buckets }) => ({ at: new Date(atMs).toISOString(), ...latencyOf(buckets) }))
    const all = latencyOf(found.flatMap(({ buckets }) => buckets))
    return { ...shownRange(range), step_seconds: stepMs / 1000, all, points: shown }
  })
}

function summaryRoute(app: FastifyInstance, deps: Deps): void {
  const schema = {
    operationId: 'analyticsSummary',
    summary: 'Totals of a time range',
    tags,
    querystring: query({ ...RANGE, ...FILTER }),
    response: answer({
      checks: count,
      allowed: count,
      refused: count,
      refused_share: { type: 'number' },
      sources: { type: 'array', items: { type: 'object', properties: { name: { type: 'string' }, count } } },
      rules: TOP_ROWS,
      endpoints: TOP_ROWS,
      latency: { ...LATENCY, description: 'Without filters only.' },
      clients: { ...TOP_ROWS, description: 'Without filters only.' },
    }),
  }
  type Query = RangeParameters & FilterParameters
  app.get<{ Querystring: Query }>(`${ANALYTICS_PATH}/summary`, { schema, config }, async ({ query }) => {
    const range = rangeOf(query, nowMsOf(deps))
    const filter = filterOf(query)
    return await ask(deps, async (from) => {
      const [{ allowed, refused, sources }, rules, endpoints, others] = await Promise.all([
        from.summary({ ...range, filter }),
        mostRefused(from, 'rule', range, filter),
        mostRefused(from, 'endpoint', range, filter),
        isFiltered(filter) ? {} : unfilteredSummary(from, range),
      ])
      const checks = allowed + refused
      const refused_share = checks === 0 ? 0 : Number((refused / checks).toFixed(6))
      return { ...shownRange(range), checks, allowed, refused, refused_share, sources, rules, endpoints, ...others }
    })
  })
}

/** Without filters only: latency is recorded without dimensions, and clients only by result. */
async function unfilteredSummary(from: Analytics, range: Range): Promise<object> {
  const [latency, clients] = await Promise.all([
    from.latency({ ...range, stepMs: stepOf({}, range) }),
    mostRefused(from, 'client', range, {}),
  ])
  return { latency: latencyOf(latency.flatMap(({ buckets }) => buckets)), clients }
}

async function mostRefused(
  from: Analytics,
  of: TopQuery['of'],
  range: Range,
  filter: Filter,
): Promise<readonly object[]> {
  return shownTop(of, await from.top({ ...range, filter, of, by: 'refused', limit: SUMMARY_TOP }))
}

const NO_ANALYTICS =
  'This node stores no events that can be queried: keep the rules in a database, or configure the sink clickhouse.'

export function requireAnalytics(analytics: Analytics | undefined): Analytics {
  if (analytics === undefined) throw new ProblemError(problem('NO_ANALYTICS', NO_ANALYTICS))
  return analytics
}

/** Hides the error of a sink, which may contain its address or a query. */
export async function ask<T>(
  { analytics }: Pick<Deps, 'analytics'>,
  question: (analytics: Analytics) => Promise<T>,
): Promise<T> {
  const known = requireAnalytics(analytics)
  try {
    return await question(known)
  } catch (error) {
    if (error instanceof QueryInvalid) throw new ProblemError(problem('REQUEST_INVALID', error.message))
    if (known.name === 'embedded' || error instanceof ProblemError || error instanceof DatabaseUnavailable) throw error
    throw new ProblemError(problem('ANALYTICS_UNAVAILABLE', `The sink ${known.name} did not answer the query.`))
  }
}

function nowMsOf({ clock }: Deps): number {
  return clock.nowUs() / 1000
}

function shownRange({ fromMs, toMs }: Range): { from: string; to: string } {
  return { from: new Date(fromMs).toISOString(), to: new Date(toMs).toISOString() }
}

/** Removes near_limit from rows of rollups that do not record it: only those of clients and limits do. */
function shownTop(of: TopQuery['of'], rows: readonly TopRow[]): readonly object[] {
  return of === 'client' || of === 'limit' ? rows : rows.map(({ near_limit: _, ...row }) => row)
}

function shownPoint({ atMs, allowed, refused }: Point): { at: string; allowed: number; refused: number } {
  return { at: new Date(atMs).toISOString(), allowed, refused }
}

/** An event with its time as text. */
export function shownEvent({ event_id, timestamp, ...event }: DecisionEvent): Readonly<Record<string, unknown>> {
  return { event_id, timestamp: new Date(timestamp).toISOString(), ...event }
}
