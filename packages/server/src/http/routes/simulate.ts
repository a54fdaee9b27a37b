// POST /api/v1/rate-limit/simulate: replays recorded requests with other rules. GET …/simulate/requests: the recorded
// requests themselves, for a replay in the browser. Both work in a thread, and change nothing.

import type { FastifyInstance, FastifyReply } from 'fastify'
import type { Clock, Limiter, Rule } from 'sluice'
import type { RecordedRequest } from 'sluice/replay'
import { type CheckBody, subjectFromBody } from '../../checks/check-body.ts'
import type { Analytics } from '../../events/analytics.ts'
import { invalidField } from '../../problems/problem.ts'
import { Simulator } from '../../simulation/simulator.ts'
import { type FindEvents, storedEvents } from '../../simulation/stored-events.ts'
import { RANGE, type RangeParameters, rangeOf } from '../bodies/analytics-query.ts'
import { type RulesDeps, validRule, validRules } from '../bodies/rule-writes.ts'
import { answers, BATCH_BYTES_MAX, CHECK_BODY, type Schema } from '../bodies/schemas.ts'
import { onDisconnect } from '../event-streams.ts'
import { ask, requireAnalytics } from './analytics.ts'
import { JSON_TYPE } from './check.ts'

export const SIMULATE_PATH = '/api/v1/rate-limit/simulate'
const EVENTS = { default: 100_000, max: 500_000 } as const
const LISTED = { default: 20_000, max: 100_000 } as const
const REQUESTS_MAX = 10_000
const TOP_MAX = 1000
const STEP_SECONDS_MAX = 86_400
const TIME_US_MAX = Date.UTC(9999, 11, 31) * 1000

export type SimulateDeps = {
  readonly limiter: Limiter
  readonly analytics: Analytics | undefined
  readonly rules: RulesDeps
  readonly layer?: 'edge' | 'service' | undefined
  readonly ipv6Prefix?: number | undefined
  readonly clock: Clock
}

type InlineRequest = Omit<CheckBody, 'dry_run' | 'detail'> & { readonly at: string; readonly allowed?: boolean }

type SimulateBody = RangeParameters & {
  readonly rule?: unknown
  readonly rules?: unknown
  readonly against?: 'active' | 'recorded' | readonly unknown[]
  readonly requests?: readonly InlineRequest[]
  readonly limit?: number
  readonly top?: number
  readonly step_seconds?: number
}

const { dry_run: _dryRun, detail: _detail, ...FACTS } = CHECK_BODY.properties
const REQUEST: Schema = {
  ...CHECK_BODY,
  description: 'A request as in a check, with its time.',
  required: ['at'],
  properties: {
    at: {
      type: 'string',
      description: 'Time, with up to six decimals (RFC 3339).',
      maxLength: 40,
      pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d{1,6})?(Z|[+-]\\d\\d:\\d\\d)$',
      'x-fix': 'give a time such as 2030-01-31T12:00:00.123456Z',
    },
    allowed: { type: 'boolean', description: 'The decision at that time, if known.', 'x-fix': 'use true or false' },
    ...FACTS,
  },
}

function count(description: string, max: number, fallback: number): Schema {
  return {
    type: 'integer',
    description: `${description} Default: ${fallback}.`,
    minimum: 1,
    maximum: max,
    'x-fix': `give a whole number from 1 to ${max}`,
  }
}

const BODY: Schema = {
  type: 'object',
  additionalProperties: false,
  properties: {
    rule: {
      type: 'object',
      description: 'One rule: replaces the active rule with its id, or is added to the active rules.',
      'x-fix': 'give a rule',
    },
    rules: { type: 'array', description: 'The whole rule set, instead of `rule`.', 'x-fix': 'give a list of rules' },
    against: {
      type: ['string', 'array'],
      description:
        'Compares with the active rules (`active`, the default), with the decisions as they were recorded ' +
        '(`recorded`), or with a list of rules.',
      'x-fix': 'use active, recorded, or a list of rules',
    },
    ...RANGE,
    requests: {
      type: 'array',
      description: 'Requests to replay instead of stored events.',
      maxItems: REQUESTS_MAX,
      items: REQUEST,
      'x-fix': `give a list of at most ${REQUESTS_MAX} requests`,
    },
    limit: count('Events to replay: the newest of the range.', EVENTS.max, EVENTS.default),
    top: count('Clients to list.', TOP_MAX, 20),
    step_seconds: count('Shortest step of the timeline.', STEP_SECONDS_MAX, 1),
  },
  'x-fix': 'send a JSON object with `rule` or `rules`',
  examples: [{ rule: { rule_id: 'comments_per_min', scope: 'per_user', limit: 50, window_seconds: 60 }, from: '24h' }],
}

const number: Schema = { type: 'integer' }
const RECORDING: Schema = {
  type: 'object',
  properties: {
    source: { type: 'string', enum: ['events', 'requests'] },
    recorded: { ...number, description: 'Requests in the range, or in the body.' },
    truncated: { type: 'boolean', description: 'Older events of the range were left out: see `limit`.' },
    lost: { ...number, description: 'Events that are missing: the sink did not store them.' },
    unreplayable: { ...number, description: 'Requests of clients that were not recorded completely: left out.' },
    malformed: number,
  },
}
const ANSWER: Schema = {
  type: 'object',
  additionalProperties: true,
  description: 'All counts are estimates for all traffic if `sample_rate` is below 1.',
  properties: {
    replayed: number,
    sample_rate: { type: 'number' },
    against: { type: 'string', enum: ['rules', 'recorded', 'nothing'] },
    new: { type: 'object', additionalProperties: true },
    recording: RECORDING,
  },
}

export function simulateRoutes(app: FastifyInstance, deps: SimulateDeps): void {
  const simulator = new Simulator()
  simulateRoute(app, deps, simulator)
  requestsRoute(app, deps, simulator)
}

function simulateRoute(app: FastifyInstance, deps: SimulateDeps, simulator: Simulator): void {
  const { limiter, analytics, layer, ipv6Prefix, clock } = deps
  const schema = {
    operationId: 'simulate',
    summary: 'Replay recorded requests with other rules',
    description:
      'Runs the engine on stored events, or on requests in the body, and compares: who would have been refused, ' +
      'when, by which rule. Changes nothing, and runs in a thread of its own.',
    tags: ['insight'],
    body: BODY,
    response: answers(ANSWER, 400, 409, 413, 429, 503),
  }
  const options = { schema, config: { access: 'viewer' as const }, bodyLimit: BATCH_BYTES_MAX }
  app.post<{ Body: SimulateBody }>(SIMULATE_PATH, options, async ({ body, caller }, reply) => {
    const rules = await newRules(deps, body)
    const against = await comparedRules(deps, body)
    const range = rangeOf(body, clock.nowUs() / 1000)
    const feed =
      body.requests === undefined
        ? storedEvents(findIn(analytics), range, body.limit ?? EVENTS.default)
        : inlineRequests(body.requests)
    const { top, step_seconds: stepSeconds } = body
    const compared = against === 'active' ? limiter.rules : against
    const simulation = { rules, against: compared, top, stepSeconds, layer, ipv6Prefix }
    return sendJson(reply, (signal) => simulator.run(feed, simulation, { token: caller.id, signal }))
  })
}

function requestsRoute(app: FastifyInstance, deps: SimulateDeps, simulator: Simulator): void {
  const { analytics, clock, layer = null, ipv6Prefix = null } = deps
  const limit: Schema = {
    type: 'string',
    description: `The newest requests of the range, at most ${LISTED.max}. Default: ${LISTED.default}.`,
    pattern: '^([1-9][0-9]{0,4}|100000)$',
    'x-fix': `give a whole number from 1 to ${LISTED.max}`,
  }
  const schema = {
    operationId: 'recordedRequests',
    summary: 'Recorded requests, ready to be replayed',
    description: 'As `sluice/replay` reads them, sorted. For replays in a browser.',
    tags: ['insight'],
    querystring: { type: 'object', additionalProperties: false, properties: { ...RANGE, limit } },
    response: answers(
      { type: 'object', additionalProperties: true, properties: { recording: RECORDING } },
      400,
      409,
      429,
      503,
    ),
  }
  type Query = RangeParameters & { readonly limit?: string }
  const options = { schema, config: { access: 'viewer' as const } }
  app.get<{ Querystring: Query }>(`${SIMULATE_PATH}/requests`, options, async ({ query, caller }, reply) => {
    const range = rangeOf(query, clock.nowUs() / 1000)
    const feed = storedEvents(findIn(analytics), range, Number(query.limit ?? LISTED.default))
    const options = { layer, ipv6_prefix: ipv6Prefix }
    return sendJson(reply, (signal) => simulator.list(feed, options, { token: caller.id, signal }))
  })
}

function findIn(analytics: Analytics | undefined): FindEvents {
  requireAnalytics(analytics)
  return (query) => ask({ analytics }, (from) => from.events(query))
}

/** Cancels the work if the client disconnects. The text is JSON already: this thread does not format it again. */
async function sendJson(reply: FastifyReply, work: (signal: AbortSignal) => Promise<string>): Promise<FastifyReply> {
  const gone = new AbortController()
  onDisconnect(reply.raw, () => gone.abort())
  const text = await work(gone.signal)
  return reply.header('content-type', JSON_TYPE).serializer(String).send(text)
}

async function newRules({ limiter, rules: deps }: SimulateDeps, body: SimulateBody): Promise<readonly Rule[]> {
  const { rule, rules } = body
  if ((rule === undefined) === (rules === undefined)) {
    throw invalidField('rules', rules, 'give either `rule` or `rules`')
  }
  if (rules !== undefined) return validRules(deps, rules)
  const only = await validRule(deps, rule)
  const others = limiter.rules.filter(({ rule_id: id }) => id !== only.rule_id)
  return [...others, only]
}

async function comparedRules(
  { rules: deps }: SimulateDeps,
  { against = 'active' }: SimulateBody,
): Promise<readonly Rule[] | 'active' | 'recorded'> {
  if (typeof against !== 'string') return validRules(deps, against)
  if (against === 'active' || against === 'recorded') return against
  throw invalidField('against', against, 'use active, recorded, or a list of rules')
}

function inlineRequests(requests: readonly InlineRequest[]) {
  const read = requests.map(recordedRequest)
  return async (send: (page: { requests: readonly RecordedRequest[] }) => void) => {
    send({ requests: read })
    return { source: 'requests' as const, truncated: false }
  }
}

function recordedRequest({ at, allowed, ...body }: InlineRequest, index: number): RecordedRequest {
  const [, fraction = ''] = /\.(\d+)/.exec(at) ?? []
  const atUs = Date.parse(at.replace(/\.\d+/, '')) * 1000 + Number(fraction.padEnd(6, '0'))
  if (!(atUs > 0 && atUs < TIME_US_MAX)) throw invalidField(`requests/${index}/at`, at, 'give a time after 1970')
  return { kind: 'check', atUs, subject: subjectFromBody(body), requestId: body.request_id, allowed }
}
