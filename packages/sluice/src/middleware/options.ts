// Options of all middlewares, validated on creation. An invalid option, or one without effect, throws OPTION_INVALID
// with field, value and fix.

import { WINDOW_US_MAX } from '../algorithms/limit.ts'
import { ALGORITHM_NAMES, type AlgorithmName } from '../algorithms/traits.ts'
import { parseCidr } from '../canonical/cidr.ts'
import type { Clock, Timers } from '../clock.ts'
import type { Decision } from '../decision.ts'
import { type FieldError, optionInvalid, optionsInvalid } from '../errors.ts'
import { HEADER_STYLES, type HeaderOptions } from '../http/headers.ts'
import type { Proxies } from '../http/request.ts'
import { isObject, unknownOption } from '../known-fields.ts'
import type { Limiter } from '../limiter-api.ts'
import { parseDurationMs, windowFix } from '../rules/duration.ts'
import type { Store } from '../store/store.ts'
import type { Subject } from '../subject.ts'

export type CommonOptions<Req> = {
  /** Addresses and ranges of trusted proxies. Default: none. */
  readonly trustProxy?: readonly string[] | undefined
  /** Header in which proxies report the client address. Default: `x-forwarded-for`. */
  readonly proxyHeader?: Proxies['header'] | undefined
  readonly headers?: HeaderOptions | undefined
  /** Returns true for requests that are not limited. */
  readonly skip?: ((request: Req) => boolean) | undefined
  /** Body of a refusal: text, or an object that is sent as JSON. Default: a problem document or text. */
  readonly refusal?: ((decision: Decision, request: Req) => string | object | Promise<string | object>) | undefined
  /** Response statuses that refund the request: `['5xx', 404]`. Default: none. */
  readonly refund?: readonly (number | '3xx' | '4xx' | '5xx')[] | undefined
  /** For tests. */
  readonly clock?: Clock | undefined
  /** For tests. */
  readonly timers?: Timers | undefined
}

/** Short form: one limit for all requests behind the middleware. */
export type OneLimit<Req> = CommonOptions<Req> & {
  /** Requests per window and client. The default token bucket holds this many and refills continuously. */
  readonly limit: number
  /** Duration, as in rules: `500ms`, `30s`, `1m`, `2h`, `1d`. */
  readonly window: string
  readonly algorithm?: AlgorithmName | undefined
  readonly burst?: number | undefined
  /** Returns the key of the client, such as a user id. If undefined, the address is the key. */
  readonly key?: ((request: Req) => string | null | undefined) | undefined
  /** Returns the cost of a request in units. Default: 1. */
  readonly cost?: ((request: Req) => number) | undefined
  /** Name of the limit in headers, unique per store. Default: `default`. */
  readonly name?: string | undefined
  /** Default: in the memory of this process. */
  readonly store?: Store | undefined
  /** Prefix length of IPv6 networks that count as one client. Default: 64. */
  readonly ipv6Prefix?: number | undefined
}

/** Full form: any rules, in a limiter that you create. */
export type OwnLimiter<Req> = CommonOptions<Req> & {
  readonly limiter: Limiter
  /** Returns more facts: user, apiKey, tenant, plan, cost, attributes. They override those of the request. */
  readonly subject?: ((request: Req) => Subject | Promise<Subject>) | undefined
  /** Header with the bypass token of a client; false: none is read. Default: `x-sluice-bypass`. */
  readonly bypassHeader?: string | false | undefined
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
  skip: aFunction('returns true for requests that are not limited'),
  refusal: aFunction('returns a string or an object'),
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
  algorithm: oneOf(ALGORITHM_NAMES),
  burst: { fix: 'must be a whole number, at least 1', accepts: (value) => isWhole(value, 1) },
  key: aFunction('returns the key of the client'),
  cost: aFunction('returns the cost of the request'),
  name: { fix: 'must be 1 to 64 characters of a-z, 0-9, "_", "." and "-"', accepts: isName },
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
    fix: 'must be created by createLimiter',
    accepts: (value) => isObject(value) && typeof value.check === 'function',
  },
  subject: aFunction('returns facts of the request'),
  bypassHeader: {
    fix: 'must be the name of a header, such as "x-sluice-bypass", or false',
    accepts: (value) => value === false || (typeof value === 'string' && /^[!#$%&'*+.^_`|~\w-]+$/.test(value)),
  },
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

/** Names of these options in other libraries. */
const OTHER_NAMES: Readonly<Record<string, string>> = {
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
 * Throws OPTION_INVALID unless the value is an object and not the request of a framework. `call` shows how this
 * framework registers the middleware.
 */
export function requireOptions(
  options: unknown,
  call: string = APP_USE,
): asserts options is Readonly<Record<string, unknown>> {
  if (!isObject(options)) throw optionInvalid('options', options, FORMS)
  // `app.use(rateLimit)`: the framework passes its request. Never printed, because its headers may hold secrets.
  const isRequest = ('method' in options && 'url' in options) || 'req' in options || 'raw' in options
  if (isRequest)
    throw optionInvalid('options', options, `is a request: call rateLimit when you register it, as in ${call}`)
}

/** Throws OPTION_INVALID unless it is a handler: a server that gets `rateLimit(…)` itself passes a request. */
export function requireHandler(field: string, handler: unknown, call: string): void {
  if (typeof handler !== 'function') throw optionInvalid(field, handler, `pass your ${field}, as in ${call}`)
}

/** Throws OPTION_INVALID with one field error per mistake. */
export function checkOptions(options: unknown): void {
  requireOptions(options)
  const own = 'limiter' in options
  const required = own ? ['limiter'] : ['limit', 'window']
  const headers = isObject(options.headers) ? fieldErrorsOf(options.headers, HEADERS, [], 'headers.') : []
  const errors = [...fieldErrorsOf(options, own ? OWN_LIMITER : ONE_LIMIT, required), ...headers]
  if (errors.length > 0) throw optionsInvalid(errors)
}

/** NaN if it is not a duration. */
export function windowMs(window: unknown): number {
  if (typeof window === 'string') return parseDurationMs(window) ?? Number.NaN
  return Number.NaN
}

/** Expects valid options (`checkOptions`). */
export function proxiesOf({ trustProxy = [], proxyHeader = 'x-forwarded-for' }: CommonOptions<never>): Proxies {
  return { trusted: trustProxy.flatMap((text) => parseCidr(text) ?? []), header: proxyHeader }
}

/** Expects valid options (`checkOptions`). */
export function refundsOf({ refund = [] }: CommonOptions<never>): ((status: number) => boolean) | undefined {
  if (refund.length === 0) return undefined
  return (status) => refund.some((one) => one === status || one === `${Math.floor(status / 100)}xx`)
}

function fieldErrorsOf(
  options: Readonly<Record<string, unknown>>,
  checks: Readonly<Record<string, Check>>,
  required: readonly string[],
  prefix = '',
): FieldError[] {
  const given = Object.keys(options).filter((field) => options[field] !== undefined)
  const fields = new Set([...required, ...given])
  return [...fields].flatMap((field) => {
    const check = checks[field] ?? rejected(field, checks)
    const value = options[field]
    return check.accepts(value) ? [] : [{ field: `${prefix}${field}`, value, fix: fixOf(check, value) }]
  })
}

function fixOf({ fix }: Check, value: unknown): string {
  return typeof fix === 'string' ? fix : fix(value)
}

function rejected(field: string, checks: Readonly<Record<string, Check>>): Check {
  return { fix: rejectedFix(field, checks), accepts: () => false }
}

function rejectedFix(field: string, checks: Readonly<Record<string, Check>>): string {
  if (checks === OWN_LIMITER && field in ONE_LIMIT)
    return 'remove it: the rules of the limiter apply; or remove limiter and pass { limit, window }'
  if (checks === ONE_LIMIT && field in OWN_LIMITER)
    return 'remove it: it needs { limiter } instead of { limit, window }; or pass key'
  const name = OTHER_NAMES[field]
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
