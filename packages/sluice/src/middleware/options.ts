// The options of every middleware, checked once when it is created: a mistake is an OPTION_INVALID that names the
// field, the value and the fix, and an option that would do nothing is a mistake.

import { ALGORITHMS, type AlgorithmName, WINDOW_US_MAX } from '../algorithms/limit.ts'
import type { Clock, Timers } from '../clock.ts'
import type { Decision } from '../decision.ts'
import { type Fault, optionInvalid, optionsInvalid } from '../errors.ts'
import { parseCidr } from '../http/cidr.ts'
import { HEADER_STYLES, type HeaderOptions } from '../http/headers.ts'
import type { Proxies } from '../http/verdict.ts'
import { isObject, unknownOption } from '../known-fields.ts'
import type { Limiter } from '../limiter.ts'
import { parseDurationMs, windowFix } from '../rules/duration.ts'
import type { Store } from '../store/store.ts'
import type { Subject } from '../subject.ts'

export type CommonOptions<Req> = {
  /** Addresses and ranges of the proxies whose forwarding header is believed. Default: none. */
  readonly trustProxy?: readonly string[] | undefined
  /** The header that those proxies write. Default: `x-forwarded-for`. */
  readonly proxyHeader?: Proxies['header'] | undefined
  readonly headers?: HeaderOptions | undefined
  /** True: the request is not limited at all. */
  readonly skip?: ((request: Req) => boolean) | undefined
  /** What a refusal says: a text, or an object that is sent as JSON. Default: a problem document, or a text. */
  readonly refusal?: ((decision: Decision, request: Req) => string | object | Promise<string | object>) | undefined
  /** Statuses whose responses give back what they took: `['5xx', 404]`. Default: none. */
  readonly refund?: readonly (number | '3xx' | '4xx' | '5xx')[] | undefined
  /** For tests. */
  readonly clock?: Clock | undefined
  /** For tests. */
  readonly timers?: Timers | undefined
}

/** The form for people in a hurry: one limit for everything behind the middleware. */
export type OneLimit<Req> = CommonOptions<Req> & {
  /** Requests per window, for each client. A token bucket, the default, holds this many and refills meanwhile. */
  readonly limit: number
  /** A duration, as in rules: `500ms`, `30s`, `1m`, `2h`, `1d`. */
  readonly window: string
  readonly algorithm?: AlgorithmName | undefined
  readonly burst?: number | undefined
  /** Who the client is, a user for example. Undefined, and without a key, it is the address. */
  readonly key?: ((request: Req) => string | null | undefined) | undefined
  /** What a request is worth. Default: 1. */
  readonly cost?: ((request: Req) => number) | undefined
  /** What the limit is called in headers. Limits on one store need different names. Default: `default`. */
  readonly name?: string | undefined
  /** Where the counters live. Default: in the memory of this process. */
  readonly store?: Store | undefined
  /** Addresses of one IPv6 network count as one client. Default: 64. */
  readonly ipv6Prefix?: number | undefined
}

/** Any rules, in a limiter of your own. */
export type OwnLimiter<Req> = CommonOptions<Req> & {
  readonly limiter: Limiter
  /** Facts beyond address, method and path: user, apiKey, tenant, plan, cost, attributes. They win over those. */
  readonly subject?: ((request: Req) => Subject | Promise<Subject>) | undefined
}

export type RateLimitOptions<Req> = OneLimit<Req> | OwnLimiter<Req>

type Check = {
  readonly fix: string | ((value: unknown) => string)
  readonly accepts: (value: unknown) => boolean
}

const COMMON: Readonly<Record<string, Check>> = {
  trustProxy: {
    fix: 'must be a list of addresses and CIDR ranges, such as ["10.0.0.0/8"]; true and hop counts can be spoofed',
    accepts: (value) => Array.isArray(value) && value.every((text) => typeof text === 'string' && parseCidr(text)),
  },
  proxyHeader: oneOf(['x-forwarded-for', 'forwarded']),
  headers: { fix: 'must be an object of header options', accepts: isObject },
  skip: aFunction('returns true for requests to let through'),
  refusal: aFunction('returns a text or an object'),
  refund: { fix: 'must be a list of statuses such as ["5xx", 404]', accepts: isStatusList },
  clock: { fix: 'must be a Clock', accepts: (value) => isObject(value) && typeof value.nowUs === 'function' },
  timers: { fix: 'must be Timers', accepts: (value) => isObject(value) && typeof value.every === 'function' },
}

const ONE_LIMIT: Readonly<Record<string, Check>> = {
  limit: { fix: 'must be a whole number of requests', accepts: (value) => isWhole(value, 0) },
  window: {
    fix: windowFix,
    accepts: (value) => isWhole(windowMs(value), 1) && windowMs(value) <= WINDOW_US_MAX / 1000,
  },
  algorithm: oneOf(ALGORITHMS),
  burst: { fix: 'must be a whole number, at least 1', accepts: (value) => isWhole(value, 1) },
  key: aFunction('returns who the client is'),
  cost: aFunction('returns what the request is worth'),
  name: { fix: 'must be 1 to 64 of a-z, 0-9, "_", "." and "-"', accepts: isName },
  store: {
    fix: 'must be a store: memoryStore() or redisStore(client)',
    accepts: (value) => isObject(value) && typeof value.take === 'function',
  },
  ipv6Prefix: {
    fix: 'must be a number of bits from 1 to 128',
    accepts: (value) => isWhole(value, 1) && Number(value) <= 128,
  },
  ...COMMON,
}

const OWN_LIMITER: Readonly<Record<string, Check>> = {
  limiter: {
    fix: 'must be made by createLimiter',
    accepts: (value) => isObject(value) && typeof value.check === 'function',
  },
  subject: aFunction('returns facts of the request'),
  ...COMMON,
}

const HEADERS: Readonly<Record<string, Check>> = {
  style: {
    fix: `must be one or a list of ${HEADER_STYLES.join(', ')}, or none`,
    accepts: (value) => value === 'none' || (Array.isArray(value) ? value.every(isStyle) : isStyle(value)),
  },
  retryAfterJitterSeconds: { fix: 'must be a whole number of seconds', accepts: (value) => isWhole(value, 0) },
  random: aFunction('returns a number from 0 to 1'),
}

const FORMS = 'must be { limit, window } or { limiter }'
const APP_USE = 'app.use(rateLimit({ limit, window }))'

/** What other libraries call it. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  max: 'limit',
  windowMs: 'window',
  timeWindow: 'window',
  ttl: 'window',
  keyGenerator: 'key',
  identifier: 'name',
  message: 'refusal',
  handler: 'refusal',
  skipFailedRequests: 'refund',
}

export function isOwnLimiter<Req>(options: RateLimitOptions<Req>): options is OwnLimiter<Req> {
  return 'limiter' in options
}

/**
 * Throws OPTION_INVALID for values that cannot be options: no object, or the request of a framework. `call` shows how
 * this framework registers the middleware.
 */
export function requireOptions(
  options: unknown,
  call: string = APP_USE,
): asserts options is Readonly<Record<string, unknown>> {
  if (!isObject(options)) throw optionInvalid('options', options, FORMS)
  // `app.use(rateLimit)`: the framework hands its request over. Requests have headers, so nothing of it is printed.
  const isRequest = ('method' in options && 'url' in options) || 'req' in options || 'raw' in options
  if (isRequest)
    throw optionInvalid('options', options, `is a request: call rateLimit when you register it, as in ${call}`)
}

/** Throws OPTION_INVALID unless a handler was passed: a server that is given `rateLimit(…)` itself passes a request. */
export function requireHandler(field: string, handler: unknown, call: string): void {
  if (typeof handler !== 'function') throw optionInvalid(field, handler, `pass your ${field}, as in ${call}`)
}

/** Throws OPTION_INVALID with one fault per mistake. */
export function checkOptions(options: unknown): void {
  requireOptions(options)
  const own = 'limiter' in options
  const required = own ? ['limiter'] : ['limit', 'window']
  const headers = isObject(options.headers) ? faultsOf(options.headers, HEADERS, [], 'headers.') : []
  const faults = [...faultsOf(options, own ? OWN_LIMITER : ONE_LIMIT, required), ...headers]
  if (faults.length > 0) throw optionsInvalid(faults)
}

/** NaN for what is not a duration. */
export function windowMs(window: unknown): number {
  if (typeof window === 'string') return parseDurationMs(window) ?? Number.NaN
  return Number.NaN
}

/** Call it with options that `checkOptions` has accepted. */
export function proxiesOf({ trustProxy = [], proxyHeader = 'x-forwarded-for' }: CommonOptions<never>): Proxies {
  return { trusted: trustProxy.flatMap((text) => parseCidr(text) ?? []), header: proxyHeader }
}

/** Call it with options that `checkOptions` has accepted. */
export function refundsOf({ refund = [] }: CommonOptions<never>): ((status: number) => boolean) | undefined {
  if (refund.length === 0) return undefined
  return (status) => refund.some((one) => one === status || one === `${Math.floor(status / 100)}xx`)
}

function faultsOf(
  options: Readonly<Record<string, unknown>>,
  checks: Readonly<Record<string, Check>>,
  required: readonly string[],
  prefix = '',
): Fault[] {
  const given = Object.keys(options).filter((field) => options[field] !== undefined)
  const fields = new Set([...required, ...given])
  return [...fields].flatMap((field) => {
    const check = checks[field] ?? refused(field, checks)
    const value = options[field]
    return check.accepts(value) ? [] : [{ field: `${prefix}${field}`, value, fix: fixOf(check, value) }]
  })
}

function fixOf({ fix }: Check, value: unknown): string {
  return typeof fix === 'string' ? fix : fix(value)
}

function refused(field: string, checks: Readonly<Record<string, Check>>): Check {
  return { fix: refusedFix(field, checks), accepts: () => false }
}

function refusedFix(field: string, checks: Readonly<Record<string, Check>>): string {
  if (checks === OWN_LIMITER && field in ONE_LIMIT)
    return 'remove it: the rules of the limiter decide; or remove limiter and pass { limit, window }'
  if (checks === ONE_LIMIT && field in OWN_LIMITER)
    return 'remove it: it needs { limiter } instead of { limit, window }; or pass key'
  const name = ELSEWHERE[field]
  return name === undefined ? unknownOption(field, Object.keys(checks)) : `is called ${name} here`
}

function aFunction(purpose: string): Check {
  return { fix: `must be a function that ${purpose}`, accepts: (value) => typeof value === 'function' }
}

function oneOf(texts: readonly string[]): Check {
  return { fix: `must be one of ${texts.join(', ')}`, accepts: (value) => texts.some((text) => text === value) }
}

function isWhole(value: unknown, least: number): boolean {
  return Number.isSafeInteger(value) && Number(value) >= least
}

function isStatusList(value: unknown): boolean {
  const isStatus = (one: unknown) => (isWhole(one, 100) && Number(one) < 600) || /^[345]xx$/.test(String(one))
  return Array.isArray(value) && value.every(isStatus)
}

function isStyle(value: unknown): boolean {
  return HEADER_STYLES.some((style) => style === value)
}

function isName(value: unknown): boolean {
  return typeof value === 'string' && /^[a-z0-9_.-]{1,64}$/.test(value)
}
