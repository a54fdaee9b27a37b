// Rate limits of the admin endpoints. They have their own limiter and memory store: they stop runaway scripts and token
// guessing without touching the buckets of clients.

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
    rule_id: 'invalid_tokens',
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
    this.#check({ user: callerId, path: '/requests' }, 'This token has sent too many requests')
  }

  /** Counts an invalid token. Throws after too many from this address. */
  invalidToken(address: string): void {
    this.#check({ ip: address, path: '/attempts' }, 'Too many invalid tokens from this address')
  }

  #check(subject: { user?: string; ip?: string; path: string }, detail: string): void {
    const decision = this.#limiter.checkSync(subject) as Decision // the memory store is synchronous
    if (decision.allowed) return
    const seconds = String(retryAfterSeconds(decision))
    throw new ProblemError(problem('TOO_MANY_REQUESTS', `${detail}: wait ${seconds} s.`), { 'retry-after': seconds })
  }
}
