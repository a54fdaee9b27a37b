// A lightly loaded node: few checks in flight, so that most script calls carry one check. CPU time of Redis per check,
// time inside the script per call (INFO commandstats), and latency seen by the caller.

import { Redis } from 'ioredis'
import { createLimiter } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type Contenders, withIsolated } from '../isolated.ts'
import { alternate, type Contender, median, pairedRatio, resultsOf } from '../measure.ts'
import { type Consumer, flexibleRedis, flexibleUnion, LIMIT, requireRefusal, WINDOW_SECONDS } from '../peers.ts'
import { type RedisServer, readRedis, withRedis } from '../redis-server.ts'
import type { Result, Scenario } from '../report.ts'
import { freshKeys, seeded, uniform } from '../zipf.ts'

const KEYS = 2000
const IN_FLIGHT = [1, 2, 4, 8, 16]
/** The most frequent case is measured longer: its ratios are targets. */
const CALLS_ALONE = 10_000
const CALLS = 2000
const RULES_MANY = 5

const NAMES = [
  'strict, 1 rule',
  'rate-limiter-flexible',
  'strict, 5 rules',
  'RateLimiterUnion of 5',
  'leased, 1 rule',
  'leased, 5 rules',
] as const

export const scenario: Scenario = {
  what: 'rules on Redis, 1 to 16 in flight, 2 k keys',
  targets: {
    redis_cpu_vs_rate_limiter_flexible: { atMost: 1.3 },
    latency_vs_rate_limiter_flexible: { atMost: 1.4 },
    redis_cpu_vs_rate_limiter_flexible_16: { atMost: 0.9 },
  },
  run: ({ rounds = 5 }) =>
    withRedis(NAMES.length, async (servers) => {
      const portOf = (name: (typeof NAMES)[number]) => String((servers[NAMES.indexOf(name)] as RedisServer).port)
      const samples = await withIsolated('./scenarios/redis-quiet.js', NAMES, portOf, (all) =>
        alternate(all, { rounds, warmups: 1 }),
      )
      const { 'strict, 1 rule': strict, 'rate-limiter-flexible': flexible } = samples
      return {
        results: IN_FLIGHT.flatMap((count): Result[] => [
          ...resultsOf(samples, `redis µs @${count}`, `µs of Redis/check, ${count} in flight`),
          ...resultsOf(samples, `script µs @${count}`, `µs of script/call, ${count} in flight`),
          ...resultsOf(samples, `latency µs @${count}`, `µs, median latency, ${count} in flight`),
        ]),
        ratios: {
          redis_cpu_vs_rate_limiter_flexible: pairedRatio(strict, flexible, 'redis µs @1'),
          latency_vs_rate_limiter_flexible: pairedRatio(strict, flexible, 'latency µs @1'),
          redis_cpu_vs_rate_limiter_flexible_16: pairedRatio(strict, flexible, 'redis µs @16'),
        },
      }
    }),
}

export const contenders: Contenders = {
  'strict, 1 rule': (port) => sluice(port, 1, { consistency: 'strict' }),
  'strict, 5 rules': (port) => sluice(port, RULES_MANY, { consistency: 'strict' }),
  'leased, 1 rule': (port) => sluice(port, 1, {}),
  'leased, 5 rules': (port) => sluice(port, RULES_MANY, {}),
  'rate-limiter-flexible': (port) => flexible(port, (client) => flexibleRedis(client)),
  'RateLimiterUnion of 5': (port) => flexible(port, (client) => flexibleUnion(client, RULES_MANY)),
}

async function sluice(port: string, count: number, more: object): Promise<Contender> {
  const store = redisStore(new Redis(Number(port), { lazyConnect: true }), { deadlineMs: 1000 })
  await store.ready()
  const rules = Array.from({ length: count }, (_, number) => {
    return { rule_id: `per_user_${number}`, scope: 'per_user', limit: LIMIT, window_seconds: WINDOW_SECONDS, ...more }
  })
  const limiter = createLimiter({ rules, store })
  return quietLoad(port, (user) => limiter.check({ user, method: 'POST', path: '/api/v1/messages' }))
}

async function flexible(port: string, limiterOf: (client: Redis) => Consumer): Promise<Contender> {
  const client = new Redis(Number(port), { lazyConnect: true })
  await client.connect()
  const limiter = limiterOf(client)
  return quietLoad(port, (key) => limiter.consume(key).catch(requireRefusal))
}

/** Each round measures every number of checks in flight. */
function quietLoad(port: string, check: (key: string) => Promise<unknown>): Contender {
  const redis = readRedis(Number(port))
  const choose = uniform(KEYS, seeded(1))
  return {
    async round() {
      const sample: Record<string, number> = {}
      for (const count of IN_FLIGHT) {
        const keys = freshKeys(count === 1 ? CALLS_ALONE : CALLS, choose)
        globalThis.gc?.()
        const [beforeUs, scriptBefore] = [await redis.cpuUs(), await redis.scripts()]
        const latenciesMs = await inFlight(keys, count, check)
        const [afterUs, scriptAfter] = [await redis.cpuUs(), await redis.scripts()]
        sample[`redis µs @${count}`] = (afterUs - beforeUs) / keys.length
        sample[`script µs @${count}`] = (scriptAfter.us - scriptBefore.us) / (scriptAfter.calls - scriptBefore.calls)
        sample[`latency µs @${count}`] = 1000 * median(latenciesMs)
      }
      return sample
    },
    close: () => redis.close(),
  }
}

async function inFlight(keys: readonly string[], count: number, check: (key: string) => Promise<unknown>) {
  const latenciesMs: number[] = []
  let next = 0
  const worker = async () => {
    for (let key = keys[next++]; key !== undefined; key = keys[next++]) {
      const startedMs = performance.now()
      await check(key)
      latenciesMs.push(performance.now() - startedMs)
    }
  }
  await Promise.all(Array.from({ length: count }, worker))
  return latenciesMs
}
