// Several processes, one Redis, one key: together they admit exactly the limit, whatever the algorithm, the client, the
// interleaving or their clocks.

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { ALGORITHMS } from 'sluice'
import { type RedisProcess, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

const LIMIT = 500
const CHECKS_PER_NODE = 300
const SKEWS_MS = [0, 5000, -5000, 2500]
/** Long against the test: hardly anything flows back, and no window ends meanwhile. */
const WINDOW_SECONDS = 365 * 86_400

let redis: RedisProcess
beforeAll(async () => {
  redis = await startRedis()
})
afterAll(() => redis.stop())

describe.each(['ioredis', 'redis'])('nodes on the client "%s"', (client) => {
  let nodes: ChildProcess[] = []
  beforeAll(async () => {
    nodes = SKEWS_MS.map((skewMs) => startNode({ REDIS_URL: redis.url, CLIENT: client, SKEW_MS: String(skewMs) }))
    await Promise.all(nodes.map((node) => once(node, 'message')))
  })
  afterAll(async () => {
    const exits = nodes.map((node) => once(node, 'exit'))
    for (const node of nodes) node.send({})
    await Promise.all(exits)
  })

  test.each(ALGORITHMS)('%s: a fleet admits exactly the limit', async (algorithm) => {
    const ruleId = `${client}-${algorithm}`
    const rule = { rule_id: ruleId, scope: 'per_user', algorithm, limit: LIMIT, window_seconds: WINDOW_SECONDS }
    const admitted = await Promise.all(nodes.map((node) => admittedBy(node, rule)))
    expect(admitted.reduce((sum, count) => sum + count, 0)).toBe(LIMIT)
  })
})

function startNode(env: Record<string, string>): ChildProcess {
  const script = fileURLToPath(new URL('node.mjs', import.meta.url))
  return fork(script, { env: { ...process.env, ...env }, execArgv: [] })
}

async function admittedBy(node: ChildProcess, rule: object): Promise<number> {
  const answer = once(node, 'message')
  node.send({ rule, checks: CHECKS_PER_NODE })
  const [admitted] = (await answer) as [number]
  return admitted
}
