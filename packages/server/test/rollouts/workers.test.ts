// Rollouts on a node with several worker processes, and in several regions.

import { request } from 'node:http'
import { text } from 'node:stream/consumers'
import { startRedis } from 'sluice/testing'
import { expect, onTestFinished, test, vi } from 'vitest'
import { PROPOSALS_PATH } from '../../src/rollouts/edit-hooks.ts'
import { temporaryFolder, usePostgres } from '../databases.ts'
import { start } from '../process.ts'
import { ADMIN_TOKEN, BATCH, CHECK, clientOf, RULES } from '../service.ts'
import { createRule, RULE, rollOut, startNode } from './fleet.ts'

const postgres = usePostgres()
const PATIENTLY = { timeout: 60_000, interval: 100 }
const USERS = Array.from({ length: 20 }, (_, index) => `user ${index}`)

/** Sends a POST on a connection of its own: the supervisor hands connections to its workers in turn. */
function postAlone(address: string, path: string, body: object): Promise<Record<string, unknown>> {
  return sendAlone(address, path, 'POST', body)
}

function sendAlone(address: string, path: string, method: string, body?: object): Promise<Record<string, unknown>> {
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${ADMIN_TOKEN}` }
    const sent = request(new URL(path, address), { method, headers, agent: false }, (response) => {
      text(response).then((answer) => resolve(JSON.parse(answer)), reject)
    })
    sent.on('error', reject)
    // The supervisor may hand a connection to a worker that was just killed: it then gets no response.
    sent.setTimeout(5000, () => sent.destroy(new Error('no response')))
    sent.end(body === undefined ? '' : JSON.stringify(body))
  })
}

test('workers enforce the same version of a key, and one takes over the guard when another is killed', async () => {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  const shared = ['--database', postgres().createDatabase(), '--redis', redis.url, '--store-deadline-ms', '5000']
  const node = await start([...shared, '--admin-token', ADMIN_TOKEN, '--guard-edits', '0', '--workers', '2'])
  const client = clientOf(node.address)
  const post = async (path: string, body: object) => {
    const answer = await client.post(path, body, ADMIN_TOKEN)
    expect([path, answer.status < 300, answer.body]).toEqual([path, true, answer.body])
    return answer.body
  }
  await post(RULES, RULE)
  const guard = { window: '1s', newly_denied: { min_pairs: 40, hard_min_pairs: 30 }, p99: { ms: 60_000 } }
  const propose = async (limit: number) => {
    const changes = [{ op: 'update', rule: { rule_id: 'posts', limit } }]
    const body = await post(PROPOSALS_PATH, { changes, reason: 'x', guard, steps: [{ canary: '50%' }] })
    await post(`${PROPOSALS_PATH}/${body.proposal_id}/start`, {})
    return `${PROPOSALS_PATH}/${body.proposal_id}`
  }
  const harmless = await propose(900)
  const limits = async (connection: number) => {
    const checks = USERS.map((client_id) => ({ client_id, endpoint: '/posts' }))
    const { results } = await postAlone(node.address, BATCH, { checks })
    expect(results, `connection ${connection}`).toHaveLength(USERS.length)
    return (results as { limit: number }[]).map(({ limit }) => limit)
  }
  const connections = Array.from({ length: 20 }, (_, index) => index)
  await vi.waitFor(async () => {
    const seen = await Promise.all(connections.map(limits))
    expect(new Set(seen[0])).toEqual(new Set([900, 1000]))
    for (const other of seen) expect(other).toEqual(seen[0])
  }, PATIENTLY)
  await post(`${harmless}/abort`, {})

  const evaluators = () => {
    const lines = node.output().stderr.split('\n')
    const pids = lines
      .filter((line) => line.includes('"guard_evaluator_started"'))
      .map((line) => /"pid":(\d+)/.exec(line)?.[1])
    return pids.map(Number)
  }
  const bad = await propose(0)
  await vi.waitFor(() => expect(evaluators().length).toBeGreaterThan(0), PATIENTLY)
  const killed = evaluators().at(-1) as number
  expect(killed).not.toBe(node.pid)
  process.kill(killed, 'SIGKILL')
  const checks = Array.from({ length: 100 }, (_, index) => ({ client_id: `client ${index}`, endpoint: '/posts' }))
  await vi.waitFor(async () => {
    await postAlone(node.address, BATCH, { checks })
    expect(await sendAlone(node.address, bad, 'GET')).toMatchObject({ state: 'rolled_back' })
  }, PATIENTLY)
  expect(evaluators().at(-1)).not.toBe(killed)
})

test('regions enforce the same version of a key, each in its own Redis', async () => {
  const servers = await Promise.all([startRedis(), startRedis(), startRedis()])
  onTestFinished(async () => {
    await Promise.all(servers.map((server) => server.stop()))
  })
  const [eu, us, global] = servers
  const database = postgres().createDatabase()
  const common = { database, globalRedis: global.url, regionWeights: { eu: 0.6, us: 0.4 }, globalDeadlineMs: 5000 }
  const nodes = [
    await startNode({ ...common, region: 'eu', redis: eu.url, dataDir: temporaryFolder() }),
    await startNode({ ...common, region: 'us', redis: us.url, dataDir: temporaryFolder() }),
  ] as const
  await createRule(nodes[0], nodes)
  const changes = [{ op: 'update', rule: { rule_id: 'posts', limit: 900 } }]
  await rollOut(nodes[0], { changes, steps: [{ canary: '50%' }] })
  const limits = async ({ post }: (typeof nodes)[number]) => {
    const found: unknown[] = []
    for (const client_id of USERS) found.push((await post(CHECK, { client_id, endpoint: '/posts' })).body.limit)
    return found
  }
  await vi.waitFor(async () => {
    const [first, second] = [await limits(nodes[0]), await limits(nodes[1])]
    expect(new Set(first)).toEqual(new Set([900, 1000]))
    expect(second).toEqual(first)
  }, PATIENTLY)
})
