// POST /api/v1/rate-limit/explain: predicts the decision about a request, and explains why each other rule does not
// apply. Consumes nothing.

import type { FastifyInstance } from 'fastify'
import { type Clock, type Decision, type Limiter, REASONS, type RuleExplanation } from 'sluice'
import {
  type CheckAnswer,
  createAnswerText,
  type PlainOutcome,
  plainOutcome,
  readActiveRules,
} from '../../checks/answer.ts'
import type { CheckBody } from '../../checks/check-body.ts'
import { subjectFromBody } from '../../checks/check-body.ts'
import type { KnownKeys } from '../../checks/known-keys.ts'
import { type PlainException, plainException } from '../../checks/plain-exception.ts'
import { HASHED } from '../../events/client-key.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
import { answers, CHECK_BODY, CHECK_BYTES_MAX } from '../bodies/schemas.ts'

export const EXPLAIN_PATH = '/api/v1/rate-limit/explain'
/** Cap on listed rules that do not apply, nearest match first. */
const OTHERS_MAX = 100

const { dry_run, request_id, detail, ...FACTS } = CHECK_BODY.properties
const BODY = {
  ...CHECK_BODY,
  properties: FACTS,
  examples: [{ client_id: 'user_12345', endpoint: '/api/v1/messages', method: 'POST' }],
}

/** Parsed answer; ANSWER is its schema. */
export type ExplainAnswer = {
  readonly answer: CheckAnswer
  readonly source: string
  /** Set if `on_fail` decided for a limit: its numbers are not those of the store. */
  readonly policy_reason?: string
  readonly version: number
  readonly rules: readonly ExplainedRule[]
  /** Overrides, signals, global factor and bypass that change the decision. */
  readonly exceptions: readonly PlainException[]
  readonly left_out: number
}

type ExplainedRule = {
  readonly rule_id: string
  readonly applies: boolean
  readonly reason?: string
  readonly detail: string
  readonly limits?: readonly PlainOutcome[]
}

const RULE = {
  type: 'object',
  required: ['rule_id', 'applies', 'detail'],
  properties: {
    rule_id: { type: 'string' },
    applies: { type: 'boolean' },
    reason: { type: 'string', enum: REASONS, description: 'Why it does not apply.' },
    fact: { type: 'string', description: 'Missing or different fact, if that is the reason.' },
    detail: { type: 'string', description: 'Explanation for people.' },
    limits: {
      type: 'array',
      description: 'Current buckets of a rule that applies.',
      items: { type: 'object', additionalProperties: true },
    },
  },
}

const ANSWER = {
  type: 'object',
  required: ['answer', 'source', 'version', 'rules', 'exceptions', 'left_out'],
  properties: {
    answer: { $ref: 'CheckAnswer#' },
    source: { type: 'string', description: 'Source of the decision.' },
    policy_reason: {
      type: 'string',
      description: 'Why `on_fail` decided for a limit. The state of the buckets is then unknown, whatever the numbers.',
    },
    version: { type: 'integer', description: 'Version of the rules.' },
    rules: { type: 'array', items: RULE },
    exceptions: {
      type: 'array',
      description: 'Overrides, signals, global factor and bypass that change the decision.',
      items: { type: 'object', additionalProperties: true },
    },
    left_out: { type: 'integer', description: `Rules that do not apply, beyond the ${OTHERS_MAX} that come closest.` },
  },
}

/** `keys` undefined: this node records no events. */
export function explainRoute(app: FastifyInstance, limiter: Limiter, clock: Clock, keys: FindKey | undefined): void {
  const schema = {
    operationId: 'explain',
    summary: 'Predict and explain a decision',
    description:
      'Evaluates every rule and consumes nothing. `client_id`, `api_key`, `ip_address` and `tenant` may be the ' +
      '`hmac:` hash of a stored event: the service explains the key behind it, which the answer does not contain.',
    tags: ['insight'],
    body: BODY,
    response: answers(ANSWER, 400, 404, 413, 415, 503),
  }
  const options = { schema, config: { access: 'viewer' as const }, bodyLimit: CHECK_BYTES_MAX }
  app.post<{ Body: CheckBody }>(EXPLAIN_PATH, options, ({ body }) => explain(limiter, body, clock, keys))
}

/** Facts of which events may store the hash. */
const HASHED_FACTS = { client_id: 'user', api_key: 'api_key', ip_address: 'ip', tenant: 'tenant' } as const

/** Undefined: this node records no events. */
export type FindKey = Pick<KnownKeys, 'find'>

type FoundKey = { readonly field: string; readonly fact: string; readonly hashed: string; readonly key: string }

/** Keys of the hashes in a body. Throws KEY_UNKNOWN: without its key, another bucket would be explained. */
async function keysOf(body: CheckBody, keys: FindKey | undefined): Promise<readonly FoundKey[]> {
  const found: FoundKey[] = []
  for (const [field, fact] of Object.entries(HASHED_FACTS)) {
    const hashed = body[field as keyof typeof HASHED_FACTS]
    if (hashed === undefined || !HASHED.test(hashed)) continue
    const key = await keys?.find(fact, hashed)
    if (key === undefined) throw unknownKey(field, hashed)
    found.push({ field, fact, hashed, key })
  }
  return found
}

function unknownKey(field: string, hashed: string): ProblemError {
  const fix = 'give the key itself, or explain it within a day of a recorded request'
  const detail = `The key of this hash is not known, so neither are its buckets: ${fix}.`
  return new ProblemError(problem('KEY_UNKNOWN', detail, [{ field, value: hashed, fix }]))
}

/** A condition lists keys, and says by which of them it decides: that it differs is all that may be told of a hash. */
function concealed(rule: RuleExplanation, found: readonly FoundKey[]): RuleExplanation {
  const hidden = found.find(({ fact }) => fact === rule.fact)
  if (hidden === undefined || rule.reason !== 'when') return rule
  return { ...rule, detail: `the condition on ${hidden.fact} does not hold for ${hidden.hashed}` }
}

/** The prediction, and the rules that apply or come closest; `leftOut` others do not apply either. */
export type Explained = {
  readonly decision: Decision
  readonly rules: readonly RuleExplanation[]
  readonly leftOut: number
}

/** A body may contain stored hashes, of which `keys` knows the keys. */
export async function explainBody(limiter: Limiter, body: CheckBody, keys: FindKey | undefined): Promise<Explained> {
  const found = await keysOf(body, keys)
  const known = Object.fromEntries(found.map(({ field, key }) => [field, key]))
  const { decision, rules } = await limiter.explain(subjectFromBody({ ...body, ...known }))
  const nearest = rules.map((rule) => concealed(rule, found)).sort((one, other) => nearness(other) - nearness(one))
  const applying = nearest.filter(({ reason }) => reason === null).length
  const leftOut = Math.max(0, rules.length - applying - OTHERS_MAX)
  return { decision, rules: nearest.slice(0, applying + OTHERS_MAX), leftOut }
}

/** Answer of a check, and the result of every rule, with the field names of the API. */
export async function explain(limiter: Limiter, body: CheckBody, clock: Clock, keys?: FindKey): Promise<ExplainAnswer> {
  const { decision, rules, leftOut } = await explainBody(limiter, body, keys)
  const limitsOf = (ruleId: string) => decision.outcomes.filter((outcome) => outcome.ruleId === ruleId)
  return {
    answer: JSON.parse(createAnswerText()(decision, clock.nowUs(), readActiveRules(limiter), undefined)) as CheckAnswer,
    source: decision.source,
    ...(decision.policyReason && { policy_reason: decision.policyReason }),
    version: decision.version,
    rules: rules.map((rule) => {
      const limits = rule.reason === null ? { limits: limitsOf(rule.ruleId).map(plainOutcome) } : {}
      return { ...plainRule(rule), ...limits }
    }),
    exceptions: decision.exceptions.map(plainException),
    left_out: leftOut,
  }
}

/** Number of conditions that a rule met before one failed. */
function nearness({ reason }: RuleExplanation): number {
  return reason === null ? REASONS.length : REASONS.indexOf(reason)
}

function plainRule({ ruleId, reason, fact, detail }: RuleExplanation): ExplainedRule {
  const why = reason === null ? {} : { reason, ...(fact === undefined ? {} : { fact }) }
  return { rule_id: ruleId, applies: reason === null, ...why, detail }
}
