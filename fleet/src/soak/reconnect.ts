// Fifty clients lose their Redis under load and reconnect: measures connections, CPU of Redis, and the time until Redis
// decides for all of them again.

import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { createLimiter, type Limiter } from 'sluice'
import { redisStore } from 'sluice/redis'
import { startRedis } from 'sluice/testing'
import type { Guarantee } from '../guarantees.ts'

const CLIENTS = 50
const ROUND_MS = 50
/** Generous: probes and attempts to connect are at most 250 ms apart, but all clients share one machine. */
const RECOVERY_SECONDS_MAX = 15
const RULE = { rule_id: 'user', scope: 'per_user', limit: 1_000_000, window: '1s', consistency: 'strict' }

export async function reconnect(outageSeconds: number): Promise<Guarantee[]> {
  const first = await startRedis()
  const { port } = first
  const limiters = await Promise.all(Array.from({ length: CLIENTS }, () => limiterOn(port)))
  try {
    const before = await checkAll(limiters)
    await first.stop()
    await untilElapsed(outageSeconds, () => checkAll(limiters))
    const second = await startRedis(['--port', String(port)])
    try {
      return [
        { held: before === CLIENTS, text: `${before} of ${CLIENTS} clients were decided by Redis before the outage` },
        await recovered(limiters, port),
      ]
    } finally {
      await second.stop()
    }
  } finally {
    await Promise.all(limiters.map((limiter) => limiter.close()))
    await first.stop()
  }
}

async function limiterOn(port: number): Promise<Limiter> {
  const store = redisStore(new Redis(port, { lazyConnect: true }), { deadlineMs: 1000 })
  await store.ready()
  return createLimiter({ rules: [RULE], store })
}

/** Number of clients for which Redis decided. */
async function checkAll(limiters: readonly Limiter[]): Promise<number> {
  const decisions = await Promise.all(limiters.map((limiter, index) => limiter.check({ user: `user-${index}` })))
  return decisions.filter(({ source }) => source === 'store').length
}

async function recovered(limiters: readonly Limiter[], port: number): Promise<Guarantee> {
  const startedMs = performance.now()
  const secondsSince = () => (performance.now() - startedMs) / 1000
  let answered = 0
  while (answered < CLIENTS && secondsSince() < RECOVERY_SECONDS_MAX) {
    answered = await checkAll(limiters)
    await sleep(ROUND_MS)
  }
  const seconds = secondsSince()
  const { received, connected, cpuMs } = await redisInfo(port)
  const cost = `${connected} connections (${received} opened), ${cpuMs.toFixed(0)} ms of CPU`
  return {
    held: answered === CLIENTS,
    text: `${answered} of ${CLIENTS} clients were decided by Redis ${seconds.toFixed(1)} s after its restart: ${cost}`,
  }
}

async function redisInfo(port: number): Promise<{ received: number; connected: number; cpuMs: number }> {
  const client = new Redis(port)
  const text = await client.info()
  client.disconnect()
  const field = (name: string) => Number(new RegExp(`^${name}:(.*)$`, 'm').exec(text)?.[1])
  return {
    // Without the connection of this query.
    received: field('total_connections_received') - 1,
    connected: field('connected_clients') - 1,
    cpuMs: (field('used_cpu_user') + field('used_cpu_sys')) * 1000,
  }
}

async function untilElapsed(seconds: number, work: () => Promise<unknown>): Promise<void> {
  const endMs = performance.now() + seconds * 1000
  while (performance.now() < endMs) {
    await work()
    await sleep(ROUND_MS)
  }
}
