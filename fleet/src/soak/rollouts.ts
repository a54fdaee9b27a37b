// Rollouts on four service nodes with PostgreSQL and Redis, under load, with the default guard: bad changes are rolled
// back in time and touch canary keys only, good ones reach all keys, and neither a spike that both versions refuse nor
// silence trips anything.

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
/** Pairs that the default guard needs to fail at once. */
const HARD_PAIRS_MIN = 100
const RULE = { rule_id: 'posts', endpoint_pattern: '/posts', scope: 'per_user', limit: 60, window_seconds: 60 }

type Proposal = { readonly state: string; readonly sentence: string; readonly pair_share: number }

/** Choice of the key of each request. `halved`: a fifth of the keys is between half the limit and the limit. */
type Traffic = 'even' | 'halved' | 'spike' | 'none'

type Case = {
  readonly name: string
  /** Fields of the rule before the change, if they differ from RULE. */
  readonly rule?: object
  readonly patch: object
  readonly ends: 'rolled_back' | 'done' | 'rolling_out'
  readonly traffic?: Traffic
  /** Default: canaries of 1 % and 50 %. */
  readonly steps?: (stepSeconds: number) => readonly object[]
  /** Whether the facts of a run that ended as expected prove the case. */
  readonly proves?: (facts: Facts) => boolean
}

type Facts = {
  readonly refused: ReadonlySet<string>
  /** Last wrong refusal, relative to the time when the load had produced enough pairs for the guard to act. */
  readonly afterEvidenceMs: number
  /** Last wrong refusal, relative to the end of the rollout. */
  readonly afterEndMs: number
  readonly sentence: string
  /** Refused keys that are not in the canary of 1 %; undefined: not known. */
  readonly outside: number | undefined
}

const isInTime = ({ afterEvidenceMs, afterEndMs }: Facts) =>
  Math.max(afterEvidenceMs, afterEndMs) < ROLLBACK_SECONDS_MAX * 1000

const CASES: readonly Case[] = [
  {
    ...{ name: 'limit 0', patch: { limit: 0 }, ends: 'rolled_back' },
    proves: (facts) => isInTime(facts) && facts.refused.size > 0 && facts.outside === 0,
  },
  {
    // Subtle: the buckets of a fifth of the keys run dry after 20 s, then two windows must fail. The first step lasts
    // longer, so the change is rolled back before it is enforced for any key.
    ...{ name: 'half the limit', rule: { limit: 20, window_seconds: 10 }, patch: { limit: 10 }, ends: 'rolled_back' },
    ...{ traffic: 'halved', steps: () => [{ shadow: '2m' }, { canary: '1%', for: '20s' }] },
    proves: ({ refused }) => refused.size === 0,
  },
  { name: 'harmless', patch: { limit: 59 }, ends: 'done', proves: ({ refused }) => refused.size === 0 },
  {
    // 20 clients send 20 requests a second each: both versions refuse nearly all of them.
    ...{ name: 'spike', patch: { limit: 45 }, ends: 'done', traffic: 'spike' },
    proves: ({ refused }) => refused.size === 20,
  },
  {
    ...{ name: 'silence', patch: { limit: 0 }, ends: 'rolling_out', traffic: 'none' },
    steps: (seconds) => [{ canary: '1%', for: `${seconds}s`, max: `${seconds + 10}s` }, { canary: '50%' }],
    proves: ({ refused, sentence }) => refused.size === 0 && /^paused at step 1 of 2.*no verdict after/.test(sentence),
  },
  {
    ...{ name: 'a sixtieth of the limit', patch: { limit: 1 }, ends: 'rolled_back' },
    proves: ({ afterEndMs, refused }) => afterEndMs < ROLLBACK_SECONDS_MAX * 1000 && refused.size < 0.05 * KEYS,
  },
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
  const { traffic = 'even', steps = twoCanaries } = one
  load.begin(traffic)
  await send(nodes, 'PUT', '/rules/posts', { ...RULE, ...one.rule })
  if (traffic === 'spike') await sleep(10_000) // empties the buckets
  const changes = [{ op: 'update', rule: { rule_id: 'posts', ...one.patch } }]
  const asked = { changes, reason: `run ${run}`, steps: steps(stepSeconds) }
  const { proposal_id: id } = (await send(nodes, 'POST', '/proposals', asked)) as { proposal_id: string }
  await send(nodes, 'POST', `/proposals/${id}/start`, {})
  const ended = await untilEnded(nodes, load, id, one.ends === 'rolling_out' ? stepSeconds + 20 : 20 * stepSeconds)
  const endedMs = performance.now()
  if (one.ends === 'rolled_back') await sleep((ROLLBACK_SECONDS_MAX + 2) * 1000) // sees refusals that come too late
  const facts: Facts = {
    refused: load.refusedKeys(),
    afterEvidenceMs: load.lastRefusedMs() - load.evidentMs,
    afterEndMs: load.lastRefusedMs() - endedMs,
    sentence: ended.sentence,
    outside: one.name === 'limit 0' ? await outsideCanary(nodes, load, id) : undefined,
  }
  if (one.ends === 'rolling_out') await send(nodes, 'POST', `/proposals/${id}/abort`, {})
  const held = ended.state === one.ends && (one.proves?.(facts) ?? true)
  return { held, text: `run ${run}, ${one.name}: ${ended.state}: ${ended.sentence}${factsText(one, facts)}` }
}

const twoCanaries = (seconds: number): readonly object[] => [
  { canary: '1%', for: `${seconds}s` },
  { canary: '50%', for: `${seconds}s` },
]

function factsText({ ends }: Case, { refused, afterEvidenceMs, afterEndMs, outside }: Facts): string {
  const keys = `; ${refused.size} of ${KEYS} keys refused`
  if (ends !== 'rolled_back' || refused.size === 0) return keys
  const ms = Math.round(afterEndMs)
  if (outside === undefined) return `${keys}, the last one ${ms} ms after the end`
  const evidence = `${Math.round(afterEvidenceMs)} ms after the evidence, ${ms} ms after the end`
  return `${keys}, ${outside} of them outside the canary, the last one ${evidence}`
}

/**
 * Counts the refused keys that are not in the canary. A retry selects the same keys, and without load nothing rolls it
 * back, so every key can be asked for its limit.
 */
async function outsideCanary(nodes: readonly ServiceNode[], load: Load, id: string): Promise<number> {
  const refused = [...load.refusedKeys()]
  load.begin('none')
  await send(nodes, 'POST', `/proposals/${id}/start`, {})
  const members = new Set<string>()
  for (const client_id of refused) {
    const limit = await limitOf(nodes, client_id)
    if (limit === 0) members.add(client_id)
  }
  await send(nodes, 'POST', `/proposals/${id}/abort`, {})
  return refused.filter((key) => !members.has(key)).length
}

async function limitOf(nodes: readonly ServiceNode[], client_id: string): Promise<number | null> {
  const check = { client_id, endpoint: '/posts', dry_run: true }
  return ((await send(nodes, 'POST', '/check', check)) as { limit: number | null }).limit
}

async function untilEnded(nodes: readonly ServiceNode[], load: Load, id: string, seconds: number): Promise<Proposal> {
  const untilMs = performance.now() + seconds * 1000
  for (;;) {
    const proposal = (await send(nodes, 'GET', `/proposals/${id}`)) as Proposal
    if (proposal.state !== 'rolling_out' || performance.now() >= untilMs) return proposal
    load.pairShare = proposal.pair_share
    await sleep(200)
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
  #traffic: Traffic = 'even'
  #stopped = false
  /** Requests that were paired since `begin`, by the share of keys that the proposal shows. */
  #paired = 0
  pairShare = 0
  /** When enough requests were paired to show a limit of 0: the earliest time at which the guard can know. */
  evidentMs = Number.POSITIVE_INFINITY

  constructor(nodes: readonly ServiceNode[]) {
    this.#nodes = nodes
    this.#done = this.#run()
  }

  begin(traffic: Traffic): void {
    this.#refused = new Map()
    this.#traffic = traffic
    this.#paired = 0
    this.pairShare = 0
    this.evidentMs = Number.POSITIVE_INFINITY
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
      const traffic = this.#traffic
      const users = Array.from({ length: traffic === 'none' ? 0 : BATCH }, () => this.#key(traffic))
      if (users.length > 0) await this.#send(users).catch(() => {})
      this.#paired += users.length * this.pairShare
      if (this.#paired >= HARD_PAIRS_MIN) this.evidentMs = Math.min(this.evidentMs, performance.now())
      await sleep(BATCH_MS)
    }
  }

  #key(traffic: Traffic): string {
    const among = (keys: number) => `user ${this.#random.between(0, keys - 1)}`
    if (traffic === 'spike') return among(20)
    if (traffic === 'even') return among(KEYS)
    // 200 keys with 1.5 requests a second, the others with 0.1.
    return this.#random.next() < 0.75 ? among(200) : `light ${among(800)}`
  }

  async #send(users: readonly string[]): Promise<void> {
    const node = this.#random.pick(this.#nodes)
    const sentMs = performance.now()
    const checks = users.map((client_id) => ({ client_id, endpoint: '/posts' }))
    const refused = this.#refused // a later case has a map of its own
    const response = await fetch(new URL(`${API}/check/batch`, node.address), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ checks }),
    })
    const { results } = (await response.json()) as { results: readonly { allowed: boolean }[] }
    results.forEach(({ allowed }, index) => {
      if (!allowed) refused.set(users[index] ?? '', sentMs)
    })
  }
}
