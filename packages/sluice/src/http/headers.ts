// The headers of a decision: the X-RateLimit-* that clients know, RateLimit and RateLimit-Policy of the IETF draft
// (draft-ietf-httpapi-ratelimit-headers-11), and Retry-After. Times are rounded up, so that a client that waits as told
// is never early. No rule matched: no headers.

import { parseList } from '../client/structured-field.ts'
import { readLimits } from '../client/told-limits.ts'
import type { Decision, Outcome } from '../decision.ts'
import { enforced, policyName } from './policy.ts'

/**
 * legacy: `X-RateLimit-Limit`, `-Remaining` and `-Reset` (epoch seconds).
 * draft-6: `RateLimit-Limit`, `-Remaining` and `-Reset` (seconds to go).
 * draft-11: `RateLimit` and `RateLimit-Policy`, one item per limit.
 */
export type HeaderStyle = (typeof HEADER_STYLES)[number]

export const HEADER_STYLES = ['legacy', 'draft-6', 'draft-11'] as const

export type HeaderOptions = {
  /** One, several or none of the styles. Default: legacy and draft-11. Retry-After is sent in any case. */
  readonly style?: HeaderStyle | 'none' | readonly HeaderStyle[] | undefined
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
const DRAFT_6: TripleNames = { limit: 'RateLimit-Limit', remaining: 'RateLimit-Remaining', reset: 'RateLimit-Reset' }

const TRIPLES = [LEGACY, DRAFT_6]
const LISTS = ['RateLimit-Policy', 'RateLimit']
/** Headers by which a limiter of any style is known. */
const TOLD = [LEGACY.limit, DRAFT_6.limit, ...LISTS]
const DEFAULT_STYLES: readonly HeaderStyle[] = ['legacy', 'draft-11']

/** Structured fields have no integers of more than 15 digits. */
const INTEGER_MAX = 999_999_999_999_999

export function rateLimitHeaders(
  decision: Decision,
  nowUs: number,
  options: HeaderOptions = {},
  retryAfter: number | null = retryAfterSeconds(decision, options),
): HeaderRecord {
  const { style = DEFAULT_STYLES } = options
  const headers: HeaderRecord = {}
  if (has(style, 'legacy')) addTriple(headers, LEGACY, decision, nowUs)
  if (has(style, 'draft-11')) addList(headers, enforced(decision))
  if (has(style, 'draft-6')) addTriple(headers, DRAFT_6, decision, 0)
  if (retryAfter !== null) headers['Retry-After'] = String(retryAfter)
  return headers
}

/** At least 1, so that no client takes it for "at once"; null when allowed, and when waiting will not help. */
export function retryAfterSeconds(decision: Decision, options: HeaderOptions = {}): number | null {
  if (decision.allowed || !isKnown(decision.retryAfterMs)) return null
  const { retryAfterJitterSeconds = 0, random = Math.random } = options
  return Math.max(1, seconds(decision.retryAfterMs)) + Math.floor(random() * (retryAfterJitterSeconds + 1))
}

/**
 * The headers of a verdict on a response that has some of another limiter already. Lists of named limits are joined.
 * Numbers that cannot be joined, which are those of drafts 6 and 7 and the legacy ones, stand for one limiter: the
 * scarcer, or the one that refuses.
 */
export function joinedHeaders(
  headers: Readonly<HeaderRecord>,
  allowed: boolean,
  present: Present,
): Readonly<HeaderRecord> {
  if (!TOLD.some((name) => headers[name] !== undefined && present(name) !== undefined)) return headers
  const joined = { ...headers }
  const isJoinable = LISTS.every((name) => isNamedList(present(name) ?? ''))
  for (const name of LISTS) {
    const [own, other] = [headers[name], present(name)]
    if (own !== undefined && isJoinable && other) joined[name] = `${other}, ${own}`
  }
  if (allowed && !isJoinable && keepsOtherLists(headers, present)) for (const name of LISTS) delete joined[name]
  for (const names of TRIPLES) {
    if (allowed && keepsOther(headers, names, present)) for (const name of Object.values(names)) delete joined[name]
  }
  return joined
}

/** A header that the response has already. */
type Present = (name: string) => string | undefined

/** Drafts 8 to 11 name each limit with a string; draft 7 has a dictionary, and a policy before draft 8 is a number. */
function isNamedList(field: string): boolean {
  return parseList(field)?.every(({ value }) => typeof value === 'string') ?? false
}

/** Whether `RateLimit` and `RateLimit-Policy` stay those of the other limiter. Without numbers, they do not. */
function keepsOtherLists(own: Readonly<HeaderRecord>, present: Present): boolean {
  const other = scarcestShare(present)
  if (other === undefined) return false
  return present('Retry-After') !== undefined || other <= (scarcestShare((name) => own[name]) ?? 1)
}

/** The lowest share left of the limits that `RateLimit` tells of; undefined when it cannot be read. */
function scarcestShare(told: Present): number | undefined {
  const lists = LISTS.flatMap((name): [string, string][] => [[name, told(name) ?? '']])
  const { limits } = readLimits(new Headers(lists), 0)
  if (limits.length === 0) return undefined
  return Math.min(...limits.map(({ remaining, quota = remaining }) => remaining / Math.max(1, quota)))
}

/** Beside a Retry-After stand the numbers of the limit that refused. */
function keepsOther(own: Readonly<HeaderRecord>, names: TripleNames, present: Present): boolean {
  if (present(names.limit) === undefined) return false
  const share = Number(present(names.remaining)) / Number(present(names.limit))
  return present('Retry-After') !== undefined || !(share > Number(own[names.remaining]) / Number(own[names.limit]))
}

function has(style: NonNullable<HeaderOptions['style']>, one: HeaderStyle): boolean {
  return typeof style === 'string' ? style === one : style.includes(one)
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
