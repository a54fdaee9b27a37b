// /api/v1/rate-limit/proposals: rule changes that are approved, rolled out in steps and watched by the guard.

import type { FastifyInstance, FastifyRequest, RouteShorthandOptions } from 'fastify'
import type { Caller, Role } from '../../access/roles.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
import { PROPOSALS_PATH } from '../../rollouts/edit-hooks.ts'
import type { Proposal } from '../../rollouts/proposal.ts'
import type { ProposalStore } from '../../rollouts/proposal-store.ts'
import { STATE_NAMES, type StateName } from '../../rollouts/state.ts'
import type { PairWindow } from '../../rollouts/windows.ts'
import {
  PROPOSAL,
  PROPOSAL_BODY,
  type ProposalBody,
  plainProposal,
  proposalRequest,
  shownProposal,
} from '../bodies/proposal-body.ts'
import { type RulesDeps, requireRuleStore } from '../bodies/rule-writes.ts'
import { answers, limitQuery, problemAnswers, REASON, type Schema } from '../bodies/schemas.ts'

const PROPOSAL_PATH = `${PROPOSALS_PATH}/:proposal_id`
const BODY_BYTES_MAX = 1024 * 1024
const LISTED = { default: 20, max: 1000 } as const
const ID = { type: 'string', pattern: '^[\\w-]{1,64}$', 'x-fix': 'give the id of a proposal' }
const PARAMS = { type: 'object', properties: { proposal_id: ID } }
const REASON_BODY = {
  type: ['object', 'null'],
  additionalProperties: false,
  properties: { reason: REASON },
  'x-fix': 'send no body, or a JSON object with reason',
}
const MOVED = {
  type: 'object',
  required: ['proposal_id', 'state', 'sentence'],
  properties: { proposal_id: { type: 'string' }, state: { type: 'string' }, sentence: { type: 'string' } },
}

export type ProposalsDeps = RulesDeps & { readonly proposals: ProposalStore | undefined }

const APPROVE_BODY = {
  ...REASON_BODY,
  properties: {
    start: {
      type: 'boolean',
      description: 'Start the rollout with the last approval. Default: true.',
      'x-fix': 'use true or false',
    },
  },
  'x-fix': 'send no body, or a JSON object with start',
  examples: [{ start: false }],
}

type Body = { readonly reason?: string; readonly start?: boolean }
type One = { Params: { proposal_id: string }; Body: Body | null | undefined }
type Act = (store: ProposalStore, id: string, caller: Caller, body: Body) => Promise<Proposal>
type Action = { readonly role: Role; readonly summary: string; readonly body?: Schema; readonly act: Act }

const ACTIONS: Readonly<Record<string, Action>> = {
  approve: {
    role: 'approver',
    summary: 'Approve a proposal; the last approval starts it. The token must be older and not related to the author',
    body: APPROVE_BODY,
    act: (store, id, caller, { start }) => store.approve(id, caller, start),
  },
  reject: {
    role: 'approver',
    summary: 'Reject a proposal that has not started',
    act: (store, id, caller, { reason }) => store.reject(id, caller, reason),
  },
  start: {
    role: 'editor',
    summary: 'Start an approved proposal, resume a paused one, or retry one that ended',
    act: (store, id, caller) => store.start(id, caller),
  },
  promote: {
    role: 'editor',
    summary: 'End the current step; after the last one, the change applies to all keys',
    act: (store, id, caller, { reason }) => store.promote(id, caller, reason),
  },
  pause: {
    role: 'editor',
    summary: 'Stay at the current step; the guard keeps running',
    act: (store, id, caller, { reason }) => store.pause(id, caller, reason),
  },
  abort: {
    role: 'editor',
    summary: 'Cancel a proposal, or roll its change back',
    act: (store, id, caller, { reason }) => store.abort(id, caller, reason),
  },
}

/** Call in a scope whose bodies are parsed as rules. */
export function proposalsRoutes(app: FastifyInstance, deps: ProposalsDeps): void {
  const store = () => {
    requireRuleStore(deps)
    if (deps.proposals !== undefined) return deps.proposals
    throw new ProblemError(problem('NO_DATABASE', 'This node has no database, and therefore no proposals.'))
  }
  createRoute(app, deps, store)
  readRoutes(app, store)
  figuresRoute(app, store)
  for (const [name, { role, summary, body: accepted = REASON_BODY, act }] of Object.entries(ACTIONS)) {
    const schema = {
      operationId: `${name}Proposal`,
      summary,
      tags: ['rules'],
      params: PARAMS,
      body: accepted,
      response: answers(MOVED, 400, 401, 403, 404, 409, 503),
    }
    const options = { schema, config: { access: role }, onRequest: async () => void store() }
    app.post<One>(`${PROPOSAL_PATH}/${name}`, options, async ({ params, body, caller }) => {
      const { id, state, sentence } = await act(store(), params.proposal_id, caller, body ?? {})
      return { proposal_id: id, state: state.name, sentence }
    })
  }
}

function createRoute(app: FastifyInstance, deps: ProposalsDeps, store: () => ProposalStore): void {
  const schema = {
    operationId: 'createProposal',
    summary: 'Propose a change of rules',
    tags: ['rules'],
    body: PROPOSAL_BODY,
    headers: {
      type: 'object',
      properties: {
        'idempotency-key': {
          type: 'string',
          description:
            'Repeats with the same key return the first proposal, for a day. Default: the same content, for a minute.',
          pattern: '^[!-~]{1,200}$',
          'x-fix': 'give 1 to 200 characters of ASCII without spaces',
        },
      },
    },
    response: {
      200: { ...MOVED, description: 'A repeated request: the first proposal.' },
      201: MOVED,
      ...problemAnswers(400, 401, 404, 409, 412, 413, 415, 503),
    },
  }
  const options: RouteShorthandOptions = {
    schema,
    config: { access: 'editor' },
    bodyLimit: BODY_BYTES_MAX,
    onRequest: async () => void store(),
  }
  app.post<{ Body: ProposalBody }>(PROPOSALS_PATH, options, async (request, reply) => {
    const key = request.headers['idempotency-key']
    const asked = proposalRequest(deps, request.body, key === undefined ? undefined : String(key))
    const { proposal, isRepeat } = await store().create(asked, request.caller)
    const { id, state, sentence } = proposal
    reply.code(isRepeat ? 200 : 201).header('location', `${PROPOSALS_PATH}/${id}`)
    return { proposal_id: id, state: state.name, sentence }
  })
}

function readRoutes(app: FastifyInstance, store: () => ProposalStore): void {
  const config = { access: 'viewer' as const }
  const onRequest = async () => void store()
  const { properties } = limitQuery(LISTED) as { properties: object }
  const state = { type: 'string', enum: STATE_NAMES, 'x-fix': `use one of ${STATE_NAMES.join(', ')}` }
  const querystring = { type: 'object', additionalProperties: false, properties: { ...properties, state, after: ID } }
  const list = {
    operationId: 'listProposals',
    summary: 'Proposals, newest first',
    tags: ['rules'],
    querystring,
    response: answers(
      {
        type: 'object',
        required: ['proposals', 'next', 'approvals_required'],
        properties: {
          proposals: { type: 'array', items: PROPOSAL },
          next: { type: ['string', 'null'] },
          approvals_required: { type: 'integer', description: 'Approvals that a proposal needs.' },
        },
      },
      ...[400, 409, 503],
    ),
  }
  type List = { Querystring: { state?: StateName; limit?: string; after?: string } }
  app.get<List>(PROPOSALS_PATH, { schema: list, config, onRequest }, async ({ query }) => {
    const limit = Number(query.limit ?? LISTED.default)
    const found = await store().list({ state: query.state, after: query.after, limit: limit + 1 })
    const page = found.slice(0, limit)
    const next = found.length > limit ? (page.at(-1)?.id ?? null) : null
    return { proposals: page.map(plainProposal), next, approvals_required: await store().approvalsRequired() }
  })
  const one = {
    operationId: 'getProposal',
    summary: 'State, step, guard figures and reason of a proposal',
    tags: ['rules'],
    params: PARAMS,
    response: answers(PROPOSAL, 400, 404, 409, 503),
  }
  const show = ({ params }: FastifyRequest<One>) => store().show(params.proposal_id).then(shownProposal)
  app.get<One>(PROPOSAL_PATH, { schema: one, config, onRequest }, show)
}

const FIGURES = {
  type: 'object',
  required: ['window_ms', 'rules'],
  properties: {
    window_ms: { type: 'integer', description: 'Length of a window; 0 if the guard is off.' },
    rules: {
      type: 'array',
      items: {
        type: 'object',
        properties: {
          rule_id: { type: 'string' },
          windows: { type: 'array', items: { type: 'object', additionalProperties: true } },
        },
      },
    },
  },
}

/** Paired requests per window: decided by both versions of a rule. */
function figuresRoute(app: FastifyInstance, store: () => ProposalStore): void {
  const schema = {
    operationId: 'getProposalFigures',
    summary: 'Figures of the guard per window, while a proposal rolls out',
    tags: ['rules'],
    params: PARAMS,
    response: answers(FIGURES, 400, 404, 409, 503),
  }
  const options = { schema, config: { access: 'viewer' as const }, onRequest: async () => void store() }
  app.get<One>(`${PROPOSAL_PATH}/figures`, options, async ({ params }) => {
    const { windowMs, rules } = await store().figures(params.proposal_id)
    return {
      window_ms: windowMs,
      rules: rules.map(({ ruleId, windows }) => ({ rule_id: ruleId, windows: windows.map(plainWindow) })),
    }
  })
}

function plainWindow(window: PairWindow) {
  const { startMs, rawPairs, rawNewlyDenied, offset, newlyAllowed, bothDenied, pairs, newlyDenied } = window
  return {
    at: new Date(startMs).toISOString(),
    pairs: rawPairs,
    newly_denied: rawNewlyDenied,
    offset,
    newly_allowed: newlyAllowed,
    both_denied: bothDenied,
    /** With the cap per key, as the guard judges it. */
    newly_denied_percent: pairs === 0 ? null : (100 * newlyDenied) / pairs,
  }
}
