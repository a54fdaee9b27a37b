// What all middlewares share: options in, one question per request out. An adapter adds the translation only.

import { systemTimers } from '../clock.ts'
import type { Decision } from '../decision.ts'
import { headerFacts } from '../http/header-facts.ts'
import { type HttpRequest, type JudgeOptions, subjectOf, type Verdict, verdictOf } from '../http/verdict.ts'
import type { Limiter } from '../limiter.ts'
import { andThen, type Maybe } from '../maybe.ts'
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
 * Undefined: there is nothing to do, the request was skipped or this middleware has judged it already. `raw` stands for
 * the request wherever it goes: the same for every middleware. Answers after the delay that a leaky bucket imposes.
 */
export type Gate<Req> = (request: Req, http: HttpRequest, raw: object) => Maybe<Verdict | undefined>

/** Stands for every client whose address is unknown: they share one limit, because the alternative is no limit. */
const SHARED_ADDRESS = '0.0.0.0'
const TIMER_MS_MAX = 2 ** 31 - 1

/** `appTrusts`: whether the framework itself is told to trust proxies, for requests like this one. */
export function createGate<Req>(options: RateLimitOptions<Req>, appTrusts?: (request: Req) => boolean): Gate<Req> {
  checkOptions(options)
  const limiter = isOwnLimiter(options) ? options.limiter : limiterOf(options)
  const subjectFor = isOwnLimiter(options) ? ownSubject(options) : oneLimitSubject(options)
  const proxies = proxiesOf(options)
  const judging: JudgeOptions = { ...options, refunds: refundsOf(options) }
  const { skip, refusal, trustProxy, timers = systemTimers } = options
  const used = watchUse()
  let asked = false // the framework's setting is read once, with the first request
  const mark: Mark = { limiter, keeps: options.refund === undefined }

  const answer = (decision: Decision, request: Req, http: HttpRequest, raw: object): Maybe<Verdict> => {
    const { allowed, delayMs } = decision
    const verdict = verdictOf(limiter, decision, judging, allowed ? undefined : http.header('accept'))
    if (!allowed) {
      warnOfKept(raw, mark)
      return refusal === undefined
        ? verdict
        : andThen(refusal(decision, request), (said: string | object | undefined) => withRefusal(verdict, said))
    }
    if (delayMs === 0) return verdict
    return new Promise((go) => timers.after(Math.min(delayMs, TIMER_MS_MAX), () => go(verdict)))
  }
  return (request, http, raw) => {
    // A promise is not true: a `skip` that is asynchronous by mistake must not let everybody through.
    if (skip?.(request) === true || isMarked(raw, mark)) return undefined
    used()
    if (trustProxy === undefined) warnOfProxies(http)
    if (!asked) {
      asked = true
      if (trustProxy === undefined && appTrusts?.(request)) warnOnce('SLUICE_APP_PROXY')
    }
    const subject = subjectFor(request, http, subjectOf(http, proxies))
    return andThen(subject, (known) =>
      andThen(limiter.decide(known), (decision) => answer(decision, request, http, raw)),
    )
  }
}

/** Which middlewares have judged a request: each leaves its mark. `keeps`: nothing is said of refunds. */
type Mark = { readonly limiter: Limiter; readonly keeps: boolean }

/** Beside the requests rather than in them: a property more would make each of them grow. */
const marksOf = new WeakMap<object, Mark | readonly Mark[]>()

/** One middleware counts a request once, wherever it is registered. Another one of its limiter is a mistake. */
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

/** Two limiters are not all or nothing: what an earlier one took stays taken when a later one refuses. */
function warnOfKept(raw: object, mark: Mark): void {
  if (wasWarned('SLUICE_UNITS_KEPT')) return
  const others = [marksOf.get(raw) ?? []].flat().filter(({ limiter }) => limiter !== mark.limiter)
  if (others.some(({ keeps }) => keeps)) warnOnce('SLUICE_UNITS_KEPT')
}

/** Completes the facts that the request itself tells. */
type SubjectFor<Req> = (request: Req, http: HttpRequest, told: Subject) => Maybe<Subject>

function ownSubject<Req>({ limiter, subject }: OwnLimiter<Req>): SubjectFor<Req> {
  const headersOf = headerFacts(limiter)
  const checkRules = subject === undefined ? warnOfSubject(limiter) : undefined
  const complete = (facts: Subject | undefined, http: HttpRequest, told: Subject): Subject => {
    const attributes = { ...headersOf(http), ...facts?.attributes }
    // A fact that is looked for and not there does not hide what the request tells.
    const ip = facts?.ip ?? told.ip
    const method = facts?.method ?? told.method
    const path = facts?.path ?? told.path
    if (!ip && !wasWarned('SLUICE_NO_ADDRESS') && limiter.rules.some(({ scope }) => scope.includes('ip'))) {
      warnOnce('SLUICE_NO_ADDRESS')
    }
    return { ...facts, ip, method, path, attributes }
  }
  return (request, http, told) => {
    checkRules?.()
    return andThen(subject?.(request), (facts) => complete(checkedFacts(facts), http, told))
  }
}

/** Facts that only the application knows. */
const SUBJECT_FACTS: readonly string[] = ['user', 'api_key', 'tenant']

/** Warns of rules that skip every request for want of a `subject`. Reads the rules only when they have changed. */
function warnOfSubject(limiter: Limiter): () => void {
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

/** Without a body a refusal would be taken for a request that may go on. */
function withRefusal(verdict: Verdict, said: string | object | undefined): Verdict {
  const isText = typeof said === 'string'
  const body: string | undefined = isText ? said : JSON.stringify(said)
  if (body === undefined) return verdict
  const headers = { ...verdict.headers, 'Content-Type': isText ? 'text/plain; charset=utf-8' : 'application/json' }
  return { ...verdict, headers, body }
}
