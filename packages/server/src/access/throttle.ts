// Admin endpoints are limited by the engine they administer, with a store of its own: neither a runaway script nor
// somebody who guesses tokens gets far, and neither touches the counters of clients.

import { type Clock, createLimiter, type Decision, type Limiter, memoryStore } from 'sluice'
import { retryAfterSeconds } from 'sluice/http'
import { ProblemError, problem } from '../problems/problem.ts'

const RULES = [
  {
    rule_id: 'admin_requests',
    endpoint_pattern: '/requests',
    scope: 'per_user',
    limit: 50,
    window_seconds: 1,
    burst: 500,
  },
  {
    rule_id: 'wrong_tokens',
    endpoint_pattern: '/attempts',
    scope: 'per_ip',
    algorithm: 'sliding_window',
    limit: 20,
    window_seconds: 60,
  },
]
const KEYS_MAX = 100_000

export class Throttle {
  readonly #limiter: Limiter

  constructor(clock: Clock) {
    this.#limiter = createLimiter({ rules: RULES, store: memoryStore({ clock, maxKeys: KEYS_MAX }), clock })
  }

  /** Throws when this caller has sent too many requests. */
  request(callerId: string): void {
    this.#pass({ user: callerId, path: '/requests' }, 'This token has sent too many requests')
  }

  /** Counts a wrong token, and throws when there were too many from this address. */
  wrongToken(address: string): void {
    this.#pass({ ip: address, path: '/attempts' }, 'Too many wrong tokens came from this address')
  }

  #pass(subject: { user?: string; ip?: string; path: string }, complaint: string): void {
    const decision = this.#limiter.checkSync(subject) as Decision // its store is in memory and answers at once
    if (decision.allowed) return
    const seconds = String(retryAfterSeconds(decision))
    throw new ProblemError(problem('TOO_MANY_REQUESTS', `${complaint}: wait ${seconds} s.`), { 'retry-after': seconds })
  }
}
