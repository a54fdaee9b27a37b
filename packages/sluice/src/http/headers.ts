// The headers of a decision: the X-RateLimit-* that clients know, RateLimit and RateLimit-Policy of the IETF draft
// (draft-ietf-httpapi-ratelimit-headers-11), and Retry-After. Times are rounded up, so that a client that waits as told
// is never early. No rule matched: no headers.

import type { Decision, Outcome } from '../decision.ts'
import { enforced, policyName } from './policy.ts'

export type HeaderOptions = {
  /** `X-RateLimit-Limit`, `-Remaining` and `-Reset` (epoch seconds). Default: true. */
  readonly legacy?: boolean | undefined
  /**
   * list (default): `RateLimit` and `RateLimit-Policy`, one item per limit.
   * triple: `RateLimit-Limit`, `-Remaining` and `-Reset` (seconds to go) of older drafts, for clients that know those.
   */
  readonly standard?: 'list' | 'triple' | 'none' | undefined
  /** Adds 0 to so many whole seconds to Retry-After, so that refused clients do not all return at once. Default: 0. */
  readonly retryAfterJitterSeconds?: number | undefined
  /** 0 ≤ random() < 1; for tests. */
  readonly random?: (() => number) | undefined
}

export type HeaderRecord = Record<string, string>

type TripleNames = { readonly limit: string; readonly remaining: string; readonly reset: string }

const LEGACY: TripleNames = {
  limit: 'X-RateLimit-Limit',
  remaining: 'X-RateLimit-Remaining',
  reset: 'X-RateLimit-Reset',
}
const TRIPLE: TripleNames = { limit: 'RateLimit-Limit', remaining: 'RateLimit-Remaining', reset: 'RateLimit-Reset' }

/** Structured fields have no integers of more than 15 digits. */
const INTEGER_MAX = 999_999_999_999_999

export function rateLimitHeaders(
  decision: Decision,
  nowUs: number,
  options: HeaderOptions = {},
  retryAfter: number | null = retryAfterSeconds(decision, options),
): HeaderRecord {
  const { legacy = true, standard = 'list' } = options
  const headers: HeaderRecord = {}
  if (legacy) addTriple(headers, LEGACY, decision, nowUs)
  if (standard === 'list') addList(headers, enforced(decision))
  if (standard === 'triple') addTriple(headers, TRIPLE, decision, 0)
  if (retryAfter !== null) headers['Retry-After'] = String(retryAfter)
  return headers
}

/** At least 1, so that no client takes it for "at once"; null when allowed, and when waiting will not help. */
export function retryAfterSeconds(decision: Decision, options: HeaderOptions = {}): number | null {
  if (decision.allowed || !isKnown(decision.retryAfterMs)) return null
  const { retryAfterJitterSeconds = 0, random = Math.random } = options
  return Math.max(1, seconds(decision.retryAfterMs)) + Math.floor(random() * (retryAfterJitterSeconds + 1))
}

/** The numbers of the limit that decides. Reset counts from `originUs`: now for an epoch time, 0 for seconds to go. */
function addTriple(headers: HeaderRecord, names: TripleNames, decision: Decision, originUs: number): void {
  const { limit, remaining, resetAfterMs, resetAtMs } = decision
  if (limit === null || remaining === null) return
  headers[names.limit] = integer(limit)
  headers[names.remaining] = integer(remaining)
  if (!isKnown(resetAfterMs)) return
  const resetMs = originUs > 0 && resetAtMs !== null ? resetAtMs : originUs / 1000 + resetAfterMs
  headers[names.reset] = integer(seconds(resetMs))
}

function addList(headers: HeaderRecord, outcomes: readonly Outcome[]): void {
  if (outcomes.length === 0) return
  let policies = ''
  let states = ''
  for (const outcome of outcomes) {
    const name = `${policies === '' ? '' : ', '}${structuredString(policyName(outcome))}`
    policies += `${name}${policyParameters(outcome)}`
    states += `${name}${stateParameters(outcome)}`
  }
  headers['RateLimit-Policy'] = policies
  headers.RateLimit = states
}

/** The window of a concurrency limit is how long a permit lives, not one in which a quota is spent: it is not told. */
function policyParameters({ algorithm, limit, windowMs }: Outcome): string {
  const quota = `;q=${integer(limit)}`
  if (algorithm === 'concurrency') return `${quota};qu="concurrent-requests"`
  return `${quota};w=${integer(Math.max(1, seconds(windowMs)))}`
}

function stateParameters(outcome: Outcome): string {
  const afterMs = effectiveMs(outcome)
  const available = `;r=${integer(outcome.remaining)}`
  return isKnown(afterMs) ? `${available};t=${integer(seconds(afterMs))}` : available
}

/** A limit that refused says when to come back, or Retry-After would point into its window; others, when it is full. */
function effectiveMs({ algorithm, allowed, retryAfterMs, resetAfterMs }: Outcome): number | null {
  if (algorithm === 'concurrency') return null
  return allowed ? resetAfterMs : retryAfterMs
}

/** Stores say `Infinity`, decisions null, where there is no such time. */
function isKnown(value: number | null): value is number {
  return Number.isFinite(value)
}

function seconds(durationMs: number): number {
  return Math.ceil(durationMs / 1000)
}

function integer(value: number): string {
  return String(Math.min(INTEGER_MAX, Math.max(0, Math.floor(value))))
}

function structuredString(text: string): string {
  return /["\\]/.test(text) ? `"${text.replace(/["\\]/g, '\\$&')}"` : `"${text}"`
}
