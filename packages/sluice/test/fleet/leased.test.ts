// Eight processes with leases on one Redis: no interval between two admissions sees more than the limit, whether the
// load is even, uneven or moves, and also when nodes are killed with units in hand.

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { compileLimit, type LimitNumbers } from 'sluice'
import { type RedisProcess, seededRandom, startRedis } from 'sluice/testing'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Oracle } from '../simulation/oracle.ts'

const NODES = 8
/** A node tells what it was granted so often, every 20 ms or, when the machine is busy, less often. */
const REPORTS = 200
const WINDOW_US = 1_500_000
/** How much more is asked for than there is. */
const PRESSURE = 1.6

const LIMITS = (['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const).flatMap(
  (algorithm) => {
    const units = algorithm === 'sliding_window_log' ? [10, 100] : [10, 100, 10_000]
    return units.map((count): LimitNumbers => {
      const lease = { ttlUs: 1_000_000 }
      const id = `${algorithm}-${count}`
      return { id, fact: 'user', onFail: 'closed', algorithm, units: count, windowUs: WINDOW_US, lease }
    })
  },
)

let redis: RedisProcess
let nodes: ChildProcess[]
let oracle: Oracle
let admitted: number[]
let reports: number
beforeEach(async () => {
  redis = await startRedis()
  oracle = new Oracle()
  admitted = LIMITS.map(() => 0)
  reports = 0
  nodes = await Promise.all(Array.from({ length: NODES }, startNode))
})
afterEach(async () => {
  await Promise.all(nodes.map(endNode))
  await redis.stop()
})

/** Shares of the load by node. */
const EVEN = Array.from({ length: NODES }, () => 1 / NODES)
const ZIPF = EVEN.map((_, index) => 1 / (index + 1)).map((share, _, all) => share / all.reduce((sum, one) => sum + one))
const ONE = EVEN.map((_, index) => (index === 0 ? 1 : 0))

test.each([
  ['even', EVEN, EVEN],
  ['by Zipf', ZIPF, ZIPF],
  ['moved to one node', EVEN, ONE],
])('load %s: no interval sees more than the limit', { timeout: 60_000 }, async (_, before, after) => {
  begin(before)
  await reported(REPORTS / 2)
  nodes.forEach((node, index) => void node.send({ rates: ratesOf(after[index] ?? 0) }))
  await reported(REPORTS / 2)
  expect(violations()).toEqual([])
  // What is asked for is well above what there is; a busy machine may not get around to asking.
  expect(admitted.every((count, index) => count > 0.5 * (LIMITS[index]?.units ?? 0))).toBe(true)
})

test('nodes that are killed with units in hand: no interval sees more than the limit', {
  timeout: 60_000,
}, async () => {
  const random = seededRandom(7)
  begin(EVEN)
  for (let kills = 0; kills < 8; kills += 1) {
    await reported(REPORTS / 8)
    const index = random.between(0, NODES - 1)
    nodes[index]?.kill('SIGKILL')
    const node = await startNode()
    nodes[index] = node
    node.send({ limits: LIMITS, rates: ratesOf(1 / NODES) })
  }
  expect(violations()).toEqual([])
})

async function startNode(): Promise<ChildProcess> {
  const script = fileURLToPath(new URL('leased-node.mjs', import.meta.url))
  const node = fork(script, { env: { ...process.env, REDIS_URL: redis.url }, execArgv: [] })
  await once(node, 'message')
  node.on('message', ({ granted }: { granted: number[][] }) => {
    reports += 1
    granted.forEach((times, index) => {
      const limit = LIMITS[index] as LimitNumbers // one list per limit
      admitted[index] = (admitted[index] ?? 0) + times.length
      for (const atUs of times) oracle.admit(compileLimit(limit), 'alice', 1, atUs)
    })
  })
  return node
}

async function endNode(node: ChildProcess): Promise<void> {
  if (node.exitCode !== null || node.signalCode !== null) return
  const exited = once(node, 'exit')
  node.send({ end: true })
  await exited
}

/** Resolves when each node has told so often, on average, what it was granted. */
async function reported(times: number): Promise<void> {
  const wanted = reports + times * NODES
  await vi.waitFor(() => expect(reports).toBeGreaterThanOrEqual(wanted), { timeout: 30_000 })
}

function begin(shares: readonly number[]): void {
  nodes.forEach((node, index) => void node.send({ limits: LIMITS, rates: ratesOf(shares[index] ?? 0) }))
}

function ratesOf(share: number): number[] {
  return LIMITS.map(({ units }) => (share * PRESSURE * units * 1e6) / WINDOW_US)
}

function violations(): string[] {
  return oracle.violations(new Map(LIMITS.map((numbers) => [numbers.id, compileLimit(numbers)])))
}
