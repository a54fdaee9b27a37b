// Schemas of all bodies: they validate requests, and /openapi.json is generated from them. `x-fix` is the fix that an
// error reports for the field.

import type { FastifySchema } from 'fastify'
import { ADDRESS_FIX, METHOD_FIX } from '../../checks/check-body.ts'
import { NAME_FIX } from '../../problems/schema-errors.ts'
import { UNPRINTABLE } from '../../text/escaped.ts'

export const CHECKS_MAX = 1000
/** Time for which the checks of a batch may block the event loop. */
export const BATCH_SLICE_MS = 5
/** Checks of a batch that always share a round trip to the store, however slow the process is. */
export const BATCH_TOGETHER = 16
export const CHECK_BYTES_MAX: number = 64 * 1024
export const BATCH_BYTES_MAX: number = 2 * 1024 * 1024

export type Schema = Readonly<Record<string, unknown>>

// An unpaired surrogate has no UTF-8 encoding: two such keys could become one in Redis.
export const CONTROL = '\\u0000-\\u001f\\u007f-\\u009f\\ud800-\\udfff'
const COST_MAX = 1_000_000_000

function key(description: string, example: string): Schema {
  return {
    type: 'string',
    description,
    examples: [example],
    pattern: `^[^${CONTROL}{}]{1,1024}$`,
    'x-fix': 'give 1 to 1024 characters without control characters, "{" and "}"',
  }
}

/** Name, reason or other text that people enter and read. */
export function text(description: string, example: string, maxLength: number): Schema {
  return {
    ...fact(description, example, maxLength),
    pattern: `^[^${UNPRINTABLE}]{1,${maxLength}}$`,
    'x-fix': `give 1 to ${maxLength} characters without control characters and direction overrides`,
  }
}

/** Fact of a client, which may be any text that a check accepts. */
export function fact(description: string, example: string, maxLength: number): Schema {
  return {
    type: 'string',
    description,
    examples: [example],
    pattern: `^[^${CONTROL}]{1,${maxLength}}$`,
    'x-fix': `give 1 to ${maxLength} characters without control characters`,
  }
}

/** Reason for a change that does not edit rules. */
export const REASON: Schema = text('Reason for the change, for the audit log.', 'blocks all users in Spain', 1024)

function flag(description: string): Schema {
  return { type: 'boolean', description, 'x-fix': 'use true or false' }
}

const ATTRIBUTES: Schema = {
  type: 'object',
  description: 'Other facts that rules use, by name.',
  examples: [{ 'header.x-client': 'mobile', country: 'NL' }],
  maxProperties: 32,
  propertyNames: { pattern: `^(?!__proto__$)[^${CONTROL}]{1,128}$`, 'x-fix': NAME_FIX },
  additionalProperties: {
    type: ['string', 'number', 'boolean'],
    pattern: `^[^${CONTROL}]{0,1024}$`,
    'x-fix': 'give a number, true, false or a string of at most 1024 characters without control characters',
  },
  'x-fix': 'give an object with at most 32 names; its values are strings, numbers, true or false',
}

export const CHECK_BODY: Schema & { readonly properties: Readonly<Record<string, Schema>> } = {
  type: 'object',
  description: 'The facts of one request. All are optional: a rule that needs an absent one follows its on_missing.',
  additionalProperties: false,
  properties: {
    client_id: key('User: the fact of rules with scope per_user.', 'user_12345'),
    endpoint: {
      type: 'string',
      description: 'Path of the request; a query string is ignored.',
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
    api_key: key('API key of the client: the fact of rules with scope per_api_key.', 'k_live_9'),
    tenant: key('Organisation of the client: the fact of rules with scope per_tenant.', 'acme'),
    plan: key('Plan of the client: selects its by_plan limits.', 'pro'),
    cost: {
      type: 'integer',
      description: 'Cost of the request in units; default 1.',
      examples: [1],
      minimum: 1,
      maximum: COST_MAX,
      'x-fix': `give a whole number from 1 to ${COST_MAX}`,
    },
    bypass_token: {
      type: 'string',
      description: 'Bypass token that the client sent. One that is unknown or expired is ignored.',
      maxLength: 1024,
      'x-fix': 'give the token as the client sent it, at most 1024 characters',
    },
    attributes: ATTRIBUTES,
    dry_run: flag('Decide without consuming anything.'),
    request_id: key('Client-chosen id, for refunds and for the permits of concurrency rules.', 'req-8f14e'),
    detail: flag('Add every checked limit and the response headers for the client.'),
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
      description: 'Checks, decided in this order, independently of each other.',
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
    request_id: key('The request_id of the check or of its answer.', 'req-8f14e'),
    units: {
      type: 'integer',
      description: 'Units to return to each limit. Default: all. 0 only releases concurrency permits.',
      examples: [1],
      minimum: 0,
      maximum: COST_MAX,
      'x-fix': `give a whole number from 0 to ${COST_MAX}`,
    },
  },
  'x-fix': 'send a JSON object with a request_id',
}

/** Query parameter `limit` of lists. */
export function limitQuery({ default: usual, max }: { default: number; max: 1000 }): Schema {
  const limit = {
    type: 'string',
    description: `Maximum number of items, from 1 to ${max}. Default: ${usual}.`,
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
  description: 'Numbers of the deciding limit; null when no rule matched.',
  properties: {
    allowed: { type: 'boolean' },
    remaining: { ...count, description: 'Units left after this request.' },
    limit: { ...count, description: 'Units per window.' },
    reset_at: {
      ...count,
      description:
        'Epoch seconds, rounded up. Refused: when the same request passes; null when waiting will not help. ' +
        'Allowed: when the limit is full again.',
    },
    retry_after: { ...count, description: 'Refused: seconds to wait, at least 1; null when waiting will not help.' },
    retry_after_ms: { ...count, description: 'Refused: the same in milliseconds.' },
    rule_id: { type: 'string', description: 'Refused: the rule.' },
    violated_rule: { type: 'string', description: 'Refused: the name of the rule, or its id.' },
    violated_tier: { type: 'string', description: 'Refused: the scope of the rule, such as per_user.' },
    violated_limit: {
      type: 'string',
      description: 'Refused: the limit of the rule, such as 1m; default for a rule with one limit.',
    },
    delay_ms: { type: 'integer', description: 'Allowed after a delay: wait this long first (leaky bucket).' },
    request_id: {
      type: 'string',
      description: 'Present if the check sent one, in refusals, with permits and with detail.',
    },
    source: {
      type: 'string',
      enum: ['store', 'lease', 'local', 'policy'],
      description: 'Source of the decision. Omitted if it is the store, except with detail.',
    },
    stale: { type: 'boolean', description: 'Dry run: read from a replica, which may lag.' },
    version: { type: 'integer', description: 'With detail: version of the rules.' },
    full_at: { ...count, description: 'With detail: epoch seconds at which the limit is full again, rounded up.' },
    rules: {
      type: 'array',
      description: 'With detail: every checked limit.',
      items: { type: 'object', additionalProperties: true },
    },
    status: { type: 'integer', description: 'Refused by a ban with this status, 403, for the response to the client.' },
    override_id: { type: 'string', description: 'Refused: the override that bans the key.' },
    exceptions: {
      type: 'array',
      description: 'With detail: overrides, signals, global factor and bypass that changed the decision.',
      items: { type: 'object', additionalProperties: true },
    },
    headers: {
      type: 'object',
      description: 'With detail: response headers for the client.',
      additionalProperties: { type: 'string' },
    },
  },
  examples: [
    { allowed: true, remaining: 87, limit: 100, reset_at: 1681200060 },
    {
      ...{ allowed: false, remaining: 0, limit: 100, reset_at: 1681200042, retry_after: 42, retry_after_ms: 41200 },
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
    code: { type: 'string', description: 'Error code from a fixed list, for programs.' },
    detail: { type: 'string', description: 'Explanation for people.' },
    errors: {
      type: 'array',
      description: 'One entry per invalid field.',
      items: {
        type: 'object',
        required: ['field', 'fix'],
        properties: { field: { type: 'string' }, value: {}, fix: { type: 'string' }, line: { type: 'integer' } },
      },
    },
  },
}

/** Responses of a route: success, and the problems that callers must handle. */
export function answers(ok: Schema, ...problems: readonly number[]): NonNullable<FastifySchema['response']> {
  return { 200: '$ref' in ok ? ok : { description: 'Success.', ...ok }, ...problemAnswers(...problems) }
}

export function problemAnswers(...statuses: readonly number[]): NonNullable<FastifySchema['response']> {
  const content = { 'application/problem+json': { schema: { $ref: 'Problem#' } } }
  return Object.fromEntries(statuses.map((status) => [status, { description: PROBLEM_MEANING[status], content }]))
}

const PROBLEM_MEANING: Readonly<Record<number, string>> = {
  400: 'A field is unknown or invalid; the problem names it, its value and the fix.',
  401: 'The token is missing, unknown, revoked or expired.',
  403: 'The token lacks the role, or may not do this.',
  404: 'Not found.',
  409: 'Not possible in the current state, or already done.',
  412: 'The version has changed; the ETag is the current one.',
  413: 'The body is too large.',
  415: 'The media type of the body is not supported.',
  429: 'Refused; or this token has too many requests, streams, simulations or texts, or this address invalid tokens.',
  503: 'The store or the database is unreachable, or this node is busy or shutting down.',
}
