// What all writes of rules share: who may make them and why, whether they are only tried out, on which version they are
// based, and how what is wrong with the rules is told.

import type { FastifyRequest, FastifySchema, RouteShorthandOptions } from 'fastify'
import { type Fault, inSlices, type Limiter, LimiterError, mapped, type Rule, type RulesInput } from 'sluice'
import { type PlacedFault, ProblemError, problem } from '../../problems/problem.ts'
import type { LiveRules } from '../../rules/live-rules.ts'
import type { Edit, Edited, RuleStore } from '../../rules/rule-store.ts'
import type { Schema } from './schemas.ts'

export type RulesParts = {
  readonly limiter: Limiter
  readonly live: LiveRules
  /** Undefined: rules are changed at their source. */
  readonly ruleStore: RuleStore | undefined
}

/** Of one rule. */
const RULE_BYTES_MAX = 64 * 1024

const WRITE_QUERY: Schema = {
  type: 'object',
  additionalProperties: false,
  properties: {
    dry_run: {
      type: 'string', // as all of a query is
      enum: ['true', 'false'],
      description: 'Checks and answers as the write would, and changes nothing.',
      'x-fix': 'use true or false',
    },
    reason: {
      type: 'string',
      minLength: 1,
      maxLength: 500,
      pattern: '^[^\\u0000-\\u001f\\u007f\\ud800-\\udfff]*$',
      description: 'Why, for the audit.',
      'x-fix': 'give 1 to 500 characters without control characters',
    },
  },
}

export type WriteQuery = { readonly dry_run?: 'true' | 'false'; readonly reason?: string }
type WriteRequest = FastifyRequest<{ Querystring: WriteQuery }>

/** The store, or 409 with the place where rules are changed instead. */
export function storeOf({ ruleStore, live: { source } }: RulesParts): RuleStore {
  if (ruleStore !== undefined) return ruleStore
  const code = source.kind === 'etcd' ? 'RULES_FROM_ETCD' : 'RULES_FROM_FILE'
  throw new ProblemError(problem(code, `Rules come from ${source.place}: change them there.`))
}

/** Options of a route that writes. Where nothing can be written, nobody needs to know what is wrong with a body. */
export function writing(parts: RulesParts, schema: FastifySchema): RouteShorthandOptions {
  return {
    schema: { tags: ['rules'], querystring: WRITE_QUERY, ...schema },
    config: { access: 'editor' },
    bodyLimit: RULE_BYTES_MAX,
    onRequest: async () => void storeOf(parts),
  }
}

/** Makes an edit. Once it resolves, the rules are in force on this node. */
export async function write(parts: RulesParts, request: WriteRequest, edit: Edit): Promise<Edited> {
  const { dry_run, reason } = request.query
  const dryRun = dry_run === 'true'
  const edited = await storeOf(parts).edit(edit, { author: { actor: request.caller.id, reason }, dryRun })
  if (!dryRun) await parts.live.refresh()
  return edited
}

/** Refuses an edit that is based on another version than the present one. */
export function requireMatch({ headers }: FastifyRequest, present: number | undefined): void {
  if (headers['if-none-match'] !== undefined) requireAbsent(headers['if-none-match'], present)
  const wanted = headers['if-match']
  if (wanted === undefined) return
  const tags = wanted.split(',').map((tag) => tag.trim().replace(/^W\//, ''))
  const malformed = tags.find((tag) => !/^("\d{1,15}"|\*)$/.test(tag))
  if (malformed !== undefined) throw malformedTag('If-Match', wanted, 'send the ETag that you were given, such as "7"')
  if (present !== undefined && (tags.includes('*') || tags.includes(etag(present)))) return
  const is = present === undefined ? 'it does not exist' : `the present version is ${present}`
  const fault = { field: 'If-Match', value: wanted, fix: `look at it again: ${is}` }
  const detail = `Somebody else changed it meanwhile: ${is}.`
  throw new ProblemError(
    problem('VERSION_CONFLICT', detail, [fault]),
    present === undefined ? {} : { etag: etag(present) },
  )
}

/** `If-None-Match: *`: create it, and replace nothing. */
function requireAbsent(wanted: string, present: number | undefined): void {
  if (wanted.trim() !== '*') throw malformedTag('If-None-Match', wanted, 'send * to replace nothing, or use If-Match')
  if (present === undefined) return
  const fault = { field: 'If-None-Match', value: wanted, fix: `look at it: the present version is ${present}` }
  const detail = `It exists already: the present version is ${present}.`
  throw new ProblemError(problem('VERSION_CONFLICT', detail, [fault]), { etag: etag(present) })
}

function malformedTag(field: string, value: string, fix: string): ProblemError {
  return new ProblemError(problem('REQUEST_INVALID', `${field}: ${fix}`, [{ field, value, fix }]))
}

export function etag(version: number): string {
  return `"${version}"`
}

export type LinesOf = (fields: readonly string[]) => Promise<(number | undefined)[]>

/** The rules of a body, checked as this node would check them; or 400 with every mistake, and its line if known. */
export async function goodRules({ limiter }: RulesParts, rules: unknown, linesOf?: LinesOf): Promise<readonly Rule[]> {
  try {
    const prepared = await limiter.prepareRules(rules as RulesInput) // which checks what they are
    const unfit = await inSlices(mapped(prepared.rules, unfitText))
    const faults = unfit.filter((fault) => fault !== undefined)
    if (faults.length > 0) throw await invalidRules(faults, linesOf)
    return prepared.rules
  } catch (error) {
    if (error instanceof LimiterError && error.code === 'RULE_INVALID') throw await invalidRules(error.faults, linesOf)
    throw error
  }
}

/** The one rule of a body. Its mistakes are told by the names of its fields alone. */
export async function goodRule(parts: RulesParts, rule: unknown): Promise<Rule> {
  const ruleId = String((rule as Partial<Rule> | null)?.rule_id)
  try {
    const [only] = await goodRules(parts, [rule])
    if (only !== undefined) return only
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error
    const { errors = [] } = error.problem
    const bare = (field: string) => field.replace(/^rules\[0\]\.?/, '').replace(`${ruleId}.`, '') || 'body'
    throw await invalidRules(errors.map((fault) => ({ ...fault, field: bare(fault.field) })))
  }
  throw new Error('a rule was parsed, and there is none')
}

export async function invalidRules(faults: readonly Fault[], linesOf?: LinesOf): Promise<ProblemError> {
  const lines = await linesOf?.(faults.map(({ field }) => field))
  const placed: PlacedFault[] = faults.map((fault, index) => ({ ...fault, line: lines?.[index] }))
  const detail = placed.map(({ field, fix, line }) => {
    const place = line === undefined || field === `line ${line}` ? '' : `line ${line}: `
    return `${place}${field}: ${fix}`
  })
  return new ProblemError(problem('RULE_INVALID', detail.join('; '), placed))
}

/** Half of a character has no place in UTF-8, and so none in a database. */
function unfitText(rule: Rule): Fault | undefined {
  const unpaired = /(?<!\\)(?:\\\\)*\\ud[89a-f]/.test(JSON.stringify(rule))
  if (!unpaired) return undefined
  return { field: rule.rule_id, value: rule.name, fix: 'remove the unpaired surrogate from its texts' }
}
