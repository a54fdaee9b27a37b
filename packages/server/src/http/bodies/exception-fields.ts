// Fields and answers that the routes of exceptions share.

import type { Approvals } from '../../approvals/approval-table.ts'
import { EXCEPTION_ID } from '../../exceptions/ids.ts'
import { KEY_FIX } from '../../exceptions/key.ts'
import { LIFETIME_FIX } from '../../exceptions/lifetime.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
import { CONTROL, type Schema, text } from './schemas.ts'

export const REQUIRED_REASON: Schema = {
  ...text('Reason, for the audit log.', 'support ticket 4711', 1024),
  'x-fix': 'say why, in 1 to 1024 characters without control characters',
}

export function keyField(description: string, minLength: 0 | 1): Schema {
  return {
    type: 'string',
    description,
    examples: ['user:alice'],
    pattern: `^[^${CONTROL}]{${minLength},1100}$`,
    'x-fix': KEY_FIX,
  }
}

export function lifetimeField(description: string): Schema {
  return {
    type: ['string', 'integer'],
    description,
    examples: ['1h'],
    maxLength: 10,
    'x-fix': LIFETIME_FIX,
  }
}

export const STATE: Schema = {
  type: 'string',
  enum: ['active', 'pending'],
  description: 'pending: waits for approvals and has no effect yet.',
}

/** Query of DELETE routes. */
export const REASON_QUERY: Schema = {
  type: 'object',
  additionalProperties: false,
  properties: { reason: text('Reason, for the audit log.', 'no longer needed', 1024) },
}

export const APPROVAL_ANSWER: Schema = {
  type: 'object',
  required: ['state', 'approvals', 'approvals_required'],
  properties: {
    state: STATE,
    approvals: { type: 'integer', description: 'Approvals that count now.' },
    approvals_required: { type: 'integer' },
  },
}

export type ApprovalAnswer = {
  readonly state: 'active' | 'pending'
  readonly approvals: number
  readonly approvals_required: number
}

export function approvalAnswer({ given, required, enough }: Approvals): ApprovalAnswer {
  return { state: enough ? 'active' : 'pending', approvals: given.length, approvals_required: required }
}

/** Databases reject some characters, so ids of another format are not looked up. */
export function isExceptionId(id: string): boolean {
  return EXCEPTION_ID.test(id)
}

export function noDatabase(things: string): ProblemError {
  const detail = `This node has no database, which holds ${things}: start it without --rules, or use the library.`
  return new ProblemError(problem('NO_DATABASE', detail))
}
