// Cost of a guarded rule change. On Redis: CPU time per check at 5,000 checks a second over 2,000 keys, with the pairs
// that the guard makes then, 50 a second (its first share, 1 %), against none; strict and leased. In memory: checks of
// rules that do not roll out, while another rule does.

import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { createLimiter, type Rollout } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type Contenders, withIsolated } from '../isolated.ts'
import { alternate, type Contender, pairedRatio, resultsOf, type Sample } from '../measure.ts'
import { LIMIT, WINDOW_SECONDS } from '../peers.ts'
import { type RedisServer, readRedis, withRedis } from '../redis-server.ts'
import type { Scenario } from '../report.ts'
import { freshKeys, seeded, uniform } from '../zipf.ts'
import { rounds as roundsOf } from './rules.ts'

const KEYS = 2000
const CHECKS_PER_SECOND = 5000
const PAIRS_PER_SECOND = 50
const SECONDS = 3
const TURN_MS = 5
const CHECKS_PER_TURN = (CHECKS_PER_SECOND * TURN_MS) / 1000
const RULES = 10

const ON_REDIS = ['strict', 'strict, guarded', 'leased', 'leased, guarded'] as const
const IN_MEMORY = ['no rollout', 'another rule rolls out'] as const

export const scenario: Scenario = {
  what: 'a guarded rule change: 50 pairs a second of 5,000 checks; checks of other rules',
  targets: {
    redis_cpu_guarded_over_strict: { atMost: 1.1 },
    redis_cpu_guarded_over_leased: { atMost: 1.1 },
    other_rules_over_none: { atMost: 1.05 },
  },
  run: ({ rounds = 7 }) =>
    withRedis(ON_REDIS.length, async (servers) => {
      const portOf = (name: (typeof ON_REDIS)[number]) => String((servers[ON_REDIS.indexOf(name)] as RedisServer).port)
      const redis = await withIsolated('./scenarios/rollouts.js', ON_REDIS, portOf, (all) =>
        alternate(all, { rounds, warmups: 1 }),
      )
      const memory = await withIsolated('./scenarios/rollouts.js', IN_MEMORY, String, (all) =>
        alternate(all, { rounds: 3 * rounds, warmups: 4 }),
      )
      return {
        results: [...resultsOf(redis, 'redis µs', 'µs of Redis/check'), ...resultsOf(memory, 'ns', 'ns/check')],
        ratios: {
          redis_cpu_guarded_over_strict: pairedRatio(redis['strict, guarded'], redis.strict, 'redis µs'),
          redis_cpu_guarded_over_leased: pairedRatio(redis['leased, guarded'], redis.leased, 'redis µs'),
          other_rules_over_none: pairedRatio(memory['another rule rolls out'], memory['no rollout'], 'ns'),
        },
      }
    }),
}

export const contenders: Contenders = {
  strict: (port) => onRedis(port, 'strict', 0),
  'strict, guarded': (port) => onRedis(port, 'strict', PAIRS_PER_SECOND / CHECKS_PER_SECOND),
  leased: (port) => onRedis(port, 'leased', 0),
  'leased, guarded': (port) => onRedis(port, 'leased', PAIRS_PER_SECOND / CHECKS_PER_SECOND),
  'no rollout': () => roundsOf(RULES, false),
  'another rule rolls out': async () => {
    let applied: Promise<void> | undefined
    const contender = roundsOf(RULES, false, (limiter) => {
      applied = limiter.setRollouts([shadow(OTHER_RULE, 1)])
    })
    await applied
    return contender
  },
}

/** The second rule of the set, which no request matches. */
const OTHER_RULE = {
  ...{ rule_id: 'rule_1', endpoint_pattern: '/v1/things-1', scope: 'per_user' as const },
  ...{ limit: LIMIT, window_seconds: WINDOW_SECONDS },
}

/** A tenth less, evaluated and not enforced. */
function shadow(rule: { readonly rule_id: string }, pairShare: number): Rollout {
  const candidate = { ...rule, limit: 0.9 * LIMIT, burst: undefined }
  return { ruleId: rule.rule_id, salt: '5a17', pairShare, share: 0, candidate }
}

async function onRedis(port: string, consistency: 'strict' | 'leased', pairShare: number): Promise<Contender> {
  const store = redisStore(new Redis(Number(port), { lazyConnect: true }), { deadlineMs: 1000 })
  await store.ready()
  const scope = 'per_user' as const
  const rule = { rule_id: 'per_user', scope, limit: LIMIT, window_seconds: WINDOW_SECONDS, consistency }
  const limiter = createLimiter({ rules: [rule], store })
  if (pairShare > 0) await limiter.setRollouts([shadow(rule, pairShare)])
  const redis = readRedis(Number(port))
  const choose = uniform(KEYS, seeded(1))
  return {
    async round(): Promise<Sample> {
      const keys = freshKeys(SECONDS * CHECKS_PER_SECOND, choose)
      globalThis.gc?.()
      const beforeUs = await redis.cpuUs()
      await paced(keys, (user) => limiter.decide({ user }))
      return { 'redis µs': ((await redis.cpuUs()) - beforeUs) / keys.length }
    },
    close: () => redis.close(),
  }
}

/** Sends CHECKS_PER_TURN checks per turn of at least TURN_MS: the cost depends on the checks per script call. */
async function paced(keys: readonly string[], check: (key: string) => unknown): Promise<void> {
  for (let next = 0; next < keys.length; next += CHECKS_PER_TURN) {
    const turn = keys.slice(next, next + CHECKS_PER_TURN).map(check)
    await Promise.all([sleep(TURN_MS), ...turn])
  }
}
