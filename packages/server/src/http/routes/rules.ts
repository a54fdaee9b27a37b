// /api/v1/rate-limit/rules: single rules. Reads return the active rules of this node; writes go to the database, for
// all nodes.

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type Clock, type Rule, wallClock } from 'sluice'
import { invalidRequest, ProblemError, problem } from '../../problems/problem.ts'
import type { PlainRule } from '../../rules/changes.ts'
import { compactRule } from '../../rules/compact-rule.ts'
import { mergePatch } from '../../rules/merge-patch.ts'
import { LIST_QUERY, type ListQuery, listRules, ruleText } from '../bodies/rule-list.ts'
import {
  etag,
  guardHeader,
  type RulesDeps,
  requireMatch,
  validRule,
  type WriteQuery,
  type Written,
  write,
  writeOptions,
} from '../bodies/rule-writes.ts'
import { answers, problemAnswers } from '../bodies/schemas.ts'
import { JSON_TYPE } from './check.ts'

export const RULES_PATH = '/api/v1/rate-limit/rules'
const RULE_PATH = `${RULES_PATH}/:rule_id`
/** Format of every rule id. */
const RULE_ID = '^[a-z0-9_.-]{1,64}$'

const RULE = { type: 'object', additionalProperties: true, description: 'The complete rule, with default values.' }
const LIST = {
  type: 'object',
  required: ['version', 'rules'],
  properties: {
    version: { type: 'integer', description: 'Version of the rule set; increases with each change.' },
    rules: { type: 'array', items: RULE },
    next: { type: 'string', description: '`after` for the next page, if there is one.' },
  },
}
const EXAMPLE = {
  ...{ rule_id: 'messages_per_min', endpoint_pattern: '/api/v1/messages', method: 'POST', limit: 100 },
  ...{ window_seconds: 60, algorithm: 'sliding_window', scope: 'per_user', priority: 1 },
}
const BODY = { type: 'object', examples: [EXAMPLE], 'x-fix': 'send a rule as a JSON object' }
const PARAMS = {
  type: 'object',
  properties: {
    rule_id: { type: 'string', pattern: RULE_ID, 'x-fix': 'give 1 to 64 characters of a-z, 0-9, "_", "." and "-"' },
  },
}
const FORM_QUERY = {
  type: 'object',
  additionalProperties: false,
  properties: {
    form: {
      type: 'string',
      enum: ['complete', 'written'],
      description: 'complete (default): with default values. written: only the fields that were written, to edit them.',
      'x-fix': 'use complete or written',
    },
  },
}
const PROBLEMS = [400, 401, 409, 413, 415, 503] as const

export type RulesRouteDeps = RulesDeps & { readonly clock?: Clock | undefined }
type Write = { Querystring: WriteQuery; Body: Readonly<Record<string, unknown>> }
type WriteOne = Write & { Params: { rule_id: string } }

export function rulesRoutes(app: FastifyInstance, deps: RulesRouteDeps): void {
  readRoutes(app, deps)
  createRoute(app, deps)
  replaceRoute(app, deps)
  patchRoute(app, deps)
  deleteRoute(app, deps)
}

function readRoutes(app: FastifyInstance, { limiter, clock = wallClock }: RulesRouteDeps): void {
  const config = { access: 'viewer' } as const
  const list = {
    operationId: 'listRules',
    summary: 'Active rules',
    tags: ['rules'],
    querystring: LIST_QUERY,
    response: answers(LIST, 400),
  }
  app.get<{ Querystring: ListQuery }>(RULES_PATH, { schema: list, config }, async ({ query }, reply) => {
    reply.header('content-type', JSON_TYPE)
    return listRules(limiter, query, clock.nowUs())
  })
  const described = { operationId: 'getRule', summary: 'One rule', tags: ['rules'] }
  const one = { ...described, params: PARAMS, querystring: FORM_QUERY, response: answers(RULE, 400, 404) }
  type One = { Params: { rule_id: string }; Querystring: { form?: 'complete' | 'written' } }
  app.get<One>(RULE_PATH, { schema: one, config }, ({ params, query }, reply) => {
    const rule = limiter.rule(params.rule_id)
    if (rule === undefined) throw unknownRule(params.rule_id)
    return query.form === 'written'
      ? reply.header('etag', etag(rule.version)).send(compactRule(rule))
      : sendRule(reply, rule)
  })
}

function createRoute(app: FastifyInstance, deps: RulesDeps): void {
  const response = { 201: { ...RULE, description: 'Created: the complete rule.' }, ...problemAnswers(...PROBLEMS) }
  const schema = { operationId: 'createRule', summary: 'Create a rule', body: BODY, response }
  app.post<Write>(RULES_PATH, writeOptions(deps, schema), async (request, reply) => {
    const rule = await validRule(deps, request.body)
    const next = async ([present]: readonly PlainRule[]) => {
      if (present === undefined) return [rule]
      const detail = `Rule ${rule.rule_id} already exists: change it with PUT or PATCH.`
      throw new ProblemError(problem('RULE_EXISTS', detail), { etag: etag(Number(present.version)) })
    }
    const edited = await write(deps, request, { action: 'rule.create', ruleId: rule.rule_id, next })
    return sendEdited(reply.code(201), deps, rule, edited, request)
  })
}

function replaceRoute(app: FastifyInstance, deps: RulesDeps): void {
  const created = { ...RULE, description: 'Created.' }
  const response = { ...answers(RULE), 201: created, ...problemAnswers(...PROBLEMS, 412) }
  const described = { operationId: 'replaceRule', summary: 'Replace a rule, or create it' }
  const schema = { ...described, params: PARAMS, body: BODY, response }
  app.put<WriteOne>(RULE_PATH, writeOptions(deps, schema), async (request, reply) => {
    const { rule_id: ruleId } = request.params
    const rule = await validRule(deps, withId(request.body, ruleId))
    const next = async ([present]: readonly PlainRule[]) => {
      requireMatch(request, present && Number(present.version))
      return [rule]
    }
    const edited = await write(deps, request, { action: 'rule.replace', ruleId, next })
    if (edited.changes[0]?.change === 'created') reply.code(201)
    return sendEdited(reply, deps, rule, edited, request)
  })
}

function patchRoute(app: FastifyInstance, deps: RulesDeps): void {
  const body = { ...BODY, examples: [{ limit: 200, description: null }] }
  const schema = {
    operationId: 'patchRule',
    summary: 'Change some fields of a rule',
    description: 'A merge patch (RFC 7396): null removes a field.',
    params: PARAMS,
    body,
    response: answers(RULE, ...PROBLEMS, 404, 412),
  }
  app.patch<WriteOne>(RULE_PATH, writeOptions(deps, schema), async (request, reply) => {
    const { rule_id: ruleId } = request.params
    const patch = withId(request.body, ruleId)
    let patched: Rule | undefined
    const next = async ([present]: readonly PlainRule[]) => {
      if (present === undefined) throw unknownRule(ruleId)
      requireMatch(request, Number(present.version))
      patched = await validRule(deps, mergePatch(present, patch))
      return [patched]
    }
    const edited = await write(deps, request, { action: 'rule.update', ruleId, next })
    return sendEdited(reply, deps, patched as unknown as Rule, edited, request) // `next` has run
  })
}

function deleteRoute(app: FastifyInstance, deps: RulesDeps): void {
  const gone = { 204: { type: 'null', description: 'Deleted.' } }
  const dryRun = answers({ ...RULE, description: 'Dry run: the changes.' })
  const response = { ...dryRun, ...gone, ...problemAnswers(400, 401, 404, 409, 412, 503) }
  const schema = { operationId: 'deleteRule', summary: 'Delete a rule', params: PARAMS, response }
  app.delete<WriteOne>(RULE_PATH, writeOptions(deps, schema), async (request, reply) => {
    const { rule_id: ruleId } = request.params
    const next = async ([present]: readonly PlainRule[]) => {
      if (present === undefined) throw unknownRule(ruleId)
      requireMatch(request, Number(present.version))
      return []
    }
    const edited = await write(deps, request, { action: 'rule.delete', ruleId, next })
    return request.query.dry_run === 'true'
      ? sendDryRun(reply, edited)
      : reply.code(204).headers(guardHeader(edited)).send()
  })
}

function unknownRule(ruleId: string): ProblemError {
  return new ProblemError(problem('RULE_UNKNOWN', `There is no rule ${ruleId}.`))
}

/** Takes the id from the path; rejects a body with another id. */
function withId(body: Readonly<Record<string, unknown>>, ruleId: string): Readonly<Record<string, unknown>> {
  const { rule_id: given = ruleId } = body
  if (given === ruleId) return { ...body, rule_id: ruleId }
  const fix = `omit it, or give ${ruleId} as in the path: the id of a rule cannot change`
  throw new ProblemError(invalidRequest([{ field: 'rule_id', value: given, fix }]))
}

/** Sends the current rule; for a dry run, the changes. */
function sendEdited(
  reply: FastifyReply,
  { limiter }: RulesDeps,
  rule: Rule,
  edited: Written,
  { query, url }: FastifyRequest<{ Querystring: WriteQuery }>,
): FastifyReply {
  if (query.dry_run === 'true') return sendDryRun(reply, edited)
  reply.headers(guardHeader(edited))
  const path = url.split('?', 1)[0] ?? ''
  if (reply.statusCode === 201) reply.header('location', path === RULES_PATH ? `${path}/${rule.rule_id}` : path)
  // If this node could not reload the rules, answer with what was written.
  const active = limiter.rule(rule.rule_id)
  const isLoaded = edited.changes.length === 0 || (active?.version ?? 0) >= edited.version
  return sendRule(reply, active !== undefined && isLoaded ? active : { ...rule, version: edited.version })
}

function sendDryRun(reply: FastifyReply, edited: Written): FastifyReply {
  return reply.code(200).send({ dry_run: true, ...edited })
}

function sendRule(reply: FastifyReply, rule: Rule): FastifyReply {
  return reply.header('content-type', JSON_TYPE).header('etag', etag(rule.version)).send(ruleText(rule))
}
