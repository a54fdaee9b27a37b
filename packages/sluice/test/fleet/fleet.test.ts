// Several processes, one Redis, one key: together they admit exactly the limit, whatever the algorithm, the client, the
// interleaving or their clocks.

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { ALGORITHMS } from 'sluice'
import { type RedisProcess, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'

const NODES = 4
const LIMIT = 500
const CHECKS_PER_NODE = 300
const SKEWS_MS = [0, 5000, -5000, 2500]

let redis: RedisProcess
beforeAll(async () => {
  redis = await startRedis()
})
afterAll(() => redis.stop())

const cases = ALGORITHMS.flatMap((algorithm) => ['ioredis', 'redis'].map((client) => ({ algorithm, client })))

test.each(cases)('$algorithm through $client: a fleet admits exactly the limit', async ({ algorithm, client }) => {
  // A day is long against the test, so that hardly anything flows back; a fixed window must not end meanwhile.
  const rule = { rule_id: 'fleet', scope: 'per_user', algorithm, limit: LIMIT, window_seconds: 86_400 * 365 }
  const env = { REDIS_URL: redis.url, CLIENT: client, RULE: JSON.stringify(rule), PREFIX: `${client}-${algorithm}` }
  const nodes = SKEWS_MS.map((skewMs) => startNode({ ...env, SKEW_MS: String(skewMs) }))
  await Promise.all(nodes.map((node) => once(node, 'message')))
  const admitted = await Promise.all(nodes.map(admittedBy))
  expect(admitted.length).toBe(NODES)
  expect(admitted.reduce((sum, count) => sum + count, 0)).toBe(LIMIT)
})

function startNode(env: Record<string, string>): ChildProcess {
  const script = fileURLToPath(new URL('node.mjs', import.meta.url))
  return fork(script, { env: { ...process.env, ...env, CHECKS: String(CHECKS_PER_NODE) }, execArgv: [] })
}

async function admittedBy(node: ChildProcess): Promise<number> {
  const exit = once(node, 'exit')
  const answer = once(node, 'message')
  node.send('go')
  const [{ admitted }] = (await answer) as [{ admitted: number }]
  await exit
  return admitted
}
