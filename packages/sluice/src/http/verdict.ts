// The core of every middleware: request → subject → check → verdict. An adapter only translates its framework's request
// into an HttpRequest and the verdict into its framework's response.

import { type Clock, systemTimers, type Timers, wallClock } from '../clock.ts'
import type { Decision } from '../decision.ts'
import type { Limiter } from '../limiter.ts'
import type { Subject } from '../subject.ts'
import { prefersText } from './accept.ts'
import type { Cidr } from './cidr.ts'
import { clientAddress } from './client-address.ts'
import { type HeaderOptions, type HeaderRecord, rateLimitHeaders, retryAfterSeconds } from './headers.ts'
import { pathEnd } from './path.ts'
import { PROBLEM_TYPE, quotaExceeded } from './problem.ts'

export type HttpRequest = {
  readonly method: string
  /** The request target or the whole URL. */
  readonly url: string
  /** The address at the other end of the connection. */
  readonly peer: string | undefined
  /** The value of a header by its lower-case name; several lines joined by commas. */
  readonly header: (name: string) => string | undefined
}

/** Which proxies are believed, and in which header they say who the client is. */
export type Proxies = { readonly trusted: readonly Cidr[]; readonly header: 'x-forwarded-for' | 'forwarded' }

export const NO_PROXIES: Proxies = { trusted: [], header: 'x-forwarded-for' }

export type Verdict = {
  readonly allowed: boolean
  /** 200 stands for "go on": the application's own status is what the client sees. */
  readonly status: 200 | 429
  readonly headers: Readonly<HeaderRecord>
  /** What a refusal says; its media type is among the headers. */
  readonly body: string | undefined
  readonly decision: Decision
  /** Whether `done` has anything to do: an adapter can spare itself the listening otherwise. */
  readonly settles: boolean
  /**
   * Call it when the response has ended, with its status: permits are released, and a status that is refunded gives
   * back what was taken. Never throws, works once.
   */
  done(status?: number): void
}

export type JudgeOptions = {
  readonly headers?: HeaderOptions | undefined
  /** Whether a response of this status gives back what its request took. */
  readonly refunds?: ((status: number) => boolean) | undefined
  readonly clock?: Clock | undefined
  readonly timers?: Timers | undefined
}

const SLASH = 47
/** A permit is renewed so often in its life: two renewals may fail. */
const RENEWALS = 3

/** The facts that a request itself tells. Who the user is, the application knows. */
export function subjectOf(request: HttpRequest, proxies: Proxies = NO_PROXIES): Subject {
  return { ip: addressOf(request, proxies), method: request.method, path: pathOf(request.url) }
}

/** `accept` is the client's Accept header: it chooses between a problem document and a text. */
export async function judge(
  limiter: Limiter,
  subject: Subject,
  options: JudgeOptions = {},
  accept?: string | undefined,
): Promise<Verdict> {
  return verdictOf(limiter, await limiter.check(subject), options, accept)
}

/** What a decision of this limiter means for a request. */
export function verdictOf(
  limiter: Limiter,
  decision: Decision,
  options: JudgeOptions,
  accept: string | undefined,
): Verdict {
  const { headers: headerOptions, clock = wallClock } = options
  if (decision.allowed) {
    const headers = rateLimitHeaders(decision, clock.nowUs(), headerOptions, null)
    const settles = options.refunds !== undefined || holdsPermit(decision)
    const done = settles ? settlement(limiter, decision, options) : nothing
    return { allowed: true, status: 200, headers, body: undefined, decision, settles, done }
  }
  const retryAfter = retryAfterSeconds(decision, headerOptions)
  const headers = rateLimitHeaders(decision, clock.nowUs(), headerOptions, retryAfter)
  const document = quotaExceeded(decision, retryAfter)
  const text = prefersText(accept)
  headers['Content-Type'] = text ? 'text/plain; charset=utf-8' : PROBLEM_TYPE
  const body = text ? `${document.title}. ${document.detail}\n` : JSON.stringify(document)
  return { allowed: false, status: 429, headers, body, decision, settles: false, done: nothing }
}

/** Whether something is held until the response has ended. */
export function holdsPermit(decision: Decision): boolean {
  return decision.allowed && decision.outcomes.some((outcome) => outcome.algorithm === 'concurrency')
}

function addressOf({ peer, header }: HttpRequest, proxies: Proxies): string | undefined {
  if (proxies.trusted.length === 0) return peer
  const value = header(proxies.header)
  const connection = proxies.header === 'forwarded' ? { peer, forwarded: value } : { peer, forwardedFor: value }
  return clientAddress(connection, proxies.trusted)
}

/** As it was sent, for the rules to read in every way; without the query, or each would be a path of its own. */
function pathOf(url: string): string {
  return url.charCodeAt(0) === SLASH ? url.slice(0, pathEnd(url, 0)) : url
}

/** Holds the permits of a request, for as long as it takes, until it is told that the response has ended. */
function settlement(limiter: Limiter, decision: Decision, options: JudgeOptions): Verdict['done'] {
  const { refunds, timers = systemTimers } = options
  const stopRenewing = renewing(limiter, decision, timers)
  let settled = false
  return (status) => {
    if (settled) return
    settled = true
    stopRenewing()
    const refunded = status !== undefined && refunds?.(status) === true
    // What fails here is not retried and not reported: a permit expires by itself, and a refund is a kindness.
    ;(refunded ? limiter.give(decision) : limiter.release(decision)).catch(nothing)
  }
}

function renewing(limiter: Limiter, decision: Decision, timers: Timers): () => void {
  const permits = decision.outcomes.filter(({ algorithm }) => algorithm === 'concurrency')
  if (permits.length === 0) return nothing
  const lifeMs = Math.min(...permits.map(({ windowMs }) => windowMs))
  return timers.every(Math.ceil(lifeMs / RENEWALS), () => void limiter.renew(decision).catch(nothing))
}

function nothing(): void {}
