// POST /api/v1/rate-limit/rules/validate: parses one rule as a write would, and changes nothing. An invalid rule
// is a normal result, because editors validate while a person types.

import type { FastifyInstance } from 'fastify'
import { type Clock, type FieldError, plainRule, type Rule } from 'sluice'
import { type LocatedFieldError, ProblemError } from '../../problems/problem.ts'
import { shown } from '../../problems/shown.ts'
import { compactRule } from '../../rules/compact-rule.ts'
import { lintWarnings } from '../../rules/lint-warnings.ts'
import { type RuleText, readRuleText } from '../../rules/rule-text.ts'
import { YamlBody } from '../bodies/rule-bodies.ts'
import { type RulesDeps, validRule } from '../bodies/rule-writes.ts'
import { answers } from '../bodies/schemas.ts'
import { RULES_PATH } from './rules.ts'

const BODY_BYTES_MAX = 64 * 1024
const FIELD = {
  type: 'object',
  properties: {
    field: { type: 'string' },
    value: { description: 'The value, shortened.' },
    fix: { type: 'string' },
    line: { type: 'integer', description: 'Line in a YAML text.' },
  },
}
const ANSWER = {
  type: 'object',
  required: ['valid', 'errors', 'warnings'],
  properties: {
    valid: { type: 'boolean' },
    errors: { type: 'array', items: FIELD },
    warnings: { type: 'array', items: FIELD, description: 'The rule is valid, but probably not as intended.' },
    rule: { type: 'object', additionalProperties: true, description: 'The complete rule, with default values.' },
    compact: {
      type: 'object',
      additionalProperties: true,
      description: 'The fields that were written, with canonical names and values.',
    },
  },
}

export type ValidationDeps = RulesDeps & { readonly clock: Clock }

/** Call in a scope whose bodies are parsed as rules, YAML included. */
export function ruleValidationRoute(app: FastifyInstance, deps: ValidationDeps): void {
  const schema = {
    operationId: 'validateRule',
    summary: 'Validate one rule',
    description: 'A rule as YAML or JSON. Answers 200 for invalid rules too, with every mistake and its line.',
    tags: ['rules'],
    body: { examples: [{ rule_id: 'demo', scope: 'per_user', limit: 5, window_seconds: 10 }] },
    response: answers(ANSWER, 400, 413, 415, 503),
  }
  const options = { schema, config: { access: 'viewer' as const }, bodyLimit: BODY_BYTES_MAX }
  app.post<{ Body: unknown }>(`${RULES_PATH}/validate`, options, async ({ body, caller }) => {
    if (!(body instanceof YamlBody)) return validated(deps, body, undefined)
    const text = await readRuleText(body.text, 'yaml', caller.id)
    if (text.errors.length > 0) return invalid(text.errors.map(withOwnLine))
    return validated(deps, text.value, text)
  })
}

async function validated(deps: ValidationDeps, value: unknown, text: RuleText | undefined): Promise<object> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return invalid([{ field: 'body', value, fix: 'give one rule, as fields such as "rule_id: demo"' }])
  try {
    const rule = await validRule(deps, value)
    const warnings = await located(warningsOf(rule, deps.clock), text)
    return { valid: true, errors: [], warnings: warnings.map(plain), rule: plainRule(rule), compact: compactRule(rule) }
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error
    return invalid(await located(error.problem.errors ?? [], text))
  }
}

function warningsOf(rule: Rule, clock: Clock): FieldError[] {
  return lintWarnings([rule], clock.nowUs() / 1000).map((warning) => {
    return { ...warning, field: warning.field.replace(/^rules\[0\]\./, '') }
  })
}

async function located(fields: readonly FieldError[], text: RuleText | undefined): Promise<LocatedFieldError[]> {
  const lines = await text?.linesOf(fields.map(({ field }) => field))
  return fields.map((field, index) => ({ ...field, line: lines?.[index] }))
}

/** Syntax errors name their line instead of a field. */
function withOwnLine(error: FieldError): LocatedFieldError {
  const [, line] = /^line (\d+)$/.exec(error.field) ?? []
  return line === undefined ? error : { ...error, line: Number(line) }
}

function invalid(errors: readonly LocatedFieldError[]): object {
  return { valid: false, errors: errors.map(plain), warnings: [] }
}

function plain({ field, value, fix, line }: LocatedFieldError): object {
  return { field, value: shown(value), fix, ...(line === undefined ? {} : { line }) }
}
