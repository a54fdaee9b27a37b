import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { json } from 'node:stream/consumers'
import { type RedisProcess, startFaultProxy, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { AUDIT_PATH } from '../../src/http/routes/audit-list.ts'
import { PROPOSALS_PATH } from '../../src/rollouts/edit-hooks.ts'
import { temporaryFolder, usePostgres } from '../databases.ts'
import { RULES } from '../service.ts'
import { type AtEnd, createRule, type FleetNode, load, RULE, rollOut, shown, startNode } from './fleet.ts'

const update = (id: string, change: object) => [{ op: 'update', rule: { rule_id: id, ...change } }]

type Figures = Record<'pairs' | 'newly_denied' | 'offset' | 'newly_allowed' | 'both_denied', number>

/** Denials before offset: an offset may be carried from a window that the chart no longer shows. */
function sums(figures: readonly Figures[]) {
  const sum = (read: (one: Figures) => number) => figures.reduce((total, one) => total + read(one), 0)
  return {
    pairs: sum(({ pairs }) => pairs),
    denied: sum(({ newly_denied, offset }) => newly_denied + offset),
    allowed: sum(({ newly_allowed }) => newly_allowed),
    both: sum(({ both_denied }) => both_denied),
  }
}

/** Collects webhook events of rollouts: type and proposal. */
async function startReceiver(atEnd: AtEnd) {
  const received: { type: string; id: string }[] = []
  const server = createServer(async (request, response) => {
    const type = String(request.headers['sluice-event'])
    const { data } = (await json(request)) as { data: { proposal_id?: string } }
    if (type.startsWith('rollout.')) received.push({ type, id: data.proposal_id ?? '' })
    response.end()
  })
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
  atEnd(() => {
    server.closeAllConnections()
    server.close()
  })
  const typesOf = (wanted: string) => received.filter(({ id }) => id === wanted).map(({ type }) => type)
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, typesOf }
}

const reaches = (node: FleetNode, id: string, state: string, ms: number) =>
  vi.waitFor(async () => expect(await shown(node, id)).toMatchObject({ state }), { timeout: ms, interval: 100 })

// One fleet for all tests, each with a rule and a path of its own. They mostly wait for windows, so they run together.
describe.concurrent('a rollout on four nodes', () => {
  const postgres = usePostgres()
  const closing: (() => void | Promise<void>)[] = []
  const nodes: FleetNode[] = []
  let webhooks: Awaited<ReturnType<typeof startReceiver>>
  beforeAll(async () => {
    const atEnd: AtEnd = (close) => void closing.push(close)
    const redis = await startRedis()
    atEnd(() => redis.stop())
    webhooks = await startReceiver(atEnd)
    const shared = { database: postgres().createDatabase(), redis: redis.url, guardEditsMs: 60_000 }
    const sending = { webhooks: [webhooks.url], webhookSecret: 'secret of the webhooks' }
    while (nodes.length < 4) {
      const dataDir = mkdtempSync(join(tmpdir(), 'sluice-data-'))
      atEnd(() => rmSync(dataDir, { recursive: true, force: true }))
      nodes.push(await startNode({ ...shared, ...sending, dataDir }, undefined, atEnd))
    }
  })
  afterAll(async () => {
    for (const close of closing.reverse()) await close()
  })
  /** A rule of the test, and a load on it. */
  const ruleOf = async (id: string, more: object = {}) => {
    const [node] = nodes as [FleetNode]
    const path = `/${id}`
    await createRule(node, nodes, { ...RULE, rule_id: id, endpoint_pattern: path, ...more })
    const start = (perTick: number, keys: number, atEnd: AtEnd) => load(nodes, { perTick, keys, path, atEnd })
    return { node, path, start }
  }

  test('a limit of 0 by mistake: only canary keys are refused, and the guard rolls back with the numbers', async ({
    onTestFinished: atEnd,
  }) => {
    const { node, start } = await ruleOf('zero')
    const traffic = start(15, 300, atEnd)
    const id = await rollOut(node, { changes: update('zero', { limit: 0 }), steps: [{ canary: '10%' }] })
    await reaches(node, id, 'rolled_back', 60_000)
    const { sentence, version } = (await shown(node, id)) as { sentence: string; version: number }
    expect(sentence).toMatch(
      /^rolled back by the guard: rule zero: [\d.]+ % of \d+ paired requests newly denied \(threshold \d+ %\)/,
    )
    await vi.waitFor(
      () => expect(Math.min(...nodes.map(({ limiter }) => limiter.version))).toBeGreaterThanOrEqual(version),
      10_000,
    )
    const [canaryKey] = traffic.refused.keys()
    const admits = async ({ limiter }: FleetNode) =>
      (await limiter.peek({ user: String(canaryKey), path: '/zero' })).allowed
    await vi.waitFor(async () => expect(await Promise.all(nodes.map(admits))).not.toContain(false), 10_000)
    const [endedMs, sent] = [performance.now(), traffic.sent]
    await vi.waitFor(() => expect(traffic.sent).toBeGreaterThan(sent + 500), 60_000)
    const share = traffic.refused.size / 300
    expect(share).toBeGreaterThan(0.02)
    expect(share).toBeLessThan(0.2) // 10 % of 300 keys
    expect(Math.max(...traffic.refusedMs.values())).toBeLessThan(endedMs)
    const { entries } = (await node.get(`${AUDIT_PATH}?target=${id}`)).body as {
      entries: { reason: string; action: string }[]
    }
    expect(entries[0]).toMatchObject({
      action: 'proposal.roll_back',
      actor: 'guard',
      reason: expect.stringContaining('newly denied'),
    })
    expect((await node.get(`${RULES}/zero`)).body).toMatchObject({ limit: 1000, version })
    await vi.waitFor(() => expect(webhooks.typesOf(id)).toEqual(['rollout.started', 'rollout.rolled_back']), 10_000)
  })

  test('a harmless change passes every step and applies to all keys', async ({ onTestFinished: atEnd }) => {
    const { node, start } = await ruleOf('harmless')
    start(10, 200, atEnd)
    const common = { for: '2s', max: '5m' }
    const steps = [
      { shadow: '2s', max: '5m' },
      { canary: '5%', ...common },
      { canary: '50%', ...common },
    ]
    const id = await rollOut(node, { changes: update('harmless', { limit: 900 }), steps })
    await reaches(node, id, 'done', 90_000)
    await vi.waitFor(
      () =>
        expect(nodes.map(({ limiter }) => limiter.rule('harmless')?.limits[0]?.limit)).toEqual(nodes.map(() => 900)),
      10_000,
    )
    const text = String((await node.get('/metrics')).body.text)
    expect(text).toMatch(/^sluice_rollout_pairs_total\{rule="harmless",result="same"\} [1-9]/m)
    await vi.waitFor(
      async () => expect(String((await node.get('/metrics')).body.text)).not.toContain('share{rule="harmless"}'),
      10_000,
    )
    // Each step, and the end; a node may see two of them at once. Not the windows between them.
    for (const { logged } of nodes) {
      const applied = logged.filter(({ event, rules }) => event === 'rollouts_applied' && `${rules}` === 'harmless')
      expect(applied.length).toBeGreaterThanOrEqual(2)
      expect(applied.length).toBeLessThanOrEqual(steps.length + 1)
    }
  })

  test('a change that halves the limit trips when it refuses keys that the old one admits', async ({
    onTestFinished: atEnd,
  }) => {
    const { node, start } = await ruleOf('halved')
    const id = await rollOut(node, {
      changes: update('halved', { limit: 5, burst: 5, window_seconds: 10 }),
      steps: [{ shadow: '30s' }, { canary: '5%' }],
    })
    const traffic = start(15, 100, atEnd)
    await reaches(node, id, 'rolled_back', 60_000)
    expect(traffic.refused.size).toBe(0) // a key under shadow is never refused by it
  })

  test('a spike that both versions refuse does not trip, nor one flooding client; chart and verdict agree', async ({
    onTestFinished: atEnd,
  }) => {
    const { node, start } = await ruleOf('spike', { limit: 20, burst: 10, window_seconds: 60 })
    const id = await rollOut(node, { changes: update('spike', { limit: 19, burst: 10 }), steps: [{ canary: '50%' }] })
    const traffic = start(5, 60, atEnd)
    await vi.waitFor(() => expect(traffic.sent).toBeGreaterThan(100), 60_000)
    traffic.perTick = 40 // far above the limit of each key
    await vi.waitFor(() => expect(traffic.sent).toBeGreaterThan(2000), 90_000)
    traffic.key = (random) => (random.between(0, 9) < 9 ? 'flood' : `user ${random.between(0, 59)}`)
    await vi.waitFor(() => expect(traffic.sent).toBeGreaterThan(3000), 90_000)
    expect(traffic.refused.size).toBeGreaterThan(50)
    expect(await shown(node, id)).toMatchObject({ state: 'rolling_out', step: { paused: null } })
    traffic.stop()
    await vi.waitFor(async () => {
      const { verdict } = (await shown(node, id)) as { verdict: { rules: Figures[] } }
      const { rules } = (await node.get(`${PROPOSALS_PATH}/${id}/figures`)).body as { rules: { windows: Figures[] }[] }
      expect(verdict.rules.map((rule) => sums([rule]))).toEqual(rules.map(({ windows }) => sums(windows)))
    }, 20_000)
  })

  test('silence neither advances nor rolls back; after the maximum time it says what is missing', async () => {
    const { node } = await ruleOf('silence')
    const id = await rollOut(node, {
      changes: update('silence', { limit: 0 }),
      steps: [{ canary: '10%', for: '1s', max: '5s' }, { canary: '50%' }],
    })
    await vi.waitFor(
      async () => expect((await shown(node, id)).step).toMatchObject({ index: 0, paused: expect.any(String) }),
      { timeout: 30_000, interval: 100 },
    )
    expect((await shown(node, id)).sentence).toBe(
      'paused at step 1 of 2, canary 10% for 1s: no verdict after 5s: rule silence: 0 of 40 pairs',
    )
  })

  test('the guard runs while a rollout is paused or waits for a person', async ({ onTestFinished: atEnd }) => {
    const { node, start } = await ruleOf('paused')
    const changes = update('paused', { limit: 0 })
    const id = await rollOut(node, { changes, steps: [{ shadow: true }, { canary: '10%' }] })
    await node.post(`${PROPOSALS_PATH}/${id}/pause`, { reason: 'waiting' })
    start(10, 200, atEnd)
    await reaches(node, id, 'rolled_back', 60_000)
  })

  test('a global bucket is measured, then paired, and a limit of 0 is rolled back', async ({
    onTestFinished: atEnd,
  }) => {
    const { node, start } = await ruleOf('shared', { scope: 'global', limit: 1_000_000 })
    const id = await rollOut(node, { changes: update('shared', { limit: 0 }), steps: [{ shadow: true }] })
    expect(await shown(node, id)).toMatchObject({ pair_share: 0 })
    const traffic = start(10, 200, atEnd)
    await reaches(node, id, 'rolled_back', 60_000)
    expect(traffic.refused.size).toBe(0)
  })

  test('a direct edit is guarded: the response says so, and the guard restores the rule', async ({
    onTestFinished: atEnd,
  }) => {
    const { node, start } = await ruleOf('edited')
    const answer = await node.send(`${RULES}/edited`, 'PATCH', { limit: 0 })
    const [, id = ''] = /^(prop_\w+); until \S+$/.exec(answer.headers.get('sluice-guard') ?? '') ?? []
    expect(await shown(node, id)).toMatchObject({ kind: 'edit', state: 'rolling_out', steps: [{ guard: '1m' }] })
    start(40, 200, atEnd)
    await reaches(node, id, 'rolled_back', 90_000)
    // The evaluator's node applies the old rule first; the others follow.
    await vi.waitFor(
      async () => expect((await node.get(`${RULES}/edited`)).body).toMatchObject({ limit: 1000 }),
      10_000,
    )
  })

  test('an edit that tightens an abuse rule is never reverted, only alerted', async ({ onTestFinished: atEnd }) => {
    const { node, start } = await ruleOf('login', { intent: 'abuse' })
    const answer = await node.send(`${RULES}/login`, 'PATCH', { limit: 0 })
    const id = answer.headers.get('sluice-guard')?.split(';', 1)[0] ?? ''
    start(40, 200, atEnd)
    await vi.waitFor(async () => {
      const { entries } = (await node.get(`${AUDIT_PATH}?target=${id}`)).body as { entries: { action: string }[] }
      expect(entries[0]).toMatchObject({ action: 'proposal.alert', reason: expect.stringContaining('newly denied') })
    }, 90_000)
    expect(await shown(node, id)).toMatchObject({ state: 'rolling_out', verdict: { outcome: 'fail', action: 'alert' } })
    expect((await node.get(`${RULES}/login`)).body).toMatchObject({ limit: 0 })
  })

  test('a second edit that makes itself a defence is reverted alone, and the first one is judged again', async ({
    onTestFinished: atEnd,
  }) => {
    const { node, start } = await ruleOf('twice')
    const edit = async (fields: object) => {
      const { headers } = await node.send(`${RULES}/twice`, 'PATCH', fields)
      return headers.get('sluice-guard')?.split(';', 1)[0] ?? ''
    }
    const [first, second] = [await edit({ limit: 900 }), await edit({ limit: 0, intent: 'abuse' })]
    expect(await shown(node, first)).toMatchObject({ changes: [{ judged: 'later' }] })
    start(40, 200, atEnd)
    await reaches(node, second, 'rolled_back', 90_000)
    const { sentence } = await shown(node, second)
    expect(sentence).toMatch(/newly denied .*; reverted twice\.(intent|limit), twice\.(intent|limit)$/)
    await vi.waitFor(
      async () => expect((await node.get(`${RULES}/twice`)).body).toMatchObject({ limit: 900, intent: 'fairness' }),
      10_000,
    )
    expect(await shown(node, first)).toMatchObject({ state: 'rolling_out', changes: [{ judged: 'now' }], attempt: 2 })
    const rolledBack = nodes.flatMap(({ logged }) => logged).find(({ proposal, rules }) => proposal === second && rules)
    expect(rolledBack).toMatchObject({ rules: ['twice'], not_reverted: [] })
  })

  test('guard=off needs a reason', async () => {
    const { node } = await ruleOf('unguarded')
    expect((await node.send(`${RULES}/unguarded?guard=off`, 'PATCH', { limit: 1 })).body).toMatchObject({
      ...{ status: 400, errors: [{ field: 'reason' }] },
    })
    const answer = await node.send(`${RULES}/unguarded?guard=off&reason=incident`, 'PATCH', { limit: 1 })
    expect([answer.status, answer.headers.get('sluice-guard')]).toEqual([200, 'off; the request turned it off'])
  })

  test('10,000 keys on 4 nodes in 3 steps: membership is identical and monotone', async () => {
    const { node, path } = await ruleOf('sticky')
    const steps = [{ canary: '1%' }, { canary: '10%' }, { canary: '50%' }]
    const id = await rollOut(node, { changes: update('sticky', { limit: 900 }), steps, guard: 'off' })
    const users = Array.from({ length: 10_000 }, (_, index) => `user ${index}`)
    const members = async ({ limiter }: FleetNode) => {
      const found = new Set<string>()
      for (let from = 0; from < users.length; from += 1000) {
        const some = users.slice(from, from + 1000)
        const limits = await Promise.all(some.map(async (user) => (await limiter.peek({ user, path })).limit))
        some.forEach((user, index) => {
          if (limits[index] === 900) found.add(user)
        })
      }
      return found
    }
    let before = new Set<string>()
    for (const [index, share] of [0.01, 0.1, 0.5].entries()) {
      if (index > 0) await node.post(`${PROPOSALS_PATH}/${id}/promote`, {})
      await vi.waitFor(async () => {
        const texts = await Promise.all(nodes.map(async (one) => String((await one.get('/metrics')).body.text)))
        expect(texts.every((text) => text.includes(`sluice_rollout_share{rule="sticky"} ${share}\n`))).toBe(true)
      }, 20_000)
      const all: Set<string>[] = []
      for (const one of nodes) all.push(await members(one))
      const [first = new Set<string>()] = all
      for (const other of all) expect(other).toEqual(first)
      expect([...before].filter((user) => !first.has(user))).toEqual([])
      expect(Math.abs(first.size / 10_000 - share)).toBeLessThan(0.02)
      before = first
    }
  })
})

describe('a rollout during outages', () => {
  const postgres = usePostgres()
  let redis: RedisProcess | undefined
  beforeAll(async () => {
    redis = await startRedis()
  })
  afterAll(() => redis?.stop())

  let used = 0
  /** Each test has a Redis database of its own. */
  const settings = () => ({
    database: postgres().createDatabase(),
    redis: `${redis?.url}/${used++}`,
    dataDir: temporaryFolder(),
  })
  const changes = update('posts', { limit: 900 })

  test('a restarted node continues, and a restarted database delays the rollout only', async () => {
    const shared = settings()
    const nodes = [await startNode(shared), await startNode({ ...shared, dataDir: temporaryFolder() })]
    const [node] = nodes as [FleetNode]
    await createRule(node, nodes)
    load([node], { perTick: 10, keys: 100 })
    const id = await rollOut(node, { changes, steps: [{ canary: '50%', for: '3s', max: '5m' }] })
    const limitsOf = async ({ check }: FleetNode) => {
      const users = Array.from({ length: 40 }, (_, index) => `user ${index}`)
      return (await Promise.all(users.map((user) => check({ user, path: '/posts' })))).map(({ limit }) => limit)
    }
    await vi.waitFor(
      async () => expect(new Set(await limitsOf(nodes[1] as FleetNode))).toEqual(new Set([900, 1000])),
      10_000,
    )
    const chosen = await limitsOf(nodes[1] as FleetNode)
    await nodes[1]?.close()
    const restarted = await startNode({ ...shared, dataDir: temporaryFolder() })
    expect(await limitsOf(restarted)).toEqual(chosen)
    await postgres().down()
    await postgres().up()
    await reaches(node, id, 'done', 60_000)
    await vi.waitFor(async () => expect(new Set(await limitsOf(node))).toEqual(new Set([900])), 10_000)
  })

  test('a node cut off from the database enforces the current version, and follows again when it is back', async () => {
    const shared = settings()
    const url = new URL(shared.database)
    const proxy = await startFaultProxy(Number(url.port))
    onTestFinished(() => proxy.stop())
    url.port = String(proxy.port)
    const node = await startNode(shared)
    const cutOff = await startNode({ ...shared, database: url.href, dataDir: temporaryFolder() }, 2000)
    await createRule(node, [node, cutOff])
    const id = await rollOut(node, { changes, steps: [{ canary: '50%' }] })
    const limitsOf = async ({ check }: FleetNode) => {
      const users = Array.from({ length: 40 }, (_, index) => `user ${index}`)
      return new Set(
        (await Promise.all(users.map((user) => check({ user, path: '/posts' })))).map(({ limit }) => limit),
      )
    }
    const both = new Set([900, 1000])
    await vi.waitFor(async () => expect(await limitsOf(cutOff)).toEqual(both), 10_000)
    proxy.shut()
    await vi.waitFor(async () => expect(await limitsOf(cutOff)).toEqual(new Set([1000])), {
      timeout: 20_000,
      interval: 100,
    })
    expect(cutOff.logged).toContainEqual(expect.objectContaining({ event: 'rollouts_unconfirmed' }))
    expect((await cutOff.get('/readyz')).body.reasons).toContainEqual(expect.stringMatching(/^rollouts: /))
    expect(await limitsOf(node)).toEqual(both)
    proxy.open()
    await vi.waitFor(async () => expect(await limitsOf(cutOff)).toEqual(both), { timeout: 30_000, interval: 100 })
    await node.post(`${PROPOSALS_PATH}/${id}/promote`, {})
    await vi.waitFor(async () => expect(await limitsOf(cutOff)).toEqual(new Set([900])), {
      timeout: 20_000,
      interval: 100,
    })
  })
})
