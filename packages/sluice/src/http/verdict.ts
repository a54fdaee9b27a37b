// The core of every middleware: request → subject → check → verdict. An adapter only translates its framework's request
// into an HttpRequest and the verdict into its framework's response.

import { type Clock, systemClock } from '../clock.ts'
import type { Decision } from '../decision.ts'
import type { Limiter } from '../limiter.ts'
import type { Subject } from '../subject.ts'
import type { Cidr } from './cidr.ts'
import { clientAddress } from './client-address.ts'
import { type HeaderOptions, type HeaderRecord, rateLimitHeaders, retryAfterSeconds } from './headers.ts'
import { canonicalPath } from './path.ts'
import { PROBLEM_TYPE, type QuotaExceeded, quotaExceeded } from './problem.ts'

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
  /** The problem document of a refusal; its media type is among the headers. */
  readonly body: QuotaExceeded | undefined
  readonly decision: Decision
  /** Call it when the response has ended: it releases the permits of concurrency limits. Never throws, works once. */
  done(): void
}

export type JudgeOptions = { readonly headers?: HeaderOptions | undefined; readonly clock?: Clock | undefined }

/** The facts that a request itself tells. Who the user is, the application knows. */
export function subjectOf(request: HttpRequest, proxies: Proxies = NO_PROXIES): Subject {
  return { ip: addressOf(request, proxies), method: request.method, path: canonicalPath(request.url) }
}

export async function judge(limiter: Limiter, subject: Subject, options: JudgeOptions = {}): Promise<Verdict> {
  const decision = await limiter.check(subject)
  const { headers: headerOptions, clock = systemClock } = options
  const retryAfter = retryAfterSeconds(decision, headerOptions)
  const headers = rateLimitHeaders(decision, clock.nowUs(), headerOptions, retryAfter)
  const done = releaseOnce(limiter, decision)
  if (decision.allowed) return { allowed: true, status: 200, headers, body: undefined, decision, done }
  headers['Content-Type'] = PROBLEM_TYPE
  return { allowed: false, status: 429, headers, body: quotaExceeded(decision, retryAfter), decision, done }
}

/** Whether something is held until `done`: an adapter can spare itself the listening otherwise. */
export function holdsPermit(decision: Decision): boolean {
  return decision.allowed && decision.outcomes.some((outcome) => outcome.algorithm === 'concurrency')
}

function addressOf({ peer, header }: HttpRequest, proxies: Proxies): string | undefined {
  if (proxies.trusted.length === 0) return peer
  const value = header(proxies.header)
  const connection = proxies.header === 'forwarded' ? { peer, forwarded: value } : { peer, forwardedFor: value }
  return clientAddress(connection, proxies.trusted)
}

function releaseOnce(limiter: Limiter, decision: Decision): () => void {
  let held = holdsPermit(decision)
  return () => {
    if (!held) return
    held = false
    // A release that fails is not retried and not reported here: the permit expires by itself.
    limiter.release(decision).catch(() => {})
  }
}
