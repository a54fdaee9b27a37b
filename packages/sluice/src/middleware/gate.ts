// What all middlewares share: options in, one question per request out. An adapter adds the translation only.

import { type Fault, LimiterError, optionsInvalid } from '../errors.ts'
import { headerFacts } from '../http/header-facts.ts'
import { type HttpRequest, judge, subjectOf, type Verdict } from '../http/verdict.ts'
import { createLimiter, type Limiter } from '../limiter.ts'
import type { Subject } from '../subject.ts'
import {
  checkOptions,
  isOwnLimiter,
  type OneLimit,
  type OwnLimiter,
  proxiesOf,
  type RateLimitOptions,
  windowMs,
} from './options.ts'
import { isOneOfSeveral, warnOnce } from './warning.ts'

/** Undefined: the request was skipped. Answers after the delay that a leaky bucket imposes. */
export type Gate<Req> = (request: Req, http: HttpRequest) => Promise<Verdict | undefined>

/** Stands for every client whose address is unknown: they share one limit, because the alternative is no limit. */
const SHARED_ADDRESS = '0.0.0.0'
const TIMER_MS_MAX = 2 ** 31 - 1

export function createGate<Req>(options: RateLimitOptions<Req>): Gate<Req> {
  checkOptions(options)
  const limiter = isOwnLimiter(options) ? options.limiter : limiterOf(options)
  const subjectFor = isOwnLimiter(options) ? ownSubject(options) : oneLimitSubject(options)
  const proxies = proxiesOf(options)
  const { skip } = options
  return async (request, http) => {
    if (skip?.(request)) return undefined
    const subject = await subjectFor(request, http, subjectOf(http, proxies))
    const verdict = await judge(limiter, subject, options)
    if (verdict.allowed && verdict.decision.delayMs > 0) await delay(verdict.decision.delayMs)
    return verdict
  }
}

/** Completes the facts that the request itself tells. */
type SubjectFor<Req> = (request: Req, http: HttpRequest, told: Subject) => Subject | Promise<Subject>

function ownSubject<Req>({ limiter, subject }: OwnLimiter<Req>): SubjectFor<Req> {
  const headersOf = headerFacts(limiter)
  return async (request, http, told) => {
    const facts = await subject?.(request)
    return { ...told, ...facts, attributes: { ...headersOf(http), ...facts?.attributes } }
  }
}

function oneLimitSubject<Req>({ key }: OneLimit<Req>): SubjectFor<Req> {
  return (request, _http, told) => {
    const user = key?.(request)
    // An empty text names nobody: taken for a fact, it would be skipped as missing, and nothing would be limited.
    if (user) return { ...told, user }
    if (told.ip) return told
    warnOnce('SLUICE_NO_ADDRESS', NO_ADDRESS)
    return { ...told, ip: SHARED_ADDRESS }
  }
}

function limiterOf<Req>(options: OneLimit<Req>): Limiter {
  const { limit, window, algorithm, burst, key, store, ipv6Prefix } = options
  if (store === undefined && isOneOfSeveral()) warnOnce('SLUICE_MEMORY_PER_PROCESS', PER_PROCESS)
  const rule = {
    rule_id: 'default',
    limit,
    window_seconds: windowMs(window) / 1000,
    scope: key === undefined ? 'per_ip' : 'per_user',
    ...(key !== undefined && { on_missing: 'by_ip' }),
    ...(algorithm !== undefined && { algorithm }),
    ...(burst !== undefined && { burst }),
  }
  try {
    return createLimiter({ rules: [rule], store, ipv6Prefix })
  } catch (error) {
    // Numbers that are fine one by one may not go together: only the rule parser knows.
    if (error instanceof LimiterError && error.code === 'RULE_INVALID') throw optionsInvalid(error.faults.map(asOption))
    throw error
  }
}

/** `rules[0].window_seconds` is the `window` of these options. */
function asOption(fault: Fault): Fault {
  return { ...fault, field: fault.field.replace(/^.*\./, '').replace('window_seconds', 'window') }
}

function delay(durationMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.min(durationMs, TIMER_MS_MAX)))
}

const PER_PROCESS =
  'sluice: this is one of several processes, and each counts in its own memory, so clients get the limit in each. ' +
  'Pass a store that they share, redisStore for example.'
const NO_ADDRESS =
  'sluice: the address of a client is unknown, so all such clients share one limit. ' +
  'Pass `key`, or `ip` to the middleware of sluice/fetch.'
