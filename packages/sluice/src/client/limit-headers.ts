// Parses rate limit headers of any generation: the lists of drafts 8 to 11, the dictionary of draft 7, the three fields
// of draft 6 and earlier, and X-RateLimit-* as sent by GitHub, OpenAI, Anthropic and others. Uses the newest generation
// that it can parse, and ignores malformed headers.

import { parseDateMs, untilMs } from './reset-time.ts'
import { type Item, parseDictionary, parseList, type Value } from './structured-field.ts'

export type ReportedLimit = {
  /** Name of the policy or resource, or `default`. */
  readonly name: string
  /** `requests`, or another unit: `tokens`, `content-bytes`, … */
  readonly unit: string
  /** Units per window. */
  readonly quota: number | undefined
  readonly remaining: number
  /** Time until the limit is full again or, in a refusal, until the call is admitted. */
  readonly resetMs: number | undefined
  /** Time until the same call is admitted again, if it would not be now, and if that is earlier than `resetMs`. */
  readonly retryMs?: number | undefined
  readonly windowMs: number | undefined
}

export type ReportedLimits = {
  readonly limits: readonly ReportedLimit[]
  /** Wait that the server requested. */
  readonly retryAfterMs: number | undefined
}

/**
 * Parameter of an item of `RateLimit` whose limit is exhausted but not full again at once: whole seconds, rounded up,
 * until it admits the same request. Drafts 8 to 11 allow parameters with the prefix of a vendor.
 */
export const RETRY_PARAMETER = 'sluice-retry-after'

const LIMITS_MAX = 32
const NOTHING: ReportedLimits = { limits: [], retryAfterMs: undefined }

/** Groups of three headers per name, which is a prefix in one dialect and a suffix in the others. */
const TRIPLES = [
  /^ratelimit()-(limit|remaining|reset)()$/,
  /^anthropic-ratelimit-([\w-]+)-(limit|remaining|reset)()$/,
  /^x-rate-?limit()-(limit|remaining|reset)(?:-([\w-]+))?$/,
] as const

/** `nowMs` is the wall clock, used only if the response has no Date: clocks differ. */
export function readLimits(headers: Headers, nowMs: number): ReportedLimits {
  // A cached response has the numbers of an earlier request.
  if (Number(headers.get('age')) > 0) return NOTHING
  const serverMs = parseDateMs(headers.get('date') ?? '') ?? nowMs
  for (const read of [listed, inDictionary, ...TRIPLES.map(inTriples)]) {
    const limits = read(headers, serverMs)
    if (limits.length > 0) return { limits: limits.slice(0, LIMITS_MAX), retryAfterMs: retryAfterMs(headers, serverMs) }
  }
  return { limits: [], retryAfterMs: retryAfterMs(headers, serverMs) }
}

function retryAfterMs(headers: Headers, serverMs: number): number | undefined {
  const exactMs = /^\d{1,12}(?:\.\d{1,9})?$/.exec(headers.get('retry-after-ms') ?? '')
  if (exactMs !== null) return Number(exactMs[0])
  return untilMs(headers.get('retry-after') ?? '', serverMs)
}

type Reader = (headers: Headers, serverMs: number) => ReportedLimit[]

/** Draft 8 to 11: `RateLimit: "default";r=50;t=30` and `RateLimit-Policy: "default";q=100;w=60`. */
function listed(headers: Headers): ReportedLimit[] {
  const policies = new Map(policiesOf(headers).map(({ value, params }) => [value, params]))
  return (parseList(headers.get('ratelimit') ?? '') ?? []).flatMap(({ value: name, params }) => {
    const remaining = whole(params.get('r'))
    const resetMs = secondsMs(params.get('t'))
    if (typeof name !== 'string' || remaining === undefined || (params.has('t') && resetMs === undefined)) return []
    const policy = policies.get(name)
    const unit = policy?.get('qu')
    return {
      name,
      unit: typeof unit === 'string' ? unit : 'requests',
      quota: whole(policy?.get('q')),
      remaining,
      resetMs,
      retryMs: secondsMs(params.get(RETRY_PARAMETER)),
      windowMs: secondsMs(policy?.get('w')),
    }
  })
}

/** Draft 7: `RateLimit: limit=100, remaining=50, reset=5`. */
function inDictionary(headers: Headers): ReportedLimit[] {
  const fields = parseDictionary(headers.get('ratelimit') ?? '')
  const remaining = whole(fields?.get('remaining')?.value)
  if (remaining === undefined) return []
  const quota = whole(fields?.get('limit')?.value)
  const resetMs = secondsMs(fields?.get('reset')?.value)
  return [{ name: 'default', unit: 'requests', quota, remaining, resetMs, windowMs: windowMs(headers, quota) }]
}

type Triple = { limit?: string; remaining?: string; reset?: string }

function inTriples(pattern: RegExp): Reader {
  return (headers, serverMs) => {
    const triples = new Map<string, Triple>()
    for (const [header, text] of headers) {
      const [, prefix, field, suffix] = pattern.exec(header) ?? []
      if (field === undefined) continue
      const name = prefix || suffix || headers.get('x-ratelimit-resource') || 'default'
      triples.set(name, { ...triples.get(name), [field]: text })
    }
    return [...triples].flatMap(([name, { limit = '', remaining = '', reset = '' }]) => {
      const left = leadingNumber(remaining)
      if (left === undefined) return []
      const quota = leadingNumber(limit)
      const unit = /(?:tokens|bytes)$/.test(name) ? name : 'requests'
      const resetMs = untilMs(reset, serverMs)
      return { name, unit, quota, remaining: Math.floor(left), resetMs, windowMs: windowMs(headers, quota) }
    })
  }
}

/** Before draft 8, the quota identifies a policy: `RateLimit-Policy: 100;w=60, 1000;w=3600`. */
function windowMs(headers: Headers, quota: number | undefined): number | undefined {
  const policy = quota === undefined ? undefined : policiesOf(headers).find(({ value }) => value === quota)
  return secondsMs(policy?.params.get('w'))
}

function policiesOf(headers: Headers): readonly Item[] {
  return parseList(headers.get('ratelimit-policy') ?? '') ?? []
}

/** Early drafts append policies to the limit: `100, 100;w=60`. */
function leadingNumber(text: string): number | undefined {
  const [, digits] = /^(\d{1,15}(?:\.\d{1,9})?)\s*(?:[,;]|$)/.exec(text) ?? []
  return digits === undefined ? undefined : Number(digits)
}

function whole(value: Value): number | undefined {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 ? value : undefined
}

function secondsMs(value: Value): number | undefined {
  const seconds = whole(value)
  return seconds === undefined ? undefined : seconds * 1000
}
