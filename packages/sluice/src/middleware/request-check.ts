// Core of all middlewares: request → subject → check → response. An adapter only translates to and from its framework.

import { systemTimers } from '../clock.ts'
import type { Decision } from '../decision.ts'
import { type DecisionResponse, type DecisionResponseOptions, responseFromDecision } from '../http/decision-response.ts'
import { headerFacts } from '../http/header-facts.ts'
import { BYPASS_HEADER, type HttpRequest, subjectFromRequest } from '../http/request.ts'
import type { Limiter } from '../limiter-api.ts'
import { andThen, type MaybePromise } from '../maybe-promise.ts'
import type { Subject } from '../subject.ts'
import { warnOnce, wasWarned, watchUse } from '../warning.ts'
import { checkedCost, checkedFacts, checkedKey } from './facts.ts'
import { limiterOf } from './one-limit.ts'
import {
  checkOptions,
  isOwnLimiter,
  type OneLimit,
  type OwnLimiter,
  proxiesOf,
  type RateLimitOptions,
  refundsOf,
} from './options.ts'

/**
 * Undefined: the request was skipped, or this middleware has already checked it. `raw` identifies the request: the same
 * object for every middleware. Resolves after the delay of a leaky bucket.
 */
export type RequestCheck<Req> = (
  request: Req,
  http: HttpRequest,
  raw: object,
) => MaybePromise<DecisionResponse | undefined>

/** Used for clients without a known address: they share one limit, because the alternative is no limit. */
const SHARED_ADDRESS = '0.0.0.0'
const TIMER_MS_MAX = 2 ** 31 - 1

/** `appTrustsProxies`: whether the framework itself is configured to trust proxies. */
export function createRequestCheck<Req>(
  options: RateLimitOptions<Req>,
  appTrustsProxies?: (request: Req) => boolean,
): RequestCheck<Req> {
  checkOptions(options)
  const limiter = isOwnLimiter(options) ? options.limiter : limiterOf(options)
  const subjectFor = isOwnLimiter(options) ? ownSubject(options) : oneLimitSubject(options)
  const proxies = proxiesOf(options)
  const { skip, refusal, trustProxy, headers, clock, timers = systemTimers } = options
  const responseOptions: DecisionResponseOptions = { headers, refunds: refundsOf(options), clock, timers }
  const used = watchUse()
  let appChecked = false // the setting of the framework is read once, with the first request
  const mark: Mark = { limiter, keeps: options.refund === undefined }

  const respond = (
    decision: Decision,
    request: Req,
    http: HttpRequest,
    raw: object,
  ): MaybePromise<DecisionResponse> => {
    const { allowed, delayMs } = decision
    const result = responseFromDecision(limiter, decision, responseOptions, allowed ? undefined : http.header('accept'))
    if (!allowed) {
      warnOfKeptUnits(raw, mark)
      return refusal === undefined
        ? result
        : andThen(refusal(decision, request), (body: string | object | undefined) => withRefusal(result, body))
    }
    if (delayMs === 0) return result
    return new Promise((resolve) => timers.after(Math.min(delayMs, TIMER_MS_MAX), () => resolve(result)))
  }
  return (request, http, raw) => {
    // `=== true`: an async `skip` returns a promise, which must not exempt every request.
    if (skip?.(request) === true || isMarked(raw, mark)) return undefined
    used()
    if (trustProxy === undefined) warnOfProxies(http)
    if (!appChecked) {
      appChecked = true
      if (trustProxy === undefined && appTrustsProxies?.(request)) warnOnce('SLUICE_APP_PROXY')
    }
    const subject = subjectFor(request, http, subjectFromRequest(http, proxies))
    return andThen(subject, (known) =>
      andThen(limiter.decide(known), (decision) => respond(decision, request, http, raw)),
    )
  }
}

/** Mark of a middleware that checked a request. `keeps`: the option `refund` is not set. */
type Mark = { readonly limiter: Limiter; readonly keeps: boolean }

/** A WeakMap, because another property would grow every request object. */
const marksOf = new WeakMap<object, Mark | readonly Mark[]>()

/** A middleware counts a request once, even if it is registered twice. Two with one limiter are a mistake. */
function isMarked(raw: object, mark: Mark): boolean {
  const marks = marksOf.get(raw)
  if (marks === undefined) {
    marksOf.set(raw, mark)
    return false
  }
  const before = [marks].flat()
  if (before.includes(mark)) return true
  if (before.some(({ limiter }) => limiter === mark.limiter)) warnOnce('SLUICE_COUNTED_TWICE')
  marksOf.set(raw, [...before, mark])
  return false
}

/** Two limiters are not all-or-nothing: units taken by the first stay taken if the second refuses. */
function warnOfKeptUnits(raw: object, mark: Mark): void {
  if (wasWarned('SLUICE_UNITS_KEPT')) return
  const others = [marksOf.get(raw) ?? []].flat().filter(({ limiter }) => limiter !== mark.limiter)
  if (others.some(({ keeps }) => keeps)) warnOnce('SLUICE_UNITS_KEPT')
}

/** Completes the facts derived from the request. */
type SubjectFor<Req> = (request: Req, http: HttpRequest, derived: Subject) => MaybePromise<Subject>

function ownSubject<Req>({ limiter, subject, bypassHeader }: OwnLimiter<Req>): SubjectFor<Req> {
  const bypassName = bypassHeader === false ? undefined : (bypassHeader ?? BYPASS_HEADER).toLowerCase()
  const headersOf = headerFacts(limiter)
  const checkRules = subject === undefined ? warnOfMissingSubject(limiter) : undefined
  const complete = (facts: Subject | undefined, http: HttpRequest, derived: Subject): Subject => {
    const attributes = { ...headersOf(http), ...facts?.attributes }
    // An undefined fact does not override the one of the request.
    const ip = facts?.ip ?? derived.ip
    const method = facts?.method ?? derived.method
    const path = facts?.path ?? derived.path
    if (!ip && !wasWarned('SLUICE_NO_ADDRESS') && limiter.rules.some(({ scope }) => scope.includes('ip'))) {
      warnOnce('SLUICE_NO_ADDRESS')
    }
    const bypassToken = facts?.bypassToken ?? (bypassName && http.header(bypassName))
    return { ...facts, ip, method, path, attributes, bypassToken }
  }
  return (request, http, derived) => {
    checkRules?.()
    return andThen(subject?.(request), (facts) => complete(checkedFacts(facts), http, derived))
  }
}

/** Facts that only the application can provide. */
const SUBJECT_FACTS: readonly string[] = ['user', 'api_key', 'tenant']

/** Warns about rules that skip every request because there is no `subject`. Rereads the rules only after a change. */
function warnOfMissingSubject(limiter: Limiter): () => void {
  let rules: Limiter['rules'] | undefined
  return () => {
    if (rules === limiter.rules) return
    rules = limiter.rules
    const skips = rules.some(({ enabled, scope, on_missing }) => {
      return enabled && on_missing === 'skip' && scope.some((fact) => SUBJECT_FACTS.includes(fact))
    })
    if (skips) warnOnce('SLUICE_NO_SUBJECT')
  }
}

function oneLimitSubject<Req>({ key, cost }: OneLimit<Req>): SubjectFor<Req> {
  return (request, _http, { ip, method, path }) => {
    const user = checkedKey(key?.(request))
    const units = checkedCost('cost', cost?.(request))
    if (user === undefined && !ip) warnOnce('SLUICE_NO_ADDRESS')
    return { user, ip: ip || SHARED_ADDRESS, method, path, cost: units }
  }
}

function warnOfProxies({ header }: HttpRequest): void {
  if (wasWarned('SLUICE_UNTRUSTED_PROXY')) return
  if (header('x-forwarded-for') !== undefined || header('forwarded') !== undefined) warnOnce('SLUICE_UNTRUSTED_PROXY')
}

/** Keeps the default body if `refusal` returns none: adapters take a result without a body as allowed. */
function withRefusal(result: DecisionResponse, custom: string | object | undefined): DecisionResponse {
  const isText = typeof custom === 'string'
  const body: string | undefined = isText ? custom : JSON.stringify(custom)
  if (body === undefined) return result
  const headers = { ...result.headers, 'Content-Type': isText ? 'text/plain; charset=utf-8' : 'application/json' }
  return { ...result, headers, body }
}
