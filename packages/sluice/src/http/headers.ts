// Response headers of a decision: X-RateLimit-*, RateLimit and RateLimit-Policy of the IETF draft
// (draft-ietf-httpapi-ratelimit-headers-11), and Retry-After. Times are rounded up, so a client that waits as long as
// they say is never early. Without a matching rule there are no headers.

import { hasPermits } from '../algorithms/traits.ts'
import { RETRY_PARAMETER, readLimits } from '../client/limit-headers.ts'
import { parseList } from '../client/structured-field.ts'
import type { Decision, Outcome } from '../decision.ts'
import { enforced, policyName } from './policy-name.ts'

/**
 * legacy: `X-RateLimit-Limit`, `-Remaining` and `-Reset` (epoch seconds).
 * draft-6: `RateLimit-Limit`, `-Remaining` and `-Reset` (seconds from now).
 * draft-11: `RateLimit` and `RateLimit-Policy`, one item per limit.
 */
export type HeaderStyle = (typeof HEADER_STYLES)[number]

export const HEADER_STYLES = ['legacy', 'draft-6', 'draft-11'] as const

export type HeaderOptions = {
  /** One or several styles, or none. Default: legacy and draft-11. Retry-After is always sent. */
  readonly style?: HeaderStyle | 'none' | readonly HeaderStyle[] | undefined
  /**
   * Adds a random 0 to this many seconds to Retry-After, so that refused clients do not all return at once. Default: 0.
   */
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
/** Each style sends at least one of these. */
const MARKERS = [LEGACY.limit, DRAFT_6.limit, ...LISTS]
const DEFAULT_STYLES: readonly HeaderStyle[] = ['legacy', 'draft-11']

/** Structured field integers have at most 15 digits. */
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

/** At least 1, because clients read 0 as "immediately"; null if allowed, or if waiting will not help. */
export function retryAfterSeconds(decision: Decision, options: HeaderOptions = {}): number | null {
  if (decision.allowed || !isKnown(decision.retryAfterMs)) return null
  const { retryAfterJitterSeconds = 0, random = Math.random } = options
  return Math.max(1, seconds(decision.retryAfterMs)) + Math.floor(random() * (retryAfterJitterSeconds + 1))
}

/**
 * Merges the headers of a decision with those that another limiter already set on the response. Lists of named limits
 * are concatenated. Numbers that cannot be merged (drafts 6 and 7, legacy) are those of one limiter: the one that
 * refuses, or else the scarcer one.
 */
export function joinedHeaders(
  headers: Readonly<HeaderRecord>,
  allowed: boolean,
  present: Present,
): Readonly<HeaderRecord> {
  if (!MARKERS.some((name) => headers[name] !== undefined && present(name) !== undefined)) return headers
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

/** Reads a header that the response already has. */
type Present = (name: string) => string | undefined

/** Drafts 8 to 11 name each limit with a string; draft 7 is a dictionary, and a policy before draft 8 is a number. */
function isNamedList(field: string): boolean {
  return parseList(field)?.every(({ value }) => typeof value === 'string') ?? false
}

/** Whether to keep `RateLimit` and `RateLimit-Policy` of the other limiter. Not if they cannot be read. */
function keepsOtherLists(own: Readonly<HeaderRecord>, present: Present): boolean {
  const other = scarcestShare(present)
  if (other === undefined) return false
  return present('Retry-After') !== undefined || other <= (scarcestShare((name) => own[name]) ?? 1)
}

/** Lowest remaining share among the limits in `RateLimit`; undefined if it cannot be read. */
function scarcestShare(header: Present): number | undefined {
  const lists = LISTS.flatMap((name): [string, string][] => [[name, header(name) ?? '']])
  const { limits } = readLimits(new Headers(lists), 0)
  if (limits.length === 0) return undefined
  return Math.min(...limits.map(({ remaining, quota = remaining }) => remaining / Math.max(1, quota)))
}

/** Next to a Retry-After, the numbers must be those of the limit that refused. */
function keepsOther(own: Readonly<HeaderRecord>, names: TripleNames, present: Present): boolean {
  if (present(names.limit) === undefined) return false
  const share = Number(present(names.remaining)) / Number(present(names.limit))
  return present('Retry-After') !== undefined || !(share > Number(own[names.remaining]) / Number(own[names.limit]))
}

function has(style: NonNullable<HeaderOptions['style']>, one: HeaderStyle): boolean {
  return typeof style === 'string' ? style === one : style.includes(one)
}

/** Numbers of the limit that decided. Reset counts from `originUs`: now for an epoch time, 0 for seconds from now. */
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

/** Omits the window of a concurrency limit: it is the TTL of a permit, not a quota window. */
function policyParameters({ algorithm, limit, windowMs }: Outcome): string {
  const quota = `;q=${integer(limit)}`
  if (hasPermits({ algorithm })) return `${quota};qu="concurrent-requests"`
  return `${quota};w=${integer(Math.max(1, seconds(windowMs)))}`
}

function stateParameters(outcome: Outcome): string {
  const { algorithm, remaining, resetAfterMs, retryAfterMs } = outcome
  const available = `;r=${integer(remaining)}`
  // A permit returns when its request ends, at a time that is not known.
  if (hasPermits({ algorithm }) || !isKnown(resetAfterMs)) return available
  const reset = seconds(resetAfterMs)
  const retry = seconds(retryAfterMs ?? 0)
  const state = `${available};t=${integer(reset)}`
  return retry > 0 && retry < reset ? `${state};${RETRY_PARAMETER}=${integer(retry)}` : state
}

/** An unknown time is `Infinity` in grants and null in decisions. */
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
