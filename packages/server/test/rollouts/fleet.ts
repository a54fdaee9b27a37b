// Nodes on one PostgreSQL and one Redis with load, for tests of rollouts. Windows and steps take seconds.

import { type Random, seededRandom } from 'sluice/testing'
import { expect, onTestFinished, vi } from 'vitest'
import { PROPOSALS_PATH } from '../../src/rollouts/edit-hooks.ts'
import { type Server, startServer } from '../../src/service/server.ts'
import type { Settings } from '../../src/settings/settings.ts'
import { ADMIN_TOKEN, type Answer, captureLog, clientOf, defaults, RULES } from '../service.ts'

export type FleetNode = Server & {
  readonly logged: readonly Record<string, unknown>[]
  post(path: string, body: object): Promise<Answer>
  get(path: string): Promise<Answer>
  send(path: string, method: string, body?: object): Promise<Answer>
}

/** Thresholds of the guard for a few dozen requests a second, on a machine that is busy with other tests. */
export const QUICK_GUARD = {
  window: '1s',
  newly_denied: { min_pairs: 40, hard_min_pairs: 30 },
  errors: { percent: 100 },
  p99: { ms: 60_000 },
}

export const RULE = {
  ...{ rule_id: 'posts', endpoint_pattern: '/posts', scope: 'per_user', limit: 1000, window_seconds: 1 },
}

/** Calls the function when the test, or all tests of a describe, have ended. Concurrent tests have one of their own. */
export type AtEnd = (close: () => void | Promise<void>) => void

export async function startNode(
  settings: Partial<Settings>,
  confirmMs = 15_000,
  atEnd: AtEnd = onTestFinished,
): Promise<FleetNode> {
  const { log, logged } = captureLog('info')
  const all = { ...defaults(), adminToken: ADMIN_TOKEN, guardEditsMs: 0, storeDeadlineMs: 5000, ...settings, port: 0 }
  const server = await startServer(all, log, undefined, { rollouts: { tickMs: 250, confirmMs } })
  atEnd(() => server.close())
  const client = clientOf(server.address)
  const send = (path: string, method: string, body?: object) => {
    const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }
    if (body === undefined) return client.send(path, { method, headers: { authorization: headers.authorization } })
    return client.send(path, { method, headers, body: JSON.stringify(body) })
  }
  return {
    ...server,
    logged,
    post: (path, body) => send(path, 'POST', body),
    get: (path) => send(path, 'GET'),
    send,
  }
}

export async function createRule(node: FleetNode, nodes: readonly FleetNode[], rule: object = RULE): Promise<void> {
  const { status, body } = await node.post(`${RULES}?guard=off&reason=test`, rule)
  expect([status, body]).toMatchObject([201, {}])
  const { rule_id: id } = rule as { rule_id: string }
  await vi.waitFor(() => expect(nodes.every(({ limiter }) => limiter.rule(id) !== undefined)).toBe(true), 10_000)
}

/** Proposes and starts a change. Returns the id. */
export async function rollOut(node: FleetNode, body: object): Promise<string> {
  const created = await node.post(PROPOSALS_PATH, { reason: 'test', guard: QUICK_GUARD, ...body })
  expect(created.body).toMatchObject({ proposal_id: expect.any(String) })
  const id = String(created.body.proposal_id)
  expect((await node.post(`${PROPOSALS_PATH}/${id}/start`, {})).body).toMatchObject({ state: 'rolling_out' })
  return id
}

export async function shown(node: FleetNode, id: string): Promise<Record<string, unknown>> {
  return (await node.get(`${PROPOSALS_PATH}/${id}`)).body
}

export type Load = {
  /** Requests so far. */
  readonly sent: number
  /** Refused requests by key. */
  readonly refused: ReadonlyMap<string, number>
  /** Send time of the last refused request of a key, monotonic. */
  readonly refusedMs: ReadonlyMap<string, number>
  /** Changes the rate, the keys or their weights. */
  perTick: number
  key: (random: Random) => string
  stop(): void
}

const TICK_MS = 50

type LoadOptions = { readonly perTick: number; readonly keys: number; readonly path?: string; readonly atEnd?: AtEnd }

/** Sends checks to random nodes until the test ends. */
export function load(nodes: readonly FleetNode[], options: LoadOptions): Load {
  const random = seededRandom(20)
  const { path = '/posts', atEnd = onTestFinished } = options
  const refused = new Map<string, number>()
  const refusedMs = new Map<string, number>()
  let stopped = false
  const running = {
    sent: 0,
    refused,
    refusedMs,
    perTick: options.perTick,
    key: (from: Random) => `user ${from.between(0, options.keys - 1)}`,
    stop: () => {
      stopped = true
    },
  }
  const one = async () => {
    const user = running.key(random)
    const node = nodes[random.between(0, nodes.length - 1)] as FleetNode
    running.sent += 1
    const sentMs = performance.now()
    const { allowed } = await node.check({ user, path })
    if (allowed) return
    refused.set(user, (refused.get(user) ?? 0) + 1)
    refusedMs.set(user, Math.max(sentMs, refusedMs.get(user) ?? 0))
  }
  const tick = async () => {
    if (stopped) return
    await Promise.all(Array.from({ length: running.perTick }, () => one().catch(() => {})))
    setTimeout(() => void tick(), TICK_MS)
  }
  void tick()
  atEnd(() => running.stop())
  return running
}
