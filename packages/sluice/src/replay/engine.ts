// One rule set on a memory store of its own, driven by the clock of the replay. Counts refusals per rule.

import type { Clock } from '../clock.ts'
import type { Decision } from '../decision.ts'
import { createLimiter } from '../limiter.ts'
import type { Limiter } from '../limiter-api.ts'
import type { Rule } from '../rules/rule.ts'
import { memoryStore } from '../store/memory.ts'
import type { Store } from '../store/store.ts'
import type { RecordedCheck } from './recorded-request.ts'

/** Up to 43 MB per rule set. */
const KEYS_MAX = 1_000_000

export type EngineOptions = {
  readonly layer?: 'edge' | 'service' | undefined
  readonly ipv6Prefix?: number | undefined
  /** Rules to leave out. */
  readonly disabled: readonly string[]
}

export class VirtualClock implements Clock {
  us = 0
  nowUs(): number {
    return this.us
  }
}

export type RuleCounts = { refused: number; firstUs: number; lastUs: number }

/** One rule set, replayed. */
export class Engine {
  readonly limiter: Limiter
  readonly #store: Store
  readonly #shadows: boolean
  readonly #counts = new Map<string, RuleCounts>()

  constructor(rules: readonly Rule[], clock: Clock, { layer, ipv6Prefix, disabled }: EngineOptions) {
    const named = [...new Set(rules.map(({ store }) => store))]
    // Only a node knows its named stores and regions; here, all buckets are in one memory store.
    this.#store = Object.assign(memoryStore({ clock, maxKeys: KEYS_MAX }), { named, refusesSpread: () => undefined })
    this.limiter = createLimiter({ rules, store: this.#store, clock, layer, ipv6Prefix })
    this.#shadows = rules.some(({ mode, enabled }) => mode === 'shadow' && enabled)
    this.limiter.disable(disabled)
  }

  get overflowed(): number {
    return this.#store.stats?.().overflowed ?? 0
  }

  decide({ subject, requestId, atUs }: RecordedCheck): Decision {
    const decision = this.limiter.checkSync(subject, requestId) as Decision // the memory store is synchronous
    if (!decision.allowed && decision.ruleId !== null) this.count(decision.ruleId, atUs)
    if (this.#shadows) this.#countShadows(decision, atUs)
    return decision
  }

  count(ruleId: string, atUs: number): void {
    const counts = this.#counts.get(ruleId)
    if (counts === undefined) {
      this.#counts.set(ruleId, { refused: 1, firstUs: atUs, lastUs: atUs })
      return
    }
    counts.refused += 1
    counts.lastUs = atUs
  }

  of(ruleId: string): RuleCounts | undefined {
    return this.#counts.get(ruleId)
  }

  #countShadows({ outcomes }: Decision, atUs: number): void {
    let last = '' // a rule with several limits counts once
    for (const { mode, allowed, ruleId } of outcomes) {
      if (mode !== 'shadow' || allowed || ruleId === last) continue
      this.count(ruleId, atUs)
      last = ruleId
    }
  }
}
