// One check in memory, 100 k keys by Zipf's law: the bare take of a prepared charge and the full checkSync with matching,
// against the memory stores that people use. Ours answer at once; the peers' promises are awaited, as their users must.

import { compileLimit, createLimiter, memoryStore, type Take, type Taken } from 'sluice'
import { type Contenders, withIsolated } from '../isolated.ts'
import { alternate, type Contender, pairedRatio, resultsOf, type Sample } from '../measure.ts'
import { expressMemory, flexibleMemory, LIMIT, requireRefusal, WINDOW_SECONDS } from '../peers.ts'
import type { Scenario } from '../report.ts'
import { freshKeys, freshText, seeded, zipf } from '../zipf.ts'

const KEYS = 100_000
/** Few enough that collecting the strings of a round does not dominate it. */
const CALLS = 100_000
const NAMES = ['sluice take', 'sluice checkSync', 'rate-limiter-flexible', 'express-rate-limit'] as const

export const scenario: Scenario = {
  what: 'one check in memory, 100 k Zipf keys',
  targets: {
    take_vs_rate_limiter_flexible: { atLeast: 8 },
    take_vs_express_rate_limit: { atLeast: 2 },
    check_vs_rate_limiter_flexible: { atLeast: 4 },
    check_vs_express_rate_limit: { atLeast: 1 },
  },
  async run({ rounds = 15 }) {
    const samples = await withIsolated('./scenarios/memory.js', NAMES, String, (all) =>
      alternate(all, { rounds, warmups: 5 }),
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

export const contenders: Contenders = {
  'sluice take': () => {
    const store = memoryStore()
    const windowUs = WINDOW_SECONDS * 1_000_000
    const limit = compileLimit({ id: 'per_user', fact: 'user', algorithm: 'token_bucket', units: LIMIT, windowUs })
    return rounds((keys) => {
      const takes = keys.map((owner): Take => {
        return { charges: [{ limit, owner, detail: '', min: 1, max: 1, kind: 'enforce' }] }
      })
      return () => {
        let admitted = 0
        for (const take of takes) if ((store.take(take) as Taken).granted) admitted += 1
        return admitted
      }
    })
  },

  'sluice checkSync': () => {
    const limiter = createLimiter({ rules: RULES })
    return rounds((keys) => {
      const paths = keys.map(() => freshText('/api/v1/messages')) // a request line brings a new path as well
      return () => {
        let admitted = 0
        for (let call = 0; call < keys.length; call++) {
          const decision = limiter.checkSync({ user: keys[call], method: 'POST', path: paths[call] })
          if (decision?.allowed) admitted += 1
        }
        return admitted
      }
    })
  },

  'rate-limiter-flexible': () => {
    const limiter = flexibleMemory()
    return rounds((keys) => async () => {
      let admitted = 0
      for (const key of keys) {
        try {
          await limiter.consume(key)
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
    return rounds((keys) => async () => {
      let admitted = 0
      for (const key of keys) if ((await store.increment(key)).totalHits <= LIMIT) admitted += 1
      return admitted
    })
  },
}

/** A small rule set as a service might have it; of these, only the first matches the requests. */
const RULES = [
  { rule_id: 'per_user', endpoint_pattern: '/api/v1/messages', method: 'POST', scope: 'per_user' },
  { rule_id: 'reads', endpoint_pattern: '/api/v1/messages', method: 'GET', scope: 'per_user' },
  { rule_id: 'uploads', endpoint_pattern: '/api/v1/files/*', method: ['POST', 'PUT'], scope: 'per_user' },
  { rule_id: 'login', endpoint_pattern: '/login', method: 'POST', scope: 'per_ip' },
  { rule_id: 'admin', endpoint_pattern: '/admin/**', scope: 'per_api_key' },
].map((rule) => ({ ...rule, limit: LIMIT, window_seconds: WINDOW_SECONDS }))

/** Each round prepares what it needs with new keys, collects the heap, and only then looks at the clock. */
function rounds(prepare: (keys: readonly string[]) => () => number | Promise<number>): Contender {
  const choose = zipf(KEYS, seeded(1))
  return {
    async round(): Promise<Sample> {
      const run = prepare(freshKeys(CALLS, choose))
      globalThis.gc?.()
      const startedMs = performance.now()
      const admitted = await run()
      const ns = ((performance.now() - startedMs) * 1e6) / CALLS
      return { ns, admitted: admitted / CALLS }
    },
  }
}
