// /api/v1/rate-limit/signals: abuse signals. Rules that list the kind of a signal in `on_signal` tighten for its key.

import type { FastifyInstance } from 'fastify'
import { type Limiter, SEVERITIES, type Severity } from 'sluice'
import { keyText, parseKey, requirePlain } from '../../exceptions/key.ts'
import { type ListedSignal, SIGNALS_MAX, type SignalTable, signalUnknown } from '../../exceptions/signal-table.ts'
import { isExceptionId, keyField, noDatabase, REASON_QUERY } from '../bodies/exception-fields.ts'
import { answers, problemAnswers, text } from '../bodies/schemas.ts'

export const SIGNALS_PATH = '/api/v1/rate-limit/signals'
const TTL_SECONDS_MAX = 30 * 86_400
const LISTED = { default: 100, max: 1000 } as const
const KIND_FIX = 'give 1 to 64 characters of a-z, 0-9, "_", "." and "-", such as credential_stuffing'

const KIND = {
  type: 'string',
  description: 'Kind of abuse, as rules name it in on_signal.',
  examples: ['credential_stuffing'],
  pattern: '^[a-z0-9_.-]{1,64}$',
  'x-fix': KIND_FIX,
}

const BODY = {
  type: 'object',
  additionalProperties: false,
  required: ['key', 'kind', 'severity', 'ttl_seconds'],
  properties: {
    key: keyField('Suspected key: fact and value, such as user:alice or ip:203.0.113.42.', 1),
    kind: KIND,
    severity: {
      type: 'string',
      enum: SEVERITIES,
      description: 'In ascending order. The min_severity of a rule is the lowest that it reacts to.',
      examples: ['high'],
      'x-fix': `use one of ${SEVERITIES.join(', ')}`,
    },
    ttl_seconds: {
      type: 'integer',
      description: 'Lifetime. A repeated signal extends it.',
      examples: [600],
      minimum: 1,
      maximum: TTL_SECONDS_MAX,
      'x-fix': `give a whole number from 1 to ${TTL_SECONDS_MAX}`,
    },
    source: text('System that sends the signal.', 'waf', 100),
  },
  'x-fix': 'send a JSON object with key, kind, severity and ttl_seconds',
  examples: [
    { key: 'ip:203.0.113.42', kind: 'credential_stuffing', severity: 'high', ttl_seconds: 600, source: 'waf' },
  ],
}

const SIGNAL = {
  type: 'object',
  properties: {
    signal_id: { type: 'string' },
    key: { type: 'string' },
    kind: { type: 'string' },
    severity: { type: 'string', enum: SEVERITIES },
    source: { type: ['string', 'null'] },
    by: { type: 'string', description: 'The id of a token, or admin-token.' },
    by_name: { type: ['string', 'null'], description: 'The name of that token.' },
    created_at: { type: 'string' },
    expires_at: { type: 'string' },
  },
}
const LIST = {
  type: 'object',
  required: ['signals', 'next'],
  properties: {
    signals: { type: 'array', items: SIGNAL },
    next: { type: ['string', 'null'], description: '`after` for the next page; null on the last.' },
  },
}
const ACCEPTED = {
  type: 'object',
  description: 'Accepted.',
  required: ['signal_id'],
  properties: {
    signal_id: { type: 'string' },
    expires_at: { type: 'string' },
    warnings: { type: 'array', items: { type: 'string' }, description: 'Why it may have no effect.' },
  },
}
const QUERY = {
  type: 'object',
  additionalProperties: false,
  properties: {
    key: keyField('Only signals of this key.', 1),
    kind: KIND,
    limit: {
      type: 'string',
      description: `Maximum number, from 1 to ${LISTED.max}. Default: ${LISTED.default}.`,
      pattern: '^([1-9][0-9]{0,2}|1000)$',
      'x-fix': `give a whole number from 1 to ${LISTED.max}`,
    },
    after: {
      type: 'string',
      description: '`next` of the previous page.',
      pattern: '^sig_[0-9a-f]{8,32}$',
      'x-fix': 'give the `next` of the previous page',
    },
  },
}

type SignalBody = {
  readonly key: string
  readonly kind: string
  readonly severity: Severity
  readonly ttl_seconds: number
  readonly source?: string
}

export type PlainSignal = {
  readonly signal_id: string
  readonly key: string
  readonly kind: string
  readonly severity: Severity
  readonly source: string | null
  readonly by: string
  readonly by_name: string | null
  readonly created_at: string
  readonly expires_at: string
}

export type SignalList = { readonly signals: readonly PlainSignal[]; readonly next: string | null }
export type SignalAccepted = {
  readonly signal_id: string
  readonly expires_at: string
  readonly warnings?: readonly string[]
}

export type SignalsDeps = {
  readonly limiter: Limiter
  /** Undefined on a node without a database. */
  readonly signals: SignalTable | undefined
  readonly ipv6Prefix: number
  readonly nowMs: () => number
}

export function signalsRoutes(app: FastifyInstance, deps: SignalsDeps): void {
  sendRoute(app, deps)
  listRoute(app, deps)
  removeRoute(app, deps)
}

function tableOf({ signals }: SignalsDeps): SignalTable {
  if (signals === undefined) throw noDatabase('signals')
  return signals
}

function sendRoute(app: FastifyInstance, deps: SignalsDeps): void {
  const { limiter, ipv6Prefix, nowMs } = deps
  const schema = {
    operationId: 'sendSignal',
    summary: 'Report suspected abuse by a key',
    description:
      `Takes effect on all nodes within a second; at most ${SIGNALS_MAX}. Of several signals, the strongest ` +
      'reaction of a rule applies.',
    tags: ['exceptions'],
    body: BODY,
    response: { 202: ACCEPTED, ...problemAnswers(400, 409, 503) },
  }
  const options = { schema, config: { access: 'editor' as const } }
  app.post<{ Body: SignalBody }>(SIGNALS_PATH, options, async ({ body, caller }, reply) => {
    const table = tableOf(deps)
    const { kind, severity, source, ttl_seconds: ttl } = body
    const key = requirePlain(parseKey(body.key, ipv6Prefix), body.key)
    const expiresAt = new Date(nowMs() + ttl * 1000)
    const signalId = await table.send({ key, kind, severity, source, expiresAt }, caller.id)
    const reacts = limiter.rules.some(({ enabled, scope, on_signal: reactions = {} }) => {
      return enabled && scope[0] === key.fact && Object.hasOwn(reactions, kind)
    })
    const warning = `kind: no enabled rule with a key that starts with "${key.fact}" lists "${kind}" in on_signal`
    reply.code(202)
    return { signal_id: signalId, expires_at: expiresAt.toISOString(), ...(reacts ? {} : { warnings: [warning] }) }
  })
}

function listRoute(app: FastifyInstance, deps: SignalsDeps): void {
  const about = { operationId: 'listSignals', summary: 'Signals in force, newest first', tags: ['exceptions'] }
  const schema = { ...about, querystring: QUERY, response: answers(LIST, 400, 409, 503) }
  const options = { schema, config: { access: 'viewer' as const } }
  type Query = { key?: string; kind?: string; limit?: string; after?: string }
  app.get<{ Querystring: Query }>(SIGNALS_PATH, options, async ({ query }): Promise<SignalList> => {
    const table = tableOf(deps)
    const limit = Number(query.limit ?? LISTED.default)
    const key = query.key === undefined ? undefined : parseKey(query.key, deps.ipv6Prefix)
    const found = await table.list({ key, kind: query.kind, before: query.after, limit: limit + 1 })
    const page = found.slice(0, limit)
    return { signals: page.map(plainSignal), next: found.length > limit ? (page.at(-1)?.signalId ?? null) : null }
  })
}

function removeRoute(app: FastifyInstance, deps: SignalsDeps): void {
  const schema = {
    operationId: 'removeSignal',
    summary: 'Remove a signal',
    tags: ['exceptions'],
    params: { type: 'object', properties: { signal_id: { type: 'string' } } },
    querystring: REASON_QUERY,
    response: { 204: { type: 'null', description: 'Removed.' }, ...problemAnswers(400, 404, 409, 503) },
  }
  const options = { schema, config: { access: 'editor' as const } }
  type Remove = { Params: { signal_id: string }; Querystring: { reason?: string } }
  app.delete<Remove>(`${SIGNALS_PATH}/:signal_id`, options, async ({ params, query, caller }, reply) => {
    const table = tableOf(deps)
    const { signal_id: id } = params
    if (!isExceptionId(id) || !(await table.remove(id, caller.id, query.reason))) throw signalUnknown(id)
    return reply.code(204).send()
  })
}

function plainSignal(signal: ListedSignal): PlainSignal {
  return {
    signal_id: signal.signalId,
    key: keyText(signal.key),
    kind: signal.kind,
    severity: signal.severity,
    source: signal.source,
    by: signal.actor,
    by_name: signal.actorName,
    created_at: signal.createdAt.toISOString(),
    expires_at: signal.expiresAt.toISOString(),
  }
}
