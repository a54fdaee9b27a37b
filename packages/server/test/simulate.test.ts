// What-if: a replay of recorded requests reproduces what a service decided, and compares other rules with it.

import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { LogReader, type RecordedRequest, type ReplayResult, recordingOf, replay } from 'sluice/replay'
import { seededRandom, startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import type { ProblemError } from '../src/problems/problem.ts'
import { Simulator } from '../src/simulation/simulator.ts'
import { temporaryFolder } from './databases.ts'
import {
  ADMIN_TOKEN,
  BATCH,
  type Client,
  REFUND,
  RULE_SET,
  type Service,
  serveApp,
  serveEmbedded,
  serveFile,
} from './service.ts'

/** A node with rules in a database, and this many tokens of the role viewer. */
async function withViewers(count: number): Promise<{ node: Client; tokens: readonly string[] }> {
  const node = await serveEmbedded({ adminToken: ADMIN_TOKEN })
  const names = Array.from({ length: count }, (_, index) => `viewer ${index}`)
  const created = names.map((name) => node.post('/api/v1/admin/tokens', { name, role: 'viewer' }, ADMIN_TOKEN))
  return { node, tokens: (await Promise.all(created)).map(({ body }) => String(body.token)) }
}

const SIMULATE = '/api/v1/rate-limit/simulate'
const RESET = '/api/v1/rate-limit/buckets/reset'

/** Small limits, so that many requests are refused; strict, so that the store alone decides. */
const RULES = [
  { rule_id: 'bucket', scope: 'per_user', limit: 20, window_seconds: 10, burst: 10 },
  { rule_id: 'window', scope: ['user', 'endpoint'], limit: 9, window_seconds: 2, algorithm: 'sliding_window' },
  { rule_id: 'log', scope: 'per_ip', limit: 60, window_seconds: 3, algorithm: 'sliding_window_log' },
  { rule_id: 'all', scope: 'global', limit: 150, window_seconds: 2, algorithm: 'fixed_window' },
  { rule_id: 'mobile', scope: 'per_user', limit: 3, window_seconds: 5, when: { 'header.x-client': 'mobile' } },
  {
    rule_id: 'flights',
    scope: 'per_user',
    limit: 2,
    window_seconds: 60,
    algorithm: 'concurrency',
    endpoint_pattern: '/x',
  },
  { rule_id: 'sized', scope: 'per_user', limit: 100, window_seconds: 10, cost: 'kilobytes' },
].map((rule) => ({ ...rule, consistency: 'strict' }))

type Answer = ReplayResult & { recording: { recorded: number; lost: number; source: string } }

/** Sends checks, several at a time, and with `operations` refunds and resets. Returns the number of checks. */
async function traffic(nodes: readonly Client[], seed: number, operations: boolean): Promise<number> {
  const random = seededRandom(seed)
  const ids: string[] = []
  let checks = 0
  for (let round = 0; round < 150; round += 1) {
    const node = random.pick(nodes)
    const kind = operations ? random.between(0, 19) : 19
    if (kind === 0) await node.post(RESET, { rule_id: 'bucket', key: `u${random.between(0, 5)}` }, ADMIN_TOKEN)
    if (kind <= 4 && ids.length > 0) {
      const request_id = ids.splice(random.between(0, ids.length - 1), 1)[0]
      await node.post(REFUND, { request_id, ...(kind === 1 ? { units: 0 } : {}) })
    }
    const sent = Array.from({ length: random.between(1, 8) }, async () => {
      checks += 1
      const { allowed, request_id: id } = await random.pick(nodes).check({
        ...{ client_id: `u${random.between(0, 5)}`, ip_address: `192.0.2.${random.between(1, 3)}` },
        ...{ endpoint: random.pick(['/a', '/b', '/x']), method: 'GET', cost: random.between(1, 2), detail: true },
        ...(random.between(0, 3) === 0 ? { attributes: { 'header.x-client': 'mobile', kilobytes: 7 } } : {}),
      })
      if (allowed === true) ids.push(String(id))
    })
    await Promise.all(sent)
  }
  return checks
}

async function simulate(node: Client, body: object): Promise<Answer> {
  const { status, body: answer } = await node.post(SIMULATE, body, ADMIN_TOKEN)
  expect(status, JSON.stringify(answer)).toBe(200)
  return answer as unknown as Answer
}

describe('a recorded run of strict rules', () => {
  test('in memory: a replay with the same rules reproduces every decision, from the database', async () => {
    const node = await serveEmbedded({ adminToken: ADMIN_TOKEN, eventsSample: 1 })
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${ADMIN_TOKEN}` }
    await node.send(RULE_SET, { method: 'PUT', headers, body: JSON.stringify(RULES) })
    const checks = await traffic([node], 1, true)
    const stored = async () => {
      const answer = await simulate(node, { rules: RULES, against: 'recorded' })
      expect(answer.replayed).toBe(checks)
      return answer
    }
    const answer = await vi.waitFor(stored, { timeout: 20_000, interval: 300 })
    expect(answer).toMatchObject({ sample_rate: 1, against: 'recorded', recording: { source: 'events', lost: 0 } })
    expect(answer.new.refused).toBeGreaterThan(100)
    expect(answer.operations.refunds).toBeGreaterThan(10)
    expect(answer.operations.resets).toBeGreaterThan(2)
    expect(answer.changes).toMatchObject({ newly_denied: 0, newly_allowed: 0 })
    expect(answer.rules.map(({ coverage }) => coverage)).toEqual(RULES.map(() => 'exact'))
    expect(answer.rules.every(({ refused, now_refused: now }) => refused === now)).toBe(true)
    const active = await simulate(node, { rule: { ...RULES[0], limit: 1, burst: 1 } })
    expect(active).toMatchObject({ against: 'rules', now: answer.new })
    expect(active.changes?.newly_denied).toBeGreaterThan(0)
    const listed = await node.get(`${SIMULATE}/requests`, ADMIN_TOKEN)
    const { requests } = listed.body as unknown as { requests: RecordedRequest[] }
    const { sample } = recordingOf(requests)
    const own = await replay(requests, { rules: RULES, against: 'recorded', sample })
    expect(own).toMatchObject({ new: answer.new, now: answer.now, changes: answer.changes, top: answer.top })
  })

  // Another node may still have a cached refusal when units are returned, and refuses until that expires.
  test.each([
    ['with two nodes', 2, false],
    ['with refunds and resets through one node', 1, true],
  ])('on Redis %s: the same, from files of JSON lines', async (_, nodes, operations) => {
    const { checks, result } = await recordedFleet(RULES, nodes, (all) => traffic(all, 2, operations))
    expect(result.replayed).toBe(checks)
    expect(result.new.refused).toBeGreaterThan(100)
    expect(result.changes).toMatchObject({ newly_denied: 0, newly_allowed: 0 })
    expect(result.operations).toMatchObject(operations ? { unmatched: 0 } : { refunds: 0, resets: 0 })
  })

  test('of leased rules differs by the units that leases hold back', async () => {
    const rule = { rule_id: 'leased', scope: 'per_user', limit: 300, window_seconds: 60, consistency: 'leased' }
    const send = async (nodes: readonly Client[]) => {
      for (let round = 0; round < 120; round += 1) {
        const checks = Array.from({ length: 20 }, (_, index) => ({ client_id: `u${index % 2}` }))
        await nodes[round % nodes.length]?.post(BATCH, { checks })
      }
      return 2400
    }
    const { checks, result } = await recordedFleet([rule], 2, send)
    const { newly_denied: more = 0, newly_allowed: fewer = 0 } = result.changes ?? {}
    expect(result.replayed).toBe(checks)
    expect(result.new.refused).toBeGreaterThan(0)
    // Leases refuse other requests, because a node holds units that another one needs, but about as many.
    // docs/guides/what-if.md states what was measured.
    expect(result.now?.allowed).toBeLessThanOrEqual(result.new.allowed * 1.01)
    expect(result.now?.allowed).toBeGreaterThanOrEqual(result.new.allowed * 0.9)
    expect((more + fewer) / checks).toBeLessThan(0.15)
  })
})

/** Runs nodes on one Redis, and replays what their files recorded. */
async function recordedFleet(
  rules: readonly object[],
  count: number,
  send: (nodes: readonly Client[]) => Promise<number>,
) {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  const folder = temporaryFolder()
  const paths = ['one', 'two'].slice(0, count).map((name) => join(folder, `${name}.jsonl`))
  const nodes: Service[] = []
  for (const target of paths) {
    const events = {
      eventsSinks: [{ kind: 'jsonl' as const, target }],
      eventsSample: 1,
      eventsKeys: { jsonl: 'clear' as const },
    }
    const own = {
      redis: redis.url,
      storeDeadlineMs: 5000,
      keySecret: 'a secret of all nodes',
      dataDir: temporaryFolder(),
    }
    nodes.push(await serveFile(JSON.stringify(rules), { ...own, ...events }))
  }
  const checks = await send(nodes)
  for (const node of nodes) await node.close()
  const requests = paths.flatMap((path, index) => {
    const reader = new LogReader()
    const read = readFileSync(path, 'utf8')
      .split('\n')
      .map((line) => reader.read(line))
    expect(reader.malformed).toBe(0)
    // Both nodes have the name of this machine.
    return read.filter((one) => one !== undefined).map((one) => ({ ...one, node: `${one.node} ${index}` }))
  })
  const recording = recordingOf(requests)
  expect(recording.lost).toBe(0)
  return { checks, result: await replay(recording.requests, { ...recording, rules, against: 'recorded' }) }
}

describe('POST /api/v1/rate-limit/simulate', () => {
  const rule = { rule_id: 'demo', scope: 'per_user', limit: 2, window_seconds: 60 }
  const requests = [0, 1, 2, 3].map((second) => ({ at: `2030-01-31T12:00:0${second}.5Z`, client_id: 'ann' }))

  test('replays requests of the body', async () => {
    const node = await serveApp([{ ...rule, limit: 3 }])
    const answer = await simulate(node, { rule, requests })
    expect(answer).toMatchObject({
      ...{ replayed: 4, against: 'rules', now: { allowed: 3, refused: 1 }, new: { allowed: 2, refused: 2 } },
      ...{ from: '2030-01-31T12:00:00.500Z', recording: { source: 'requests', recorded: 4, truncated: false } },
      top: [{ client: 'ann', refused: 2, now_refused: 1, first_refused_at: '2030-01-31T12:00:02.500Z' }],
    })
    const recorded = await simulate(node, {
      rules: [],
      against: 'recorded',
      requests: requests.map((one) => ({ ...one, allowed: false })),
    })
    expect(recorded).toMatchObject({ against: 'recorded', changes: { newly_allowed: 4 } })
    const lists = await simulate(node, { rules: [rule], against: [rule], requests })
    expect(lists.changes).toMatchObject({ newly_denied: 0, newly_allowed: 0 })
  })

  test.each<[string, object]>([
    ['neither rule nor rules', {}],
    ['both', { rule: {}, rules: [] }],
    ['an unknown comparison', { rules: [], against: 'yesterday' }],
    ['an invalid time', { rules: [], requests: [{ at: 'noon' }] }],
    ['an invalid address', { rules: [], requests: [{ at: '2030-01-31T12:00:00Z', ip_address: 'x' }] }],
    ['an unknown field', { rules: [], speed: 1 }],
    ['a range that is upside down', { rules: [], from: '1h', to: '2h' }],
    ['too many clients', { rules: [], top: 1001 }],
  ])('rejects %s', async (_, body) => {
    const node = await serveApp([])
    expect(await node.post(SIMULATE, body, ADMIN_TOKEN)).toMatchObject({
      status: 400,
      body: { code: 'REQUEST_INVALID' },
    })
  })

  test('names the mistakes of rules', async () => {
    const node = await serveApp([])
    const { status, body } = await node.post(SIMULATE, { rule: { ...rule, limit: -1 }, requests }, ADMIN_TOKEN)
    expect([status, body]).toMatchObject([400, { code: 'RULE_INVALID', errors: [{ field: 'limit' }] }])
  })

  test('needs a token, and stored events unless it has requests', async () => {
    const node = await serveApp([])
    expect((await node.post(SIMULATE, { rules: [] })).status).toBe(401)
    expect(await node.post(SIMULATE, { rules: [] }, ADMIN_TOKEN)).toMatchObject({ body: { code: 'NO_ANALYTICS' } })
  })

  test('refuses more simulations than it can queue, and goes on', async () => {
    const { node, tokens } = await withViewers(8)
    const all = await Promise.all(
      [...tokens, ...tokens].map((token) => node.post(SIMULATE, { rules: [rule], requests }, token)),
    )
    const codes = all.map(({ status }) => status)
    expect(codes.filter((status) => status === 200).length).toBeGreaterThanOrEqual(5)
    expect(all.find(({ status }) => status === 503)?.body).toMatchObject({ code: 'TOO_MANY_SIMULATIONS' })
    expect(codes).not.toContain(429)
    expect((await simulate(node, { rules: [rule], requests })).replayed).toBe(4)
  })

  test('one token takes two places at most: others still get in', async () => {
    const { node, tokens } = await withViewers(4)
    const [greedy = '', ...others] = tokens
    const send = (token: string) => node.post(SIMULATE, { rules: [rule], requests }, token)
    const [flood, rest] = await Promise.all([
      Promise.all(Array.from({ length: 12 }, () => send(greedy))),
      Promise.all(others.map(send)),
    ])
    expect(rest.map(({ status }) => status)).toEqual([200, 200, 200])
    expect(flood.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(2)
    const refused = flood.filter(({ status }) => status !== 200)
    expect(refused.length).toBeGreaterThan(0)
    for (const { status, body } of refused) {
      expect([status, body]).toMatchObject([429, { code: 'TOO_MANY_SIMULATIONS_OF_TOKEN' }])
      expect(body.detail).toMatch(/has 2 simulations on this process/)
    }
    expect((await send(greedy)).status, 'later').toBe(200)
  })

  test('a client that disconnects cancels its simulation, which is no error of the node', async () => {
    const { node, tokens } = await withViewers(4)
    const body = JSON.stringify({ rules: [rule], requests })
    const gone = tokens.map(async (token) => {
      const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
      const page = request(`${node.address}${SIMULATE}`, { method: 'POST', headers, agent: false }).on(
        'error',
        () => {},
      )
      page.end(body)
      await once(page, 'finish')
      expect((await node.get('/livez')).status).toBe(200) // by now the node has read the request, too
      page.destroy()
    })
    await Promise.all(gone)
    // The places of all of them are free again.
    for (const token of tokens)
      await vi.waitFor(async () => expect((await node.post(SIMULATE, body, token)).status).toBe(200), 10_000)
    expect(node.logged.filter(({ event }) => event === 'internal_error')).toEqual([])
  })

  test('a client that disconnects while it waits frees its place at once', async () => {
    const simulator = new Simulator()
    const endless = () => new Promise<never>(() => {})
    const options = { layer: null, ipv6_prefix: null }
    const send = (token: string) => {
      const gone = new AbortController()
      const ended = simulator.list(endless, options, { token, signal: gone.signal }).catch((error: Error) => error)
      return { gone, ended }
    }
    const [running, waiting] = [send('a'), send('a')]
    const code = async ({ ended }: ReturnType<typeof send>) => ((await ended) as ProblemError).problem.code
    expect(await code(send('a'))).toBe('TOO_MANY_SIMULATIONS_OF_TOKEN')
    waiting.gone.abort()
    await waiting.ended
    const next = send('a')
    expect(await code(send('a'))).toBe('TOO_MANY_SIMULATIONS_OF_TOKEN')
    running.gone.abort()
    await running.ended
    const last = send('a')
    for (const { gone, ended } of [next, last]) {
      gone.abort()
      await ended
    }
  })
})
