// Load for the Redis scenarios, the same for every contender: one process, one connection, 200 checks in flight, 100 k
// uniformly distributed keys by default. The first round uses each key once, so that later rounds find all of them.

import { Redis } from 'ioredis'
import { createLimiter, type Limiter } from 'sluice'
import { type RedisClient, redisStore } from 'sluice/redis'
import type { Contender, Sample } from './measure.ts'
import { type Consumer, LIMIT, requireRefusal, WINDOW_SECONDS } from './peers.ts'
import { clientOf } from './redis-cluster.ts'
import { everyId, freshKeys, seeded, uniform } from './zipf.ts'

export const KEYS = 100_000
const IN_FLIGHT = 200

/** Sluice with `rules` strict rules per user; every request matches all of them. */
export async function sluiceOnRedis(ports: string, calls: number, rules: number): Promise<Contender> {
  const limiter = await strictLimiter(clientOf(ports), rules)
  return inFlight(calls, (take) => checkAll(limiter, take))
}

/** Uses one store per check in flight, all over one connection, so that nothing is batched. */
export async function sluiceUnbatched(port: string, calls: number): Promise<Contender> {
  const client = new Redis(Number(port), { lazyConnect: true })
  client.setMaxListeners(IN_FLIGHT + 10)
  Object.assign(client, { duplicate: () => client }) // all stores share one connection
  const limiters = await Promise.all(Array.from({ length: IN_FLIGHT }, () => strictLimiter(client, 1)))
  let turn = 0
  return inFlight(calls, (take) => {
    turn = (turn + 1) % IN_FLIGHT
    return checkAll(limiters[turn] as Limiter, take) // one per check in flight
  })
}

async function strictLimiter(client: RedisClient, rules: number): Promise<Limiter> {
  const store = redisStore(client, { leases: false, deadlineMs: 0 }) // every check waits for Redis, without a deadline
  await store.ready()
  return createLimiter({ rules: Array.from({ length: rules }, (_, number) => strictRule(number)), store })
}

async function checkAll(limiter: Limiter, take: () => string | undefined): Promise<number> {
  let admitted = 0
  for (let user = take(); user !== undefined; user = take()) {
    const decision = await limiter.check({ user, method: 'POST', path: '/api/v1/messages' })
    if (decision.allowed) admitted += 1
  }
  return admitted
}

/** rate-limiter-flexible on an ioredis client with its default settings, which are its fastest here. */
export async function flexibleOnRedis(
  port: string,
  calls: number,
  limiterOf: (client: Redis) => Consumer,
  choose?: () => number,
): Promise<Contender> {
  const client = new Redis(Number(port), { lazyConnect: true })
  await client.connect()
  const limiter = limiterOf(client)
  return inFlight(
    calls,
    async (take) => {
      let admitted = 0
      for (let key = take(); key !== undefined; key = take()) {
        try {
          await limiter.consume(key)
          admitted += 1
        } catch (rejection) {
          requireRefusal(rejection)
        }
      }
      return admitted
    },
    choose,
  )
}

function strictRule(number: number): object {
  const facts = { endpoint_pattern: '/api/v1/messages', method: 'POST', scope: 'per_user', consistency: 'strict' }
  return { rule_id: `per_user_${number}`, ...facts, limit: LIMIT, window_seconds: WINDOW_SECONDS }
}

type Worker = (take: () => string | undefined) => Promise<number>

/** Workers share the keys of a round: each takes the next key after its reply. */
function inFlight(calls: number, worker: Worker, choose = uniform(KEYS, seeded(1))): Contender {
  let filled = false
  return {
    async round(): Promise<Sample> {
      const keys = filled ? freshKeys(calls, choose) : freshKeys(KEYS, everyId(KEYS))
      filled = true
      let next = 0
      const take = () => keys[next++]
      globalThis.gc?.()
      const startedMs = performance.now()
      const admitted = await Promise.all(Array.from({ length: IN_FLIGHT }, () => worker(take)))
      const seconds = (performance.now() - startedMs) / 1000
      const sum = admitted.reduce((total, count) => total + count, 0)
      return { checks: keys.length, 'checks/s': keys.length / seconds, admitted: sum / keys.length }
    },
  }
}
