// Throttles guesses of bypass tokens. A valid token is recognised before the throttle runs, so guesses from an address
// never affect the valid tokens behind it. Has its own limiter and memory store, apart from the buckets of clients.

import { type Clock, createLimiter, type Decision, type Limiter, memoryStore, type Subject, systemClock } from 'sluice'
import { canonicalAddress } from 'sluice/http'

/** Rule that refusals of guesses name. */
export const GUESS_RULE_ID = 'bypass_guesses'
const RULE = {
  rule_id: GUESS_RULE_ID,
  scope: 'per_user',
  algorithm: 'sliding_window' as const,
  limit: 30,
  window_seconds: 60,
}
const KEYS_MAX = 100_000

export class GuessThrottle {
  readonly #limiter: Limiter
  #refused = 0

  constructor(clock: Clock = systemClock) {
    this.#limiter = createLimiter({ rules: [RULE], store: memoryStore({ clock, maxKeys: KEYS_MAX }), clock })
  }

  /** Counts a guess by the address of its client, else by its user or API key. Returns a refusal after too many. */
  guessed({ ip, user, apiKey }: Subject): Decision | undefined {
    const address = ip === undefined ? undefined : (canonicalAddress(ip) ?? ip)
    const client = address ?? user ?? apiKey
    if (client === undefined) return undefined
    const decision = this.#limiter.checkSync({ user: client }) as Decision // the memory store is synchronous
    if (decision.allowed) return undefined
    this.#refused += 1
    return decision
  }

  /** Requests refused so far. */
  get refused(): number {
    return this.#refused
  }
}
