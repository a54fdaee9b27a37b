// Refunds: returns the units of an admitted request, once, on any node. Until the store confirms it, the answer is
// STORE_UNAVAILABLE and a retry is safe.

import { type Limiter, LimiterError } from 'sluice'
import type { Caller } from '../access/roles.ts'
import type { EventPipeline } from '../events/pipeline.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { plainId } from './receipt-ids.ts'
import type { Found, Receipts } from './receipts.ts'

export type RefundBody = { readonly request_id: string; readonly units?: number }
/** `left_out`: limits that were not refunded. */
export type RefundAnswer = { readonly refunded: true; readonly left_out?: readonly string[] }
export type Refund = (body: RefundBody, caller: Caller) => Promise<RefundAnswer>

export type RefundDeps = {
  readonly limiter: Limiter
  readonly receipts: Receipts
  /** Undefined: no sink is configured. */
  readonly events: Pick<EventPipeline, 'recordRefund'> | undefined
}

export function createRefund({ limiter, receipts, events }: RefundDeps): Refund {
  return async ({ request_id: requestId, units }, caller) => {
    const found = await receipts.find(requestId, caller).catch(unconfirmed)
    if (typeof found === 'string') throw notRefundable(requestId, found)
    const { outcome, leftOut } = await limiter.redeem(found.receipt, units).catch(unconfirmed)
    if (outcome !== 'given') throw notRefundable(requestId, outcome)
    events?.recordRefund(plainId(requestId), units, found.position)
    return { refunded: true, ...(leftOut.length === 0 ? {} : { left_out: leftOut.map(readable) }) }
  }
}

type RefundError = Extract<Found, string> | 'repeated' | 'expired' | 'outdated'

const UNREADABLE_FIX = 'send the id exactly as the check returned it; it was altered, or comes from another region'
const UNKNOWN_FIX =
  'use the id of an admitted request; this one may have been refused, a dry run, admitted while Redis was ' +
  'unreachable, too old, or checked with neither request_id nor detail'

const REFUND_ERRORS = {
  unknown: ['REFUND_UNKNOWN', 'No admitted request has this id', UNKNOWN_FIX],
  unreadable: ['REFUND_UNKNOWN', 'This id cannot be decoded', UNREADABLE_FIX],
  foreign: ['FORBIDDEN', 'This request was checked with another token', 'use that token, or an admin token'],
  repeated: ['REFUND_REPEATED', 'This request was already refunded', 'refund each request once'],
  expired: ['REFUND_EXPIRED', 'This request is too old', 'refund sooner, or raise --refund-minutes'],
  outdated: [
    'REFUND_OUTDATED',
    'The limits that this request took from were edited or removed since, or are counted by another node only',
    'nothing can be refunded; if rules are being changed right now, retry in a second',
  ],
} as const

function notRefundable(requestId: string, error: RefundError): ProblemError {
  const [code, detail, fix] = REFUND_ERRORS[error]
  return new ProblemError(problem(code, `${detail}: ${fix}.`, [{ field: 'request_id', value: requestId, fix }]))
}

function unconfirmed(error: unknown): never {
  if (!(error instanceof LimiterError && error.code === 'STORE_UNAVAILABLE')) throw error
  const detail = 'The store did not confirm the refund: retry, it is applied at most once.'
  throw new ProblemError(problem('STORE_UNAVAILABLE', detail))
}

/** Strips the prefixes of sublimits, shadow limits and permits. */
function readable(limitId: string): string {
  return limitId.replace(/^(\d+|pool)%/, '').replace(/^[~!]+/, '')
}
