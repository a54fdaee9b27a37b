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
import { type PlainException, plainException } from '../../checks/plain-exception.ts'
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

export function explainRoute(app: FastifyInstance, limiter: Limiter, clock: Clock): void {
  const schema = {
    operationId: 'explain',
    summary: 'Predict and explain a decision',
    description: 'Evaluates every rule and consumes nothing.',
    tags: ['insight'],
    body: BODY,
    response: answers(ANSWER, 400, 413, 415, 503),
  }
  const options = { schema, config: { access: 'viewer' as const }, bodyLimit: CHECK_BYTES_MAX }
  app.post<{ Body: CheckBody }>(EXPLAIN_PATH, options, ({ body }) => explain(limiter, body, clock))
}

/** The prediction, and the rules that apply or come closest; `leftOut` others do not apply either. */
export type Explained = {
  readonly decision: Decision
  readonly rules: readonly RuleExplanation[]
  readonly leftOut: number
}

export async function explainBody(limiter: Limiter, body: CheckBody): Promise<Explained> {
  const { decision, rules } = await limiter.explain(subjectFromBody(body))
  const nearest = [...rules].sort((one, other) => nearness(other) - nearness(one))
  const applying = nearest.filter(({ reason }) => reason === null).length
  const leftOut = Math.max(0, rules.length - applying - OTHERS_MAX)
  return { decision, rules: nearest.slice(0, applying + OTHERS_MAX), leftOut }
}

/** Answer of a check, and the result of every rule, with the field names of the API. */
export async function explain(limiter: Limiter, body: CheckBody, clock: Clock): Promise<ExplainAnswer> {
  const { decision, rules, leftOut } = await explainBody(limiter, body)
  const limitsOf = (ruleId: string) => decision.outcomes.filter((outcome) => outcome.ruleId === ruleId)
  return {
    answer: JSON.parse(createAnswerText()(decision, clock.nowUs(), readActiveRules(limiter), undefined)) as CheckAnswer,
    source: decision.source,
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
