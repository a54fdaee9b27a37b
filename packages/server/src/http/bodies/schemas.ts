// The shapes of all bodies: they validate what comes in, and /openapi.json is made of them. `x-fix` is what people are
// told when a field is wrong.

import type { FastifySchema } from 'fastify'
import { NAME_FIX } from './schema-faults.ts'

export const CHECKS_MAX = 1000
export const CHECK_BYTES_MAX: number = 64 * 1024
export const BATCH_BYTES_MAX: number = 2 * 1024 * 1024

/** A check as it arrives, once the schema has let it pass. */
export type CheckBody = {
  readonly client_id?: string
  readonly endpoint?: string
  readonly method?: string
  readonly ip_address?: string
  readonly api_key?: string
  readonly tenant?: string
  readonly plan?: string
  readonly cost?: number
  readonly attributes?: Readonly<Record<string, string | number | boolean>>
  readonly dry_run?: boolean
  readonly request_id?: string
  readonly detail?: boolean
}

export type RefundBody = { readonly request_id: string; readonly units?: number }

export type Schema = Readonly<Record<string, unknown>>

// Half a surrogate pair has no UTF-8, so two such keys could become one in Redis.
const CONTROL = '\\u0000-\\u001f\\u007f-\\u009f\\ud800-\\udfff'
const COST_MAX = 1_000_000_000

export const METHOD_FIX = 'use a method of HTTP, such as GET or POST'
export const ADDRESS_FIX = 'give an IPv4 or IPv6 address, such as 203.0.113.42'

function key(description: string, example: string): Schema {
  return {
    type: 'string',
    description,
    examples: [example],
    pattern: `^[^${CONTROL}{}]{1,1024}$`,
    'x-fix': 'give 1 to 1024 characters without control characters, "{" and "}"',
  }
}

/** A text for people or of a short vocabulary, with no more to it than its length. */
export function text(description: string, example: string, maxLength: number): Schema {
  return {
    type: 'string',
    description,
    examples: [example],
    pattern: `^[^${CONTROL}]{1,${maxLength}}$`,
    'x-fix': `give 1 to ${maxLength} characters without control characters`,
  }
}

/** Of a change that is no change of the rules. */
export const REASON: Schema = text('Why, for the audit.', 'refuses everybody in Spain', 1024)

function flag(description: string): Schema {
  return { type: 'boolean', description, 'x-fix': 'use true or false' }
}

const ATTRIBUTES: Schema = {
  type: 'object',
  description: 'Anything else that rules look at, by name.',
  examples: [{ 'header.x-client': 'mobile', country: 'NL' }],
  maxProperties: 32,
  propertyNames: { pattern: `^(?!__proto__$)[^${CONTROL}]{1,128}$`, 'x-fix': NAME_FIX },
  additionalProperties: {
    type: ['string', 'number', 'boolean'],
    pattern: `^[^${CONTROL}]{0,1024}$`,
    'x-fix': 'give a number, true, false or a text of at most 1024 characters without control characters',
  },
  'x-fix': 'give an object of at most 32 names with texts, numbers, true or false',
}

export const CHECK_BODY: Schema & { readonly properties: Readonly<Record<string, Schema>> } = {
  type: 'object',
  description: 'The facts of one request. All are optional: a rule that needs an absent one follows its on_missing.',
  additionalProperties: false,
  properties: {
    client_id: key('Who asks: the fact of rules with scope per_user.', 'user_12345'),
    endpoint: {
      type: 'string',
      description: 'Path of the request; a query is ignored.',
      examples: ['/api/v1/messages'],
      pattern: `^/[^${CONTROL}]{0,8191}$`,
      'x-fix': 'give a path that starts with "/", of at most 8192 characters without control characters',
    },
    method: {
      type: 'string',
      description: 'Method of the request.',
      examples: ['POST'],
      maxLength: 32,
      'x-fix': METHOD_FIX,
    },
    ip_address: {
      type: 'string',
      description: 'Address of the client, IPv4 or IPv6 in any notation.',
      examples: ['203.0.113.42'],
      maxLength: 64,
      'x-fix': ADDRESS_FIX,
    },
    api_key: key('Key the client presented: the fact of rules with scope per_api_key.', 'k_live_9'),
    tenant: key('Organisation of the client: the fact of rules with scope per_tenant.', 'acme'),
    plan: key('What the client pays for: chooses among by_plan limits.', 'pro'),
    cost: {
      type: 'integer',
      description: 'Units this request is worth; 1 by default.',
      examples: [1],
      minimum: 1,
      maximum: COST_MAX,
      'x-fix': `give a whole number from 1 to ${COST_MAX}`,
    },
    attributes: ATTRIBUTES,
    dry_run: flag('Answer as a check would, and consume nothing.'),
    request_id: key('Your name for this request: for refunds, and for the permits of concurrency rules.', 'req-8f14e'),
    detail: flag('Also answer with every limit that was looked at, and with headers ready for the client.'),
  },
  'x-fix': 'send a JSON object',
}

export const BATCH_BODY: Schema & { readonly properties: { readonly checks: Schema } } = {
  type: 'object',
  additionalProperties: false,
  required: ['checks'],
  properties: {
    checks: {
      type: 'array',
      description: 'Checks, decided in this order and independent of each other.',
      maxItems: CHECKS_MAX,
      items: {},
      'x-fix': `give a list of at most ${CHECKS_MAX} checks`,
    },
  },
  'x-fix': 'send a JSON object with a list under "checks"',
}

export const REFUND_BODY: Schema = {
  type: 'object',
  additionalProperties: false,
  required: ['request_id'],
  properties: {
    request_id: key('The request_id that the check was sent with or answered.', 'req-8f14e'),
    units: {
      type: 'integer',
      description: 'Units to give back at each limit; all by default. 0 only releases concurrency permits.',
      examples: [1],
      minimum: 0,
      maximum: COST_MAX,
      'x-fix': `give a whole number from 0 to ${COST_MAX}`,
    },
  },
  'x-fix': 'send a JSON object with a request_id',
}

/** Of lists: how many at most. A query is all texts. */
export function limitQuery({ default: usual, max }: { default: number; max: 1000 }): Schema {
  const limit = {
    type: 'string',
    description: `How many at most, from 1 to ${max}; ${usual} by default.`,
    examples: [String(usual)],
    pattern: '^([1-9][0-9]{0,2}|1000)$',
    'x-fix': `give a whole number from 1 to ${max}`,
  }
  return { type: 'object', additionalProperties: false, properties: { limit } }
}

const count: Schema = { type: ['integer', 'null'] }

export const CHECK_ANSWER: Schema = {
  $id: 'CheckAnswer',
  type: 'object',
  required: ['allowed', 'remaining', 'limit', 'reset_at'],
  description: 'The numbers are those of the limit that decides; all are null when no rule matched.',
  properties: {
    allowed: { type: 'boolean' },
    remaining: { ...count, description: 'Units left after this request.' },
    limit: { ...count, description: 'Units per window.' },
    reset_at: { ...count, description: 'Epoch seconds at which the limit is as good as new, rounded up.' },
    retry_after: { ...count, description: 'Refused: seconds to wait, at least 1; null when waiting will not help.' },
    retry_after_ms: { ...count, description: 'Refused: the same in milliseconds.' },
    rule_id: { type: 'string', description: 'Refused: the rule.' },
    violated_rule: { type: 'string', description: 'Refused: the name of the rule, or its id.' },
    violated_tier: { type: 'string', description: 'Refused: the scope of the rule, such as per_user.' },
    violated_limit: {
      type: 'string',
      description: 'Refused: the limit of the rule, such as 1m; default for a rule with one limit.',
    },
    delay_ms: { type: 'integer', description: 'Allowed, but later: wait this long first (leaky bucket).' },
    request_id: { type: 'string', description: 'With refusals, with permits, with detail, and when you sent one.' },
    source: {
      type: 'string',
      enum: ['store', 'lease', 'local', 'policy'],
      description: 'Who decided, if not the store; with detail always.',
    },
    stale: { type: 'boolean', description: 'Of a dry run: it may be behind, because a replica may have answered.' },
    version: { type: 'integer', description: 'detail: version of the rules that decided.' },
    rules: {
      type: 'array',
      description: 'detail: every limit that was looked at.',
      items: { type: 'object', additionalProperties: true },
    },
    headers: {
      type: 'object',
      description: 'detail: headers to hand on to the client.',
      additionalProperties: { type: 'string' },
    },
  },
  examples: [
    { allowed: true, remaining: 87, limit: 100, reset_at: 1681200060 },
    {
      ...{ allowed: false, remaining: 0, limit: 100, reset_at: 1681200060, retry_after: 42, retry_after_ms: 41200 },
      ...{ rule_id: 'messages_per_min', violated_rule: 'Posting messages, per user', violated_tier: 'per_user' },
      violated_limit: 'default',
    },
  ],
}

export const PROBLEM: Schema = {
  $id: 'Problem',
  type: 'object',
  description: 'RFC 9457 problem document.',
  required: ['type', 'title', 'status', 'code', 'detail'],
  properties: {
    type: { type: 'string' },
    title: { type: 'string' },
    status: { type: 'integer' },
    code: { type: 'string', description: 'One of a closed list, for programs.' },
    detail: { type: 'string', description: 'What happened, for people.' },
    errors: {
      type: 'array',
      description: 'One per mistake.',
      items: {
        type: 'object',
        required: ['field', 'fix'],
        properties: { field: { type: 'string' }, value: {}, fix: { type: 'string' }, line: { type: 'integer' } },
      },
    },
  },
}

/** Answers of a route: what it answers when all is well, and the problems that its callers have to expect. */
export function answers(ok: Schema, ...problems: readonly number[]): NonNullable<FastifySchema['response']> {
  return { 200: '$ref' in ok ? ok : { description: 'All is well.', ...ok }, ...problemAnswers(...problems) }
}

export function problemAnswers(...statuses: readonly number[]): NonNullable<FastifySchema['response']> {
  const content = { 'application/problem+json': { schema: { $ref: 'Problem#' } } }
  return Object.fromEntries(statuses.map((status) => [status, { description: PROBLEM_MEANING[status], content }]))
}

const PROBLEM_MEANING: Readonly<Record<number, string>> = {
  400: 'A field is unknown or wrong; the problem names it, its value and the fix.',
  401: 'The token is missing, not known, revoked or expired.',
  403: 'Not for this caller: the token has another role, or the peer is not a trusted proxy.',
  404: 'Nothing is known by that name.',
  409: 'It cannot be done, or was done already.',
  412: 'It has another version by now; the ETag is the present one.',
  413: 'The body is too large.',
  415: 'The body is not of a type that is understood.',
  429: 'The request is refused; or the token sent too many, or the address too many wrong tokens: see Retry-After.',
  503: 'The counters or the database cannot be reached or read, or this node is shutting down.',
}
