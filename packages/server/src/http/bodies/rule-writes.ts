// Shared by all routes that write rules: role, reason, dry run, version preconditions, and errors for invalid rules.

import type { FastifyRequest, FastifySchema, RouteShorthandOptions } from 'fastify'
import { type FieldError, type Limiter, LimiterError, type Rule, type RulesInput } from 'sluice'
import { invalidField, type LocatedFieldError, ProblemError, problem } from '../../problems/problem.ts'
import { type EditGuard, type EditGuardOptions, followRollback, guardEdit } from '../../rollouts/edit-hooks.ts'
import type { LiveRules } from '../../rules/live-rules.ts'
import { requirePrintable } from '../../rules/rule-file.ts'
import type { Edit, Edited, EditOptions, RuleStore } from '../../rules/rule-store.ts'
import { UNPRINTABLE } from '../../text/escaped.ts'
import type { Schema } from './schemas.ts'

export type RulesDeps = {
  readonly limiter: Limiter
  readonly live: LiveRules
  /** Undefined: rules are edited at their source. */
  readonly ruleStore: RuleStore | undefined
  /** Undefined: direct edits are not guarded. */
  readonly rollouts?: { readonly node: { refresh(): Promise<void> } | undefined; readonly guardMs: number } | undefined
}

/** Limit for the body of one rule. */
const RULE_BYTES_MAX = 64 * 1024

const WRITE_QUERY: Schema = {
  type: 'object',
  additionalProperties: false,
  properties: {
    dry_run: {
      type: 'string', // query parameters are strings
      enum: ['true', 'false'],
      description: 'Validate the change and answer as if it was applied, but change nothing.',
      'x-fix': 'use true or false',
    },
    reason: {
      type: 'string',
      minLength: 1,
      maxLength: 500,
      pattern: `^[^${UNPRINTABLE}]*$`,
      description: 'Reason for the change, for the audit log.',
      'x-fix': 'give 1 to 500 characters without control characters',
    },
    guard: {
      type: 'string',
      const: 'off',
      description: 'Do not guard this edit. Needs a reason.',
      'x-fix': 'omit it, or use off',
    },
  },
}

export type WriteQuery = { readonly dry_run?: 'true' | 'false'; readonly reason?: string; readonly guard?: 'off' }
type WriteRequest = FastifyRequest<{ Querystring: WriteQuery }>

/** Returns the store, or throws 409 with the location where rules are edited. */
export function requireRuleStore({ ruleStore, live: { source } }: RulesDeps): RuleStore {
  if (ruleStore !== undefined) return ruleStore
  const code = source.kind === 'etcd' ? 'RULES_FROM_ETCD' : 'RULES_FROM_FILE'
  throw new ProblemError(problem(code, `Rules come from ${source.location}: change them there.`))
}

/** Options of a route that writes. A node without a rule store rejects the request before it validates the body. */
export function writeOptions(deps: RulesDeps, schema: FastifySchema): RouteShorthandOptions {
  return {
    schema: { tags: ['rules'], querystring: WRITE_QUERY, ...schema },
    config: { access: 'editor' },
    bodyLimit: RULE_BYTES_MAX,
    onRequest: async () => void requireRuleStore(deps),
  }
}

/** Result of a direct edit. */
export type Written = Edited & { readonly guard?: EditGuard }

/** Applies an edit. When it resolves, the rules are active on this node. */
export function write(deps: RulesDeps, request: WriteRequest, edit: Edit): Promise<Written> {
  return apply(deps, request, edit, 'rules.edit', guardEdit)
}

/** Writes the rules of an earlier version again. */
export function rollBack(deps: RulesDeps, request: WriteRequest, edit: Edit, version: number): Promise<Written> {
  return apply(deps, request, edit, { rollbackTo: version }, followRollback)
}

async function apply(
  deps: RulesDeps,
  request: WriteRequest,
  edit: Edit,
  path: EditOptions['path'],
  follow: typeof guardEdit,
): Promise<Written> {
  const { dry_run, guard: off, reason } = request.query
  if (off === 'off' && reason === undefined)
    throw invalidField('reason', undefined, 'give a reason: an edit without guard needs one')
  let guard: EditGuard | undefined
  const onGuard = (found: EditGuard) => {
    guard = found
  }
  const guarding: EditGuardOptions = { guardMs: deps.rollouts?.guardMs ?? 0, isOff: off === 'off', onGuard }
  const dryRun = dry_run === 'true'
  const author = { actor: request.caller.id, reason }
  const applied: EditOptions['applied'] = (queries, done) => follow(queries, done, guarding)
  const edited = await requireRuleStore(deps).edit(edit, { author, path, dryRun, applied })
  if (dryRun) return edited
  await deps.live.refresh()
  await deps.rollouts?.node?.refresh()
  return guard === undefined ? edited : { ...edited, guard }
}

/** Header of a direct edit: the proposal that guards it, or why none does. */
export function guardHeader({ guard }: Written): Readonly<Record<string, string>> {
  if (guard === undefined) return {}
  if ('off' in guard) return { 'sluice-guard': `off; ${guard.off}` }
  const { proposal_id, until, unguarded = [] } = guard
  const without = unguarded.length === 0 ? '' : `; without ${unguarded.map(({ rule_id }) => rule_id).join(', ')}`
  return { 'sluice-guard': `${proposal_id}; until ${until}${without}` }
}

/** Rejects an edit that is based on an outdated version. */
export function requireMatch({ headers }: FastifyRequest, present: number | undefined): void {
  if (headers['if-none-match'] !== undefined) requireAbsent(headers['if-none-match'], present)
  const wanted = headers['if-match']
  if (wanted === undefined) return
  const tags = wanted.split(',').map((tag) => tag.trim().replace(/^W\//, ''))
  const malformed = tags.find((tag) => !/^("\d{1,15}"|\*)$/.test(tag))
  if (malformed !== undefined)
    throw malformedTag('If-Match', wanted, 'send an ETag from an earlier response, such as "7"')
  if (present !== undefined && (tags.includes('*') || tags.includes(etag(present)))) return
  const state = present === undefined ? 'the rule does not exist' : `the current version is ${present}`
  const fieldError = { field: 'If-Match', value: wanted, fix: `read it again: ${state}` }
  const detail = `Version conflict: ${state}.`
  throw new ProblemError(
    problem('VERSION_CONFLICT', detail, [fieldError]),
    present === undefined ? {} : { etag: etag(present) },
  )
}

/** `If-None-Match: *`: create only. */
function requireAbsent(wanted: string, present: number | undefined): void {
  if (wanted.trim() !== '*')
    throw malformedTag('If-None-Match', wanted, 'send * to create only, or use If-Match to replace')
  if (present === undefined) return
  const fieldError = { field: 'If-None-Match', value: wanted, fix: `read it first: the current version is ${present}` }
  const detail = `It already exists: the current version is ${present}.`
  throw new ProblemError(problem('VERSION_CONFLICT', detail, [fieldError]), { etag: etag(present) })
}

function malformedTag(field: string, value: string, fix: string): ProblemError {
  return new ProblemError(problem('REQUEST_INVALID', `${field}: ${fix}`, [{ field, value, fix }]))
}

export function etag(version: number): string {
  return `"${version}"`
}

export type LinesOf = (fields: readonly string[]) => Promise<(number | undefined)[]>

/** Parses and validates the rules of a body. Throws 400 with every mistake, and its line if known. */
export async function validRules({ limiter }: RulesDeps, rules: unknown, linesOf?: LinesOf): Promise<readonly Rule[]> {
  try {
    const prepared = await limiter.prepareRules(rules as RulesInput) // validates them
    await requirePrintable(prepared.rules)
    return prepared.rules
  } catch (error) {
    if (error instanceof LimiterError && error.code === 'RULE_INVALID')
      throw await invalidRules(error.fieldErrors, linesOf)
    throw error
  }
}

/** Parses and validates the only rule of a body. Mistakes name its fields without a path. */
export async function validRule(deps: RulesDeps, rule: unknown): Promise<Rule> {
  const { rule_id: ruleId } = (rule ?? {}) as Readonly<Record<string, unknown>>
  const named = typeof ruleId === 'string' ? `${ruleId}.` : '' // String() recurses once per level of a nested list
  try {
    const [only] = await validRules(deps, [rule])
    if (only !== undefined) return only
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error
    const { errors = [] } = error.problem
    const bare = (field: string) => field.replace(/^rules\[0\]\.?/, '').replace(named, '') || 'body'
    throw await invalidRules(errors.map((fieldError) => ({ ...fieldError, field: bare(fieldError.field) })))
  }
  throw new Error('parsing one rule returned none')
}

export async function invalidRules(fieldErrors: readonly FieldError[], linesOf?: LinesOf): Promise<ProblemError> {
  const lines = await linesOf?.(fieldErrors.map(({ field }) => field))
  const located: LocatedFieldError[] = fieldErrors.map((fieldError, index) => ({ ...fieldError, line: lines?.[index] }))
  const detail = located.map(({ field, fix, line }) => {
    const prefix = line === undefined || field === `line ${line}` ? '' : `line ${line}: `
    return `${prefix}${field}: ${fix}`
  })
  return new ProblemError(problem('RULE_INVALID', detail.join('; '), located))
}
