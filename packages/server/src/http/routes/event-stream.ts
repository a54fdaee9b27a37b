// GET /api/v1/events/stream: stored events of all nodes as server-sent events, about two seconds after they happen.

import type { FastifyInstance } from 'fastify'
import type { Clock } from 'sluice'
import type { Analytics } from '../../events/analytics.ts'
import type { ClientKind, DecisionEvent } from '../../events/event.ts'
import { EventTail, type TailFilter } from '../../events/event-tail.ts'
import type { KeyHash } from '../../log.ts'
import { FILTER, type FilterParameters } from '../bodies/analytics-query.ts'
import { answers, fact, type Schema } from '../bodies/schemas.ts'
import type { EventStream, EventStreams } from '../event-streams.ts'
import { ask, shownEvent } from './analytics.ts'

export const STREAM_PATH = '/api/v1/events/stream'

const KINDS: readonly ClientKind[] = ['user', 'api_key', 'ip']
const QUERY: Schema = {
  type: 'object',
  additionalProperties: false,
  properties: {
    ...FILTER,
    client: fact('Events of this client.', 'user_12345', 1024),
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
type Deps = {
  readonly analytics: Analytics | undefined
  readonly keyHash: KeyHash
  readonly lagMs: () => number
  readonly streams: EventStreams
  readonly clock: Clock
}

export function eventStreamRoute(app: FastifyInstance, { analytics, keyHash, lagMs, streams, clock }: Deps): void {
  const tail = analytics && new EventTail({ analytics, hash: keyHash, nowMs: () => clock.nowUs() / 1000, lagMs })
  app.addHook('preClose', async () => tail?.stop())
  const stream = { description: 'Events.', content: { 'text/event-stream': { schema: { type: 'string' } } } }
  const schema = {
    operationId: 'streamEvents',
    summary: 'Live tail of decision events',
    description:
      'Server-sent events of all nodes, about two seconds after they happen: `decision` has one event as JSON, ' +
      '`stored` follows the newest stored ones with their number, ' +
      '`skipped` says that events were left out because there were too many, were stored more than 30 seconds late, ' +
      'or were not read in time.',
    tags: ['insight'],
    querystring: QUERY,
    response: { ...answers({}, 400, 409, 429, 503), 200: stream },
  }
  const config = { access: 'viewer' as const }
  app.get<{ Querystring: Query }>(STREAM_PATH, { schema, config }, async (request, reply) => {
    const nowMs = clock.nowUs() / 1000
    // Fails at once if the sink does not answer.
    await ask({ analytics }, (from) => from.events({ filter: {}, fromMs: nowMs - 1, toMs: nowMs, limit: 1 }))
    const { last = '0', client, kind = 'user', ...filter } = request.query
    const wanted: TailFilter = client === undefined ? filter : { ...filter, client, kind }
    // A node with analytics always has a tail.
    if (tail !== undefined) sendTail(streams.open(request, reply), tail, wanted, Number(last))
    return reply
  })
}

/** Sends events until the stream closes. `skipped` tells a client that reads again how many it missed. */
export function sendTail(
  stream: EventStream,
  tail: Pick<EventTail, 'subscribe'>,
  filter: TailFilter,
  last: number,
): void {
  let skipped = 0
  const send = (event: DecisionEvent | undefined) => {
    if (skipped > 0 || event === undefined) {
      if (!stream.send('skipped', { count: skipped || null })) {
        skipped += 1
        return
      }
    }
    skipped = 0
    if (event !== undefined && !stream.send('decision', shownEvent(event), event.event_id)) skipped += 1
  }
  const unsubscribe = tail.subscribe(filter, last, send, (count) => stream.send('stored', { count }))
  stream.onClose(unsubscribe)
}
