// Latency of the decision itself with five rules per request, under open-loop load at half of the capacity of the node.

import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { createLimiter, type Limiter } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type Contenders, withIsolated } from '../isolated.ts'
import { alternate, type Contender, median, resultsOf } from '../measure.ts'
import { type RedisServer, withRedis } from '../redis-server.ts'
import type { Scenario } from '../report.ts'
import { freshKey, seeded, zipf } from '../zipf.ts'

/** Clients; all are known after the warm-up. */
const KEYS = 10_000
const RULES = 5
const IN_FLIGHT = 100
/** Capacity is measured repeatedly, because the speed of machines changes within seconds. */
const SLICES = 4
const SETTLE_MS = 500
const CLOSED_MS = 1500
const RUN_MS = 1000
/** Interval of the load; each sends the requests that are due. */
const TICK_MS = 1
/** Cap per tick: no server reads more in one turn of its event loop. */
const CHECKS_PER_TURN = 256

const NAMES = ['leased', 'strict'] as const

export const scenario: Scenario = {
  what: 'time of a decision, 5 rules, half of capacity',
  targets: { p99_ms_leased: { atMost: 1 }, p99_ms_strict: { atMost: 5 } },
  run: ({ rounds = 5 }) =>
    withRedis(NAMES.length, async (servers) => {
      const portOf = (name: (typeof NAMES)[number]) => String((servers[NAMES.indexOf(name)] as RedisServer).port)
      const samples = await withIsolated('./scenarios/decision-latency.js', NAMES, portOf, (all) =>
        alternate(all, { rounds, warmups: 2 }),
      )
      const results = resultsOf(samples, 'p99 ms', 'ms, p99')
      const [leased, strict] = results.map(({ median }) => median)
      return { results, ratios: { p99_ms_leased: leased ?? Number.NaN, p99_ms_strict: strict ?? Number.NaN } }
    }),
}

export const contenders: Contenders = {
  leased: (port) => node(port, 'leased'),
  strict: (port) => node(port, 'strict'),
}

async function node(port: string, consistency: string): Promise<Contender> {
  const rule = { scope: 'per_user', limit: 1000, window_seconds: 60, consistency }
  const rules = Array.from({ length: RULES }, (_, number) => ({ rule_id: `rule_${number}`, ...rule }))
  const store = redisStore(new Redis(Number(port), { lazyConnect: true }), { deadlineMs: 1000 })
  await store.ready()
  const limiter = createLimiter({ rules, store })
  const choose = zipf(KEYS, seeded(1))
  return {
    async round() {
      const capacities: number[] = []
      const runs: Float64Array[] = []
      for (let slice = 0; slice < SLICES; slice += 1) {
        const capacity = await closedLoop(limiter, choose)
        capacities.push(capacity)
        runs.push(await openLoop(limiter, choose, capacity / 2))
      }
      const times = Float64Array.from(runs.flatMap((run) => Array.from(run))).sort()
      return { 'checks/s': median(capacities), 'p99 ms': times[Math.floor(times.length * 0.99)] ?? Number.NaN }
    },
  }
}

/** Measures the capacity in checks per second. */
async function closedLoop(limiter: Limiter, choose: () => number): Promise<number> {
  const countFromMs = performance.now() + SETTLE_MS
  const endMs = countFromMs + CLOSED_MS
  let checks = 0
  let counted = 0
  const worker = async () => {
    for (; performance.now() < endMs; checks += 1) {
      const subject = { user: freshKey(choose()) }
      const decision = limiter.decide(subject)
      if (decision instanceof Promise) await decision
      if (performance.now() >= countFromMs) counted += 1
      if (checks % CHECKS_PER_TURN === 0) await turn()
    }
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, worker))
  return (counted * 1000) / CLOSED_MS
}

/** Resolves with the latency of each decision. Allocates little, because garbage would delay decisions. */
async function openLoop(limiter: Limiter, choose: () => number, rate: number): Promise<Float64Array> {
  const times = new Float64Array(Math.ceil((rate * RUN_MS) / 1000) + CHECKS_PER_TURN)
  const startedMs = performance.now()
  let sent = 0
  let answered = 0
  const record = (sentMs: number) => {
    times[answered] = performance.now() - sentMs
    answered += 1
  }
  for (let elapsedMs = 0; elapsedMs < RUN_MS; elapsedMs = performance.now() - startedMs) {
    for (; sent < (elapsedMs * rate) / 1000; sent += 1) {
      const subject = { user: freshKey(choose()) }
      const sentMs = performance.now()
      const decision = limiter.decide(subject)
      if (decision instanceof Promise) void decision.then(() => record(sentMs))
      else record(sentMs)
      if (sent % CHECKS_PER_TURN === 0) await turn()
    }
    await delay(TICK_MS)
  }
  while (answered < sent) await delay(TICK_MS)
  return times.subarray(0, answered)
}
