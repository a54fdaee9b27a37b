// GET /api/v1/events/stream: stored events of all nodes as server-sent events, about two seconds after they happen.
// One query serves all subscribers. A subscriber that does not read is skipped ahead, then disconnected.

import type { ServerResponse } from 'node:http'
import type { FastifyInstance, FastifyReply } from 'fastify'
import type { Clock } from 'sluice'
import type { Analytics } from '../../events/analytics.ts'
import type { ClientKind, DecisionEvent } from '../../events/event.ts'
import { EventTail, type TailFilter } from '../../events/event-tail.ts'
import type { KeyHash } from '../../log.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
import { FILTER, type FilterParameters } from '../bodies/analytics-query.ts'
import { answers, type Schema, text } from '../bodies/schemas.ts'
import { ask, shownEvent } from './analytics.ts'

export const STREAM_PATH = '/api/v1/events/stream'
const SUBSCRIBERS_MAX = 20
const HEARTBEAT_MS = 15_000
/** A subscriber with more unread bytes misses events; after STALLED_MS it is disconnected. */
const UNREAD_BYTES_MAX = 1_000_000
const STALLED_MS = 30_000

const KINDS: readonly ClientKind[] = ['user', 'api_key', 'ip']
const QUERY: Schema = {
  type: 'object',
  additionalProperties: false,
  properties: {
    ...FILTER,
    client: text('Events of this client.', 'user_12345', 1024),
    kind: {
      type: 'string',
      enum: KINDS,
      description: 'What `client` is. Default: user.',
      'x-fix': `use one of ${KINDS.join(', ')}`,
    },
    last: {
      type: 'string',
      description: 'Newest stored events to send first, from 0 to 1000. Default: 0.',
      pattern: '^([0-9]|[1-9][0-9]{1,2}|1000)$',
      'x-fix': 'give a whole number from 0 to 1000',
    },
  },
}

type Query = Omit<FilterParameters, 'limit'> & {
  readonly client?: string
  readonly kind?: ClientKind
  readonly last?: string
}
type Deps = { readonly analytics: Analytics | undefined; readonly keyHash: KeyHash; readonly clock: Clock }

export function eventStreamRoute(app: FastifyInstance, { analytics, keyHash, clock }: Deps): void {
  const tail = analytics && new EventTail(analytics, keyHash, () => clock.nowUs() / 1000)
  const open = new Set<ServerResponse>()
  app.addHook('preClose', async () => {
    tail?.stop()
    for (const response of open) response.end()
  })
  const stream = { description: 'Events.', content: { 'text/event-stream': { schema: { type: 'string' } } } }
  const schema = {
    operationId: 'streamEvents',
    summary: 'Live tail of decision events',
    description:
      'Server-sent events of all nodes, about two seconds after they happen: `decision` has one event as JSON, ' +
      '`skipped` says that events were left out because there were too many, or were not read in time.',
    tags: ['insight'],
    querystring: QUERY,
    response: { ...answers({}, 400, 409, 503), 200: stream },
  }
  const config = { access: 'viewer' as const }
  app.get<{ Querystring: Query }>(STREAM_PATH, { schema, config }, async ({ query }, reply) => {
    const nowMs = clock.nowUs() / 1000
    // Fails at once if the sink does not answer.
    await ask({ analytics }, (from) => from.events({ filter: {}, fromMs: nowMs - 1, toMs: nowMs, limit: 1 }))
    if (open.size >= SUBSCRIBERS_MAX || tail === undefined) throw tooMany()
    const { last = '0', client, kind = 'user', ...filter } = query
    const wanted: TailFilter = client === undefined ? filter : { ...filter, client, kind }
    subscribe(reply, tail, wanted, Number(last), open)
    return reply
  })
}

function tooMany(): ProblemError {
  return new ProblemError(problem('TOO_MANY_STREAMS', `This node serves at most ${SUBSCRIBERS_MAX} streams at a time.`))
}

function subscribe(
  reply: FastifyReply,
  tail: EventTail,
  filter: TailFilter,
  last: number,
  open: Set<ServerResponse>,
): void {
  reply.hijack()
  const response = reply.raw
  response.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
  })
  response.write(': connected\n\n')
  open.add(response)
  let stalledSince: number | undefined
  let skipped = 0
  const send = (event: DecisionEvent | undefined) => {
    if (response.writableLength > UNREAD_BYTES_MAX) {
      stalledSince ??= performance.now()
      skipped += 1
      if (performance.now() - stalledSince > STALLED_MS) response.destroy()
      return
    }
    stalledSince = undefined
    if (skipped > 0 || event === undefined) response.write(`event: skipped\ndata: {"count":${skipped || null}}\n\n`)
    skipped = 0
    // JSON has no raw line breaks, so one line is one event.
    if (event !== undefined)
      response.write(`event: decision\nid: ${event.event_id}\ndata: ${JSON.stringify(shownEvent(event))}\n\n`)
  }
  const unsubscribe = tail.subscribe(filter, last, send)
  let heartbeat: NodeJS.Timeout
  const beatLater = () => {
    heartbeat = setTimeout(() => {
      if (response.writableLength === 0) response.write(': heartbeat\n\n')
      beatLater()
    }, HEARTBEAT_MS).unref()
  }
  beatLater()
  response.once('close', () => {
    clearTimeout(heartbeat)
    unsubscribe()
    open.delete(response)
  })
}
