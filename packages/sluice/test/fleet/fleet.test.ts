// Several processes with skewed clocks check one key on one Redis: together they admit exactly the limit, with every
// algorithm and client.

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { ALGORITHM_NAMES } from 'sluice'
import { type RedisProcess, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

const LIMIT = 500
const CHECKS_PER_NODE = 300
const SKEWS_MS = [0, 5000, -5000, 2500]
/** So long that nothing refills and no window ends during the test. */
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
    await Promise.all(nodes.map(messageOf))
  })
  afterAll(async () => {
    const exits = nodes.filter(({ exitCode }) => exitCode === null).map((node) => once(node, 'exit'))
    for (const node of nodes) node.send({}, () => {}) // it may have exited
    await Promise.all(exits)
  })

  test.each(ALGORITHM_NAMES)('%s: a fleet admits exactly the limit', async (algorithm) => {
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
  const reply = messageOf(node)
  node.send({ rule, checks: CHECKS_PER_NODE })
  return reply
}

/** Rejects when the node exits instead. */
async function messageOf(node: ChildProcess): Promise<number> {
  const cancel = new AbortController()
  const { signal } = cancel
  const exit = once(node, 'exit', { signal }).then(([code]) => Promise.reject(new Error(`node exited: code ${code}`)))
  exit.catch(() => {})
  const [message] = (await Promise.race([once(node, 'message', { signal }), exit]).finally(() => cancel.abort())) as [
    number,
  ]
  return message
}
