// /api/v1/rate-limit/rule-set: all rules as one document, with earlier versions. Replaced atomically: no check on any
// node sees a partial update.

import type { FastifyInstance, FastifyRequest } from 'fastify'
import { inSlices, mapped, type Rule } from 'sluice'
import { ProblemError, problem } from '../../problems/problem.ts'
import { changesBetween, type PlainRule, summarized } from '../../rules/changes.ts'
import { compactRule } from '../../rules/compact-rule.ts'
import { RULE_SET_BYTES_MAX } from '../../rules/rule-file.ts'
import type { Edit, RuleStore } from '../../rules/rule-store.ts'
import { readRuleText } from '../../rules/rule-text.ts'
import { rulesYaml } from '../../rules/yaml-writer.ts'
import { YAML_TYPE, YamlBody } from '../bodies/rule-bodies.ts'
import {
  etag,
  invalidRules,
  type RulesDeps,
  requireMatch,
  requireRuleStore,
  rollBack,
  validRules,
  type WriteQuery,
  write,
  writeOptions,
} from '../bodies/rule-writes.ts'
import { answers } from '../bodies/schemas.ts'

export const RULE_SET_PATH = '/api/v1/rate-limit/rule-set'
const VERSIONS_PATH = `${RULE_SET_PATH}/versions`
const VERSIONS_DEFAULT = 50
const VERSION_MAX = 999_999_999_999_999

const VERSION = { type: 'string', pattern: '^[0-9]{1,15}$', 'x-fix': 'give the number of a version' }
const SET = {
  type: 'object',
  required: ['version', 'rules'],
  properties: {
    version: { type: 'integer' },
    rules: { type: 'array', items: { type: 'object', additionalProperties: true } },
  },
}
const CHANGES = {
  type: 'array',
  items: {
    type: 'object',
    required: ['rule_id', 'change'],
    properties: {
      rule_id: { type: 'string' },
      change: { type: 'string', enum: ['created', 'updated', 'deleted'] },
      before: { type: 'object', additionalProperties: true },
      after: { type: 'object', additionalProperties: true },
    },
  },
}
const GUARD = {
  type: 'object',
  additionalProperties: true,
  description: 'The proposal that guards the edit and until when, or why none does.',
}
const EDITED = {
  type: 'object',
  required: ['version', 'changes'],
  properties: { version: { type: 'integer' }, dry_run: { type: 'boolean' }, changes: CHANGES, guard: GUARD },
}

type Write = { Querystring: WriteQuery; Body: unknown }

export function ruleSetRoutes(app: FastifyInstance, deps: RulesDeps): void {
  exportRoute(app, deps)
  importRoute(app, deps)
  rollbackRoute(app, deps)
  versionRoutes(app, deps)
  diffRoute(app, deps)
}

function exportRoute(app: FastifyInstance, { limiter }: RulesDeps): void {
  const format = { type: 'string', enum: ['yaml', 'json'], 'x-fix': 'use yaml or json' }
  const content = {
    [YAML_TYPE]: { schema: { type: 'string' } },
    'application/json': { schema: SET },
  }
  const schema = {
    ...described('exportRules', 'All rules, as a file'),
    querystring: { type: 'object', additionalProperties: false, properties: { format } },
    response: { ...answers({ description: 'Rules with the fields that were written.', content }, 400) },
  }
  type Export = { Querystring: { format?: 'yaml' | 'json' } }
  app.get<Export>(RULE_SET_PATH, { schema, config: { access: 'viewer' } }, async ({ query }, reply) => {
    const { version, rules } = limiter
    const compact = await inSlices(mapped(rules, compactRule))
    reply.header('etag', etag(version))
    if (query.format === 'json') return { version, rules: compact }
    return reply.type(`${YAML_TYPE}; charset=utf-8`).send(await rulesYaml(compact))
  })
}

function importRoute(app: FastifyInstance, deps: RulesDeps): void {
  const example = { rules: [{ rule_id: 'demo', scope: 'per_user', limit: 5, window_seconds: 10 }] }
  const schema = {
    operationId: 'importRules',
    summary: 'Replace all rules',
    description:
      'YAML or JSON, in the format of a rule file. Applied atomically; rules that are not in it are deleted.',
    body: { examples: [example] },
    response: answers(EDITED, 400, 401, 409, 412, 413, 415, 503),
  }
  const options = { ...writeOptions(deps, schema), bodyLimit: RULE_SET_BYTES_MAX }
  app.put<Write>(RULE_SET_PATH, options, async (request, reply) => {
    const rules = await rulesIn(deps, request)
    const edited = await write(deps, request, replacing('rules.import', rules, request))
    reply.header('etag', etag(edited.version))
    return answerOf(edited, request)
  })
}

function rollbackRoute(app: FastifyInstance, deps: RulesDeps): void {
  const version = {
    type: 'integer',
    minimum: 1,
    maximum: VERSION_MAX,
    examples: [7],
    'x-fix': 'give the number of a version',
  }
  const body = { type: 'object', additionalProperties: false, required: ['version'], properties: { version } }
  const schema = {
    operationId: 'rollbackRules',
    summary: 'Roll back to a version',
    description:
      'The rules of that version become a new version. During a freeze, and if changes need approval, only from the ' +
      'active version to its predecessor, and never back to rules that were rolled back.',
    body: { ...body, 'x-fix': 'send a JSON object with version' },
    response: answers(EDITED, 400, 401, 404, 409, 412, 503),
  }
  type Rollback = Write & { Body: { version: number } }
  app.post<Rollback>(`${RULE_SET_PATH}/rollback`, writeOptions(deps, schema), async (request, reply) => {
    const { version } = request.body
    const rules = await validRules(deps, await setOf(requireRuleStore(deps), version))
    const edited = await rollBack(deps, request, replacing('rules.rollback', rules, request), version)
    reply.header('etag', etag(edited.version))
    return answerOf(edited, request)
  })
}

function versionRoutes(app: FastifyInstance, deps: RulesDeps): void {
  const config = { access: 'viewer' } as const
  const limit = { type: 'string', pattern: '^([1-9][0-9]{0,2}|1000)$', 'x-fix': 'give a whole number from 1 to 1000' }
  const note = {
    type: 'object',
    properties: {
      version: { type: 'integer' },
      rule_count: { type: 'integer' },
      actor: { type: 'string', description: 'Author: id of a token, or admin-token.' },
      actor_name: { type: ['string', 'null'], description: 'The name of that token.' },
      reason: { type: ['string', 'null'] },
      created_at: { type: 'string' },
    },
  }
  const list = {
    ...described('listVersions', 'Who changed the rules, when and why'),
    querystring: { type: 'object', additionalProperties: false, properties: { limit, before: VERSION } },
    response: answers({ type: 'object', properties: { versions: { type: 'array', items: note } } }, 400, 409, 503),
  }
  type List = { Querystring: { limit?: string; before?: string } }
  app.get<List>(VERSIONS_PATH, { schema: list, config }, async ({ query }) => {
    const { limit: most = VERSIONS_DEFAULT, before = Number.MAX_SAFE_INTEGER } = query
    return { versions: await requireRuleStore(deps).versions(Number(most), Number(before)) }
  })
  const one = {
    ...described('getVersion', 'Rules of a version'),
    params: { type: 'object', properties: { version: VERSION } },
    response: answers(SET, 400, 404, 409, 503),
  }
  type One = { Params: { version: string } }
  app.get<One>(`${VERSIONS_PATH}/:version`, { schema: one, config }, async ({ params }) => {
    const version = Number(params.version)
    return { version, rules: await setOf(requireRuleStore(deps), version) }
  })
}

function diffRoute(app: FastifyInstance, deps: RulesDeps): void {
  const querystring = {
    type: 'object',
    additionalProperties: false,
    required: ['from'],
    properties: { from: VERSION, to: VERSION },
  }
  const diff = {
    type: 'object',
    properties: { from: { type: 'integer' }, to: { type: 'integer' }, changes: CHANGES },
  }
  const schema = {
    ...described('diffVersions', 'What changed between two versions'),
    querystring,
    response: answers(diff, 400, 404, 409, 503),
  }
  type Diff = { Querystring: { from: string; to?: string } }
  app.get<Diff>(`${RULE_SET_PATH}/diff`, { schema, config: { access: 'viewer' } }, async ({ query }) => {
    const store = requireRuleStore(deps)
    const from = Number(query.from)
    const to = query.to === undefined ? await store.version() : Number(query.to)
    const [before, after] = [await setOf(store, from), await setOf(store, to)]
    return { from, to, changes: summarized(await changesBetween(before, after)) }
  })
}

function described(operationId: string, summary: string) {
  return { operationId, summary, tags: ['rules'] }
}

function replacing(action: string, rules: readonly Rule[], request: FastifyRequest): Edit {
  const next = async (_: readonly PlainRule[], version: number) => {
    requireMatch(request, version)
    return rules
  }
  return { action, next }
}

async function rulesIn(deps: RulesDeps, { body, caller }: FastifyRequest): Promise<readonly Rule[]> {
  if (!(body instanceof YamlBody)) return validRules(deps, body)
  const { value, errors, linesOf } = await readRuleText(body.text, 'yaml', caller.id)
  if (errors.length > 0) throw await invalidRules(errors, linesOf)
  return validRules(deps, value, linesOf)
}

async function setOf(store: RuleStore, version: number): Promise<readonly PlainRule[]> {
  const rules = await store.set(version)
  if (rules !== undefined) return rules
  const detail = `There is no version ${version}. Only the newest 1000 versions are kept.`
  throw new ProblemError(problem('VERSION_UNKNOWN', detail))
}

function answerOf(edited: object, { query }: FastifyRequest<{ Querystring: WriteQuery }>): object {
  return query.dry_run === 'true' ? { dry_run: true, ...edited } : edited
}
