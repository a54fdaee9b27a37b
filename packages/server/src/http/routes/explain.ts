// POST /api/v1/rate-limit/explain: what would happen to a request, which rules it meets, and why it does not meet the
// others. Consumes nothing.

import type { FastifyInstance } from 'fastify'
import { type Clock, type Limiter, REASONS, type RuleExplanation } from 'sluice'
import { type CheckAnswer, createAnswerText, noteRules, type PlainOutcome, plainOutcome } from '../bodies/answer.ts'
import { answers, CHECK_BODY, CHECK_BYTES_MAX, type CheckBody } from '../bodies/schemas.ts'
import { subjectOf } from '../bodies/subject.ts'

export const EXPLAIN_PATH = '/api/v1/rate-limit/explain'
/** Rules that do not apply are told up to so many, those that come closest first. */
const OTHERS_MAX = 100

const { dry_run, request_id, detail, ...FACTS } = CHECK_BODY.properties
const BODY = {
  ...CHECK_BODY,
  properties: FACTS,
  examples: [{ client_id: 'user_12345', endpoint: '/api/v1/messages', method: 'POST' }],
}

/** What `explain` answers: ANSWER describes it to programs. */
export type ExplainAnswer = {
  readonly answer: CheckAnswer
  readonly source: string
  readonly version: number
  readonly rules: readonly ExplainedRule[]
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
    fact: { type: 'string', description: 'The fact that is missing or another, if that is why.' },
    detail: { type: 'string', description: 'The same in words.' },
    limits: {
      type: 'array',
      description: 'Of a rule that applies: its buckets as they are now.',
      items: { type: 'object', additionalProperties: true },
    },
  },
}

const ANSWER = {
  type: 'object',
  required: ['answer', 'source', 'version', 'rules', 'left_out'],
  properties: {
    answer: { $ref: 'CheckAnswer#' },
    source: { type: 'string', description: 'Who would decide.' },
    version: { type: 'integer', description: 'Of the rules.' },
    rules: { type: 'array', items: RULE },
    left_out: { type: 'integer', description: `Rules that do not apply, beyond the ${OTHERS_MAX} that come closest.` },
  },
}

export function explainRoute(app: FastifyInstance, limiter: Limiter, clock: Clock): void {
  const schema = {
    operationId: 'explain',
    summary: 'What would happen to a request, and why',
    description: 'Looks at every rule, and consumes nothing.',
    tags: ['insight'],
    body: BODY,
    response: answers(ANSWER, 400, 413, 415, 503),
  }
  const options = { schema, config: { access: 'viewer' as const }, bodyLimit: CHECK_BYTES_MAX }
  app.post<{ Body: CheckBody }>(EXPLAIN_PATH, options, ({ body }) => explain(limiter, body, clock))
}

/** What a check would be answered, and what every rule makes of the request; in the words of the API. */
export async function explain(limiter: Limiter, body: CheckBody, clock: Clock): Promise<ExplainAnswer> {
  const { decision, rules } = await limiter.explain(subjectOf(body))
  const notes = noteRules(limiter)
  const nearest = [...rules].sort((one, other) => nearness(other) - nearness(one))
  const applying = nearest.filter(({ reason }) => reason === null).length
  const limitsOf = (ruleId: string) => decision.outcomes.filter((outcome) => outcome.ruleId === ruleId)
  return {
    answer: JSON.parse(createAnswerText()(decision, clock.nowUs(), notes, undefined)) as CheckAnswer,
    source: decision.source,
    version: decision.version,
    rules: nearest.slice(0, applying + OTHERS_MAX).map((rule) => {
      const limits = rule.reason === null ? { limits: limitsOf(rule.ruleId).map(plainOutcome) } : {}
      return { ...plainRule(rule), ...limits }
    }),
    left_out: Math.max(0, rules.length - applying - OTHERS_MAX),
  }
}

/** How far a rule got before something was in its way, if anything was. */
function nearness({ reason }: RuleExplanation): number {
  return reason === null ? REASONS.length : REASONS.indexOf(reason)
}

function plainRule({ ruleId, reason, fact, detail }: RuleExplanation): ExplainedRule {
  const why = reason === null ? {} : { reason, ...(fact === undefined ? {} : { fact }) }
  return { rule_id: ruleId, applies: reason === null, ...why, detail }
}
