// GET /api/v1/fleet: all nodes with their health, open alerts, and figures of the last minutes; /stream sends the same
// every two seconds as server-sent events.

import type { FastifyInstance } from 'fastify'
import type { Clock } from 'sluice'
import { percentile } from '../../events/latency.ts'
import { type Figures, RESOLUTIONS, type Resolution, type Step, shownPeriod } from '../../fleet/figures.ts'
import type { Fleet } from '../../fleet/fleet.ts'
import { DECISION_SECONDS } from '../../metrics/service-metrics.ts'
import { answers, type Schema } from '../bodies/schemas.ts'
import type { EventStreams } from '../event-streams.ts'

export const FLEET_PATH = '/api/v1/fleet'
const SEND_MS = 2000
const BOUNDS_US = DECISION_SECONDS.map((seconds) => seconds * 1e6)

const count: Schema = { type: 'integer' }
const text: Schema = { type: 'string' }
const textOrNull: Schema = { type: ['string', 'null'] }
const list = (items: Schema, description?: string): Schema => {
  return { type: 'array', items, ...(description && { description }) }
}
const NODE: Schema = {
  type: 'object',
  properties: {
    node: { ...text, description: 'Host name and, with --workers, the number of the worker.' },
    address: text,
    region: textOrNull,
    version: { ...text, description: 'Version of Sluice.' },
    started_at: text,
    status: {
      type: 'string',
      enum: ['ready', 'degraded', 'draining', 'silent'],
      description: 'silent: it has not reported for 10 seconds.',
    },
    reported_ms_ago: count,
    reasons: list(text, 'Why the node is degraded.'),
    rules_version: count,
    rules: count,
    store: text,
    store_failure: { ...textOrNull, description: 'Error code while the store does not answer.' },
    database: textOrNull,
    region_isolated: { type: ['boolean', 'null'], description: 'Whether the global Redis does not answer.' },
    sinks: list({
      type: 'object',
      properties: { name: text, is_up: { type: 'boolean' }, pending: count, dropped: count },
    }),
    checks_per_second: { type: 'number', description: 'Mean of the last minute, as in the figures.' },
    refused_per_second: { type: 'number' },
    lacks: list(text, 'What this node of an older version does not understand: writes that need it are refused.'),
  },
}
const FIGURES: Schema = {
  type: 'object',
  properties: {
    step_seconds: count,
    from: { ...text, description: 'Start of the first step.' },
    allowed: list(count, 'One number per step, as in all lists below.'),
    refused: list(count),
    sources: { type: 'object', additionalProperties: list(count) },
    p50_us: list({ type: ['number', 'null'] }, 'Time from a valid request to its decision; null without decisions.'),
    p99_us: list({ type: ['number', 'null'] }),
  },
}
const ANSWER: Schema = {
  type: 'object',
  required: ['at', 'nodes', 'alerts', 'figures', 'incomplete'],
  properties: {
    at: text,
    nodes: list(NODE),
    alerts: list({
      type: 'object',
      properties: {
        node: text,
        address: text,
        type: { ...text, description: 'As in webhooks, and node.silent.' },
        for_seconds: count,
        data: { type: 'object', additionalProperties: true },
      },
    }),
    figures: list(FIGURES, 'One minute in steps of a second, and five minutes in steps of five.'),
    incomplete: { ...textOrNull, description: 'Why nodes may be missing: the database or Redis does not answer.' },
  },
}

export type FleetDeps = { readonly fleet: Fleet; readonly streams: EventStreams; readonly clock: Clock }

export function fleetRoutes(app: FastifyInstance, deps: FleetDeps): void {
  const config = { access: 'viewer' as const }
  const tags = ['health']
  const description = 'All nodes that share the database, or the Redis if there is no PostgreSQL.'
  const schema = { operationId: 'fleet', summary: 'All nodes, alerts and live figures', description, tags }
  app.get(FLEET_PATH, { schema: { ...schema, response: answers(ANSWER) }, config }, () => shownFleet(deps))

  const stream = { description: 'Events.', content: { 'text/event-stream': { schema: { type: 'string' } } } }
  const streamed = {
    operationId: 'streamFleet',
    summary: 'All nodes, alerts and live figures, every two seconds',
    description: 'Server-sent events: `fleet` has the answer of GET /api/v1/fleet.',
    tags,
    response: { ...answers({}, 429, 503), 200: stream },
  }
  app.get(`${FLEET_PATH}/stream`, { schema: streamed, config }, (request, reply) => {
    const events = deps.streams.open(request, reply)
    let timer: NodeJS.Timeout | undefined
    let isClosed = false
    const send = async () => {
      events.send('fleet', await shownFleet(deps))
      if (!isClosed) timer = setTimeout(send, SEND_MS).unref()
    }
    events.onClose(() => {
      isClosed = true
      clearTimeout(timer)
    })
    void send()
    return reply
  })
}

async function shownFleet({ fleet, clock }: FleetDeps): Promise<object> {
  const { nodes, figures, alerts, incomplete } = await fleet.state()
  const nowMs = clock.nowUs() / 1000
  return {
    at: new Date(nowMs).toISOString(),
    nodes,
    alerts,
    figures: RESOLUTIONS.map((resolution, index) => shownFigures(figures[index], resolution, nowMs)),
    incomplete: incomplete ?? null,
  }
}

/** All steps of the time range, including those without decisions. */
function shownFigures(figures: Figures | undefined, resolution: Resolution, nowMs: number): object {
  const { stepSeconds, shown } = resolution
  const { from } = shownPeriod(resolution, nowMs)
  const starts = Array.from({ length: shown }, (_, index) => from + index * stepSeconds)
  const byStart = new Map(figures?.steps.map((step) => [step.at, step]))
  const all = starts.map((at) => byStart.get(at))
  const source = (name: keyof Step['sources']) => all.map((step) => step?.sources[name] ?? 0)
  return {
    step_seconds: stepSeconds,
    from: new Date(from * 1000).toISOString(),
    allowed: all.map((step) => step?.allowed ?? 0),
    refused: all.map((step) => step?.refused ?? 0),
    sources: { store: source('store'), lease: source('lease'), local: source('local'), policy: source('policy') },
    p50_us: all.map((step) => latencyOf(step, 0.5)),
    p99_us: all.map((step) => latencyOf(step, 0.99)),
  }
}

function latencyOf(step: Step | undefined, share: number): number | null {
  if (step === undefined) return null
  const total = step.latency.reduce((sum, one) => sum + one, 0)
  return total === 0 ? null : percentile(BOUNDS_US, step.latency, share * total)
}
