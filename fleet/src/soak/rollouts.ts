// Rollouts on four service nodes with PostgreSQL and Redis, under load, with the default guard: bad changes are rolled
// back and touch canary keys only, good ones reach all keys, and a spike that both versions refuse trips nothing.

import { setTimeout as sleep } from 'node:timers/promises'
import { seededRandom, startPostgres, startRedis } from 'sluice/testing'
import type { Guarantee } from '../guarantees.ts'
import { ServiceNode } from '../service-node.ts'

export type RolloutSoak = { readonly runs: number; readonly stepSeconds: number }

const TOKEN = 'token-of-the-rollout-soak'
const NODES = 4
const KEYS = 2000
const BATCH = 40
const BATCH_MS = 100
const API = '/api/v1/rate-limit'
const ROLLBACK_SECONDS_MAX = 10
const RULE = { rule_id: 'posts', endpoint_pattern: '/posts', scope: 'per_user', limit: 60, window_seconds: 60 }

type Proposal = { readonly state: string; readonly sentence: string; readonly started_at: string; readonly now: string }
type Case = {
  readonly name: string
  readonly patch: object
  readonly ends: 'rolled_back' | 'done'
  readonly spike?: true
}

const CASES: readonly Case[] = [
  { name: 'limit 0', patch: { limit: 0 }, ends: 'rolled_back' },
  { name: 'a sixtieth of the limit', patch: { limit: 1 }, ends: 'rolled_back' },
  { name: 'harmless', patch: { limit: 59 }, ends: 'done' },
  { name: 'spike', patch: { limit: 60, description: 'the same numbers' }, ends: 'done', spike: true },
]

export async function rollouts({ runs, stepSeconds }: RolloutSoak): Promise<Guarantee[]> {
  const [postgres, redis] = [await startPostgres(), await startRedis()]
  const nodes: ServiceNode[] = []
  try {
    const flags = ['--database', postgres.createDatabase(), '--redis', redis.url, '--admin-token', TOKEN]
    for (let index = 0; index < NODES; index += 1) nodes.push(await ServiceNode.start([...flags, '--guard-edits', '0']))
    await send(nodes, 'POST', '/rules', RULE)
    const load = new Load(nodes)
    const guarantees: Guarantee[] = []
    for (let run = 0; run < runs; run += 1) guarantees.push(await rollOne(nodes, load, run, stepSeconds))
    await load.stop()
    return guarantees
  } finally {
    await Promise.all(nodes.map((node) => node.stop()))
    await postgres.stop()
    await redis.stop()
  }
}

async function rollOne(
  nodes: readonly ServiceNode[],
  load: Load,
  run: number,
  stepSeconds: number,
): Promise<Guarantee> {
  const one = CASES[run % CASES.length] as Case
  load.begin(one.spike === true)
  await send(nodes, 'PUT', '/rules/posts', RULE)
  const steps = [
    { canary: '1%', for: `${stepSeconds}s` },
    { canary: '50%', for: `${stepSeconds}s` },
  ]
  const changes = [{ op: 'update', rule: { rule_id: 'posts', ...one.patch } }]
  const created = await send(nodes, 'POST', '/proposals', { changes, reason: `run ${run}`, steps })
  const id = String((created as { proposal_id: string }).proposal_id)
  await send(nodes, 'POST', `/proposals/${id}/start`, {})
  const ended = await untilEnded(nodes, id, 20 * stepSeconds)
  const endedMs = performance.now()
  await sleep((ROLLBACK_SECONDS_MAX + 2) * 1000) // long enough to see a refusal that comes too late
  const refused = load.refusedKeys()
  const lateMs = one.ends === 'rolled_back' ? load.lastRefusedMs() - endedMs : 0
  const isCanary = one.ends !== 'rolled_back' || refused.size < 0.05 * KEYS
  const held = ended.state === one.ends && isCanary && lateMs < ROLLBACK_SECONDS_MAX * 1000
  const facts =
    one.ends === 'rolled_back'
      ? `; ${refused.size} of ${KEYS} keys refused, the last ${Math.round(lateMs)} ms after`
      : ''
  return { held, text: `run ${run}, ${one.name}: ${ended.state}: ${ended.sentence}${facts}` }
}

async function untilEnded(nodes: readonly ServiceNode[], id: string, seconds: number): Promise<Proposal> {
  for (let second = 0; ; second += 1) {
    const proposal = (await send(nodes, 'GET', `/proposals/${id}`)) as Proposal
    if (proposal.state !== 'rolling_out' || second >= seconds) return proposal
    await sleep(1000)
  }
}

async function send(nodes: readonly ServiceNode[], method: string, path: string, body?: object): Promise<unknown> {
  const [node] = nodes as [ServiceNode]
  const headers = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' }
  const init = body === undefined ? { method, headers: { authorization: headers.authorization } } : { method, headers }
  const response = await fetch(new URL(API + path, node.address), {
    ...init,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`)
  return response.json()
}

/** Batches of checks to random nodes. */
class Load {
  readonly #nodes: readonly ServiceNode[]
  readonly #random = seededRandom(20)
  readonly #done: Promise<void>
  #refused = new Map<string, number>()
  #spike = false
  #stopped = false

  constructor(nodes: readonly ServiceNode[]) {
    this.#nodes = nodes
    this.#done = this.#run()
  }

  begin(spike: boolean): void {
    this.#refused = new Map()
    this.#spike = spike
  }

  refusedKeys(): ReadonlySet<string> {
    return new Set(this.#refused.keys())
  }

  lastRefusedMs(): number {
    return Math.max(0, ...this.#refused.values())
  }

  async stop(): Promise<void> {
    this.#stopped = true
    await this.#done
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      const keys = this.#spike ? 20 : KEYS // few clients with all requests are refused by both versions
      const users = Array.from({ length: BATCH }, () => `user ${this.#random.between(0, keys - 1)}`)
      await this.#send(users).catch(() => {})
      await sleep(BATCH_MS)
    }
  }

  async #send(users: readonly string[]): Promise<void> {
    const node = this.#random.pick(this.#nodes)
    const checks = users.map((client_id) => ({ client_id, endpoint: '/posts' }))
    const response = await fetch(new URL(`${API}/check/batch`, node.address), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ checks }),
    })
    const { results } = (await response.json()) as { results: readonly { allowed: boolean }[] }
    results.forEach(({ allowed }, index) => {
      if (!allowed) this.#refused.set(users[index] ?? '', performance.now())
    })
  }
}
