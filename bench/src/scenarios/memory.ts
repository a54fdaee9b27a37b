// One check in memory with 100 k Zipf-distributed keys: the take of a prepared charge, and checkSync with matching,
// compared with popular memory stores. Ours are synchronous; the promises of the others are awaited, as applications
// must.

import { compileLimit, createLimiter, memoryStore, type Take, type Taken } from 'sluice'
import { type Contenders, withIsolated } from '../isolated.ts'
import { alternate, type Contender, pairedRatio, resultsOf, type Sample } from '../measure.ts'
import { expressMemory, flexibleMemory, LIMIT, requireRefusal, WINDOW_SECONDS } from '../peers.ts'
import type { Scenario } from '../report.ts'
import { Stopwatch } from '../stopwatch.ts'
import { freshKey, freshText, seeded, zipf } from '../zipf.ts'

const KEYS = 100_000
const CALLS = 100_000
const BATCH = 500
const NAMES = ['sluice take', 'sluice checkSync', 'rate-limiter-flexible', 'express-rate-limit'] as const

export const scenario: Scenario = {
  what: 'one check in memory, 100 k Zipf keys',
  targets: {
    take_vs_rate_limiter_flexible: { atLeast: 8 },
    take_vs_express_rate_limit: { atLeast: 2 },
    check_vs_rate_limiter_flexible: { atLeast: 4 },
    check_vs_express_rate_limit: { atLeast: 1 },
  },
  async run({ rounds = 11 }) {
    const samples = await withIsolated('./scenarios/memory.js', NAMES, String, (all) =>
      alternate(all, { rounds, warmups: 4 }),
    )
    const times = (peer: 'rate-limiter-flexible' | 'express-rate-limit', ours: 'sluice take' | 'sluice checkSync') =>
      pairedRatio(samples[peer], samples[ours], 'ns')
    return {
      results: resultsOf(samples, 'ns', 'ns/check'),
      ratios: {
        take_vs_rate_limiter_flexible: times('rate-limiter-flexible', 'sluice take'),
        take_vs_express_rate_limit: times('express-rate-limit', 'sluice take'),
        check_vs_rate_limiter_flexible: times('rate-limiter-flexible', 'sluice checkSync'),
        check_vs_express_rate_limit: times('express-rate-limit', 'sluice checkSync'),
      },
    }
  },
}

/** Keeps the last decision alive: V8 discards optimized code when a collection finds no object of its shape. */
export let lastAnswer: unknown

export const contenders: Contenders = {
  'sluice take': () => {
    const store = memoryStore()
    const windowUs = WINDOW_SECONDS * 1_000_000
    const limit = compileLimit({ id: 'per_user', fact: 'user', algorithm: 'token_bucket', units: LIMIT, windowUs })
    const prepare = (owner: string): Take => {
      return { charges: [{ limit, owner, detail: '', min: 1, max: 1, kind: 'enforce' }] }
    }
    return rounds(prepare, (takes) => {
      let admitted = 0
      for (const take of takes) {
        const taken = store.take(take) as Taken
        if (taken.granted) admitted += 1
        lastAnswer = taken
      }
      return admitted
    })
  },

  'sluice checkSync': () => {
    const limiter = createLimiter({ rules: RULES })
    const prepare = (user: string) => ({ user, path: freshText('/api/v1/messages') }) // both come from the request
    return rounds(prepare, (requests) => {
      let admitted = 0
      for (const { user, path } of requests) {
        const decision = limiter.checkSync({ user, method: 'POST', path })
        if (decision?.allowed) admitted += 1
        lastAnswer = decision
      }
      return admitted
    })
  },

  'rate-limiter-flexible': () => {
    const limiter = flexibleMemory()
    return rounds(String, async (keys) => {
      let admitted = 0
      for (const key of keys) {
        try {
          lastAnswer = await limiter.consume(key)
          admitted += 1
        } catch (rejection) {
          requireRefusal(rejection)
        }
      }
      return admitted
    })
  },

  'express-rate-limit': () => {
    const store = expressMemory()
    return rounds(String, async (keys) => {
      let admitted = 0
      for (const key of keys) {
        const client = await store.increment(key)
        if (client.totalHits <= LIMIT) admitted += 1
        lastAnswer = client
      }
      return admitted
    })
  },
}

/** Small but realistic rule set; only the first rule matches the requests. */
export const RULES: readonly object[] = [
  { rule_id: 'per_user', endpoint_pattern: '/api/v1/messages', method: 'POST', scope: 'per_user' },
  { rule_id: 'reads', endpoint_pattern: '/api/v1/messages', method: 'GET', scope: 'per_user' },
  { rule_id: 'uploads', endpoint_pattern: '/api/v1/files/*', method: ['POST', 'PUT'], scope: 'per_user' },
  { rule_id: 'login', endpoint_pattern: '/login', method: 'POST', scope: 'per_ip' },
  { rule_id: 'admin', endpoint_pattern: '/admin/**', scope: 'per_api_key' },
].map((rule) => ({ ...rule, limit: LIMIT, window_seconds: WINDOW_SECONDS }))

/**
 * A round begins with a collected heap. Inputs of a batch are created before the clock is read, so that they are warm
 * in the caches, as after a read from a socket.
 */
function rounds<T>(prepare: (key: string) => T, run: (batch: readonly T[]) => number | Promise<number>): Contender {
  const choose = zipf(KEYS, seeded(1))
  const watch = new Stopwatch()
  return {
    async round(): Promise<Sample> {
      const ids = Uint32Array.from({ length: CALLS }, choose)
      globalThis.gc?.()
      let ms = 0
      let admitted = 0
      for (let first = 0; first < CALLS; first += BATCH) {
        const batch: T[] = []
        for (const id of ids.subarray(first, first + BATCH)) batch.push(prepare(freshKey(id)))
        watch.start()
        const count = run(batch)
        admitted += typeof count === 'number' ? count : await count
        watch.stop()
        ms += watch.ownMs
      }
      return { ns: (ms * 1e6) / CALLS, admitted: admitted / CALLS }
    },
  }
}
