// Load for the event pipeline: batches of checks at a fixed rate, and single checks whose latency is measured. Counts
// every answer, so that the totals of sinks can be compared.

import { setTimeout as sleep } from 'node:timers/promises'
import { postJson } from '../http-client.ts'
import type { ServiceNode } from '../service-node.ts'

const BATCH = 100
const BODIES = 50
const CLIENTS = 5000
const PROBE_MS = 20
/** Later batches wait: bounds the memory if the node is slower than the load. */
const IN_FLIGHT_MAX = 50
const BATCH_PATH = '/api/v1/rate-limit/check/batch'

export const RULES: readonly object[] = [
  { rule_id: 'messages', endpoint_pattern: '/api/v1/messages', scope: 'per_user', limit: 50, window: '1m' },
  { rule_id: 'orders', endpoint_pattern: '/api/v1/orders/:id', scope: 'per_user', limit: 1000, window: '1m' },
]

type Answer = { readonly allowed?: boolean }

export class EventLoad {
  readonly #node: ServiceNode
  allowed = 0
  refused = 0
  /** Requests without an answer, and checks answered with a problem. */
  failed = 0
  #isRunning = true
  #latencies: number[] = []

  constructor(node: ServiceNode) {
    this.#node = node
  }

  get decided(): number {
    return this.allowed + this.refused
  }

  /** Milliseconds in which 99 % of the single checks since the last call were answered. */
  takeP99Ms(): number {
    const sorted = this.#latencies.sort((a, b) => a - b)
    this.#latencies = []
    return sorted[Math.floor(sorted.length * 0.99)] ?? Number.NaN
  }

  /** Sends `rate` checks a second while `work` runs. */
  async during(rate: number, work: () => Promise<void>): Promise<void> {
    const running = Promise.all([this.#sendBatches(rate), this.#probe()])
    try {
      await work()
    } finally {
      this.#isRunning = false
      await running
    }
  }

  async #sendBatches(rate: number): Promise<void> {
    const url = new URL(BATCH_PATH, this.#node.address)
    const startedMs = performance.now()
    const inFlight = new Set<Promise<void>>()
    for (let sent = 0; this.#isRunning; sent += 1) {
      const aheadMs = startedMs + ((sent * BATCH) / rate) * 1000 - performance.now()
      if (aheadMs > 1) await sleep(aheadMs)
      while (inFlight.size >= IN_FLIGHT_MAX) await Promise.race(inFlight)
      const batch = this.#send(url, sent).finally(() => inFlight.delete(batch))
      inFlight.add(batch)
    }
    await Promise.all(inFlight)
  }

  async #send(url: URL, number: number): Promise<void> {
    try {
      const { results } = (await postJson(url, BATCHES[number % BODIES] as object)) as { results: Answer[] }
      for (const result of results) this.#count(result)
    } catch {
      this.failed += BATCH
    }
  }

  async #probe(): Promise<void> {
    for (let sent = 0; this.#isRunning; sent += 1) {
      const startedMs = performance.now()
      const check = { client_id: `probe-${sent % CLIENTS}`, endpoint: '/api/v1/orders/1', method: 'GET' }
      await postJson(this.#node.checks, check).then(
        (answer) => this.#count(answer as Answer),
        () => {
          this.failed += 1
        },
      )
      this.#latencies.push(performance.now() - startedMs)
      await sleep(Math.max(0, startedMs + PROBE_MS - performance.now()))
    }
  }

  #count({ allowed }: Answer): void {
    if (allowed === undefined) this.failed += 1
    else if (allowed) this.allowed += 1
    else this.refused += 1
  }
}

/** All clients, in turn. */
const BATCHES: readonly object[] = Array.from({ length: BODIES }, (_, batch) => ({
  checks: Array.from({ length: BATCH }, (_, index) => {
    const number = batch * BATCH + index
    const [plan, tenant] = [`plan_${number % 3}`, `tenant_${number % 10}`]
    const endpoint = number % 2 === 0 ? '/api/v1/messages' : `/api/v1/orders/${number}`
    return { client_id: `user-${number % CLIENTS}`, endpoint, method: 'POST', plan, tenant }
  }),
}))
