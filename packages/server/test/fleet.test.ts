import { type RedisProcess, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { newSecret, tokenHash } from '../src/access/token.ts'
import { type ApiHotKey, mergeHotKeys } from '../src/fleet/api-hot-key.ts'
import {
  type Counts,
  FigureRings,
  mergeSteps,
  minus,
  RESOLUTIONS,
  type Step,
  shownPeriod,
} from '../src/fleet/figures.ts'
import { Fleet, nodeOf } from '../src/fleet/fleet.ts'
import { HOT_KEYS_PATH } from '../src/http/routes/hot-keys.ts'
import { temporaryFolder, usePostgres } from './databases.ts'
import { ADMIN_TOKEN, CHECK, type Client, captureLog, RULES, serveApp, serveFile, serveSettings } from './service.ts'

const FLEET = '/api/v1/fleet'
const RULE = '[{ "rule_id": "one", "limit": 2, "window_seconds": 60 }]'

type Node = { address: string; status: string; reasons: string[]; checks_per_second: number; store: string }
type Figures = { step_seconds: number; allowed: number[]; refused: number[]; sources: Record<string, number[]> }
type Answer = { nodes: Node[]; alerts: { type: string }[]; figures: Figures[]; incomplete: string | null }

const counts = (allowed: number, refused = 0): Counts => ({
  allowed,
  refused,
  sources: { store: allowed, lease: refused, local: 0, policy: 0 },
  latency: [allowed, refused],
})

describe('figures', () => {
  test('the increase of cumulative counts is what happened in between', () => {
    expect(minus(counts(5, 2), counts(3, 2))).toEqual(counts(2, 0))
  })

  test('steps of several processes with the same start are added up', () => {
    const step = (at: number, allowed: number): Step => ({ at, ...counts(allowed) })
    expect(mergeSteps([[step(1, 1), step(3, 4)], [step(1, 2)]])).toEqual([step(1, 3), step(3, 4)])
  })

  test('a ring keeps a little more than a minute in seconds and five minutes in steps of five seconds', () => {
    const rings = new FigureRings()
    for (let second = 1000; second < 2000; second++) rings.add(counts(1), second)
    const [minute, five] = rings.figures()
    expect([minute?.steps.length, minute?.steps[0]?.at, minute?.steps[0]?.allowed]).toEqual([70, 1930, 1])
    expect([five?.steps.length, five?.steps[0]?.at, five?.steps[0]?.allowed]).toEqual([62, 1690, 5])
  })

  // Reports are up to two seconds old when they are read, and are read up to a second before they are shown.
  test.each([0, 1, 2, 3])(
    'every step is shown with all of its decisions, from a report that is %i s old',
    (ageSeconds) => {
      const rings = new FigureRings()
      for (let now = 1000; now < 2000; now++) {
        rings.add(counts(1), now - 1 - ageSeconds)
        if (now < 1400) continue
        for (const [index, resolution] of RESOLUTIONS.entries()) {
          const { from, to } = shownPeriod(resolution, now * 1000)
          const shown = rings.figures()[index]?.steps.filter(({ at }) => at >= from && at < to) ?? []
          const means = shown.map(({ allowed }) => allowed / resolution.stepSeconds)
          expect(means).toEqual(Array(resolution.shown).fill(1))
        }
      }
    },
  )
})

test.each([
  { secondsLater: 5, rates: [0.3333, 0.0833] },
  { secondsLater: 60, rates: [0.3333, 0.0833] },
  { secondsLater: 70, rates: [0, 0] },
])('the rate of a node $secondsLater s after its last decisions is $rates', ({ secondsLater, rates }) => {
  const rings = new FigureRings()
  rings.add(counts(15, 5), 1000)
  const facts = { node: 'a', address: '', region: null, version: '', started_at: '', status: 'ready' as const }
  const more = { reasons: [], rules_version: 1, rules: 1, store: 'memory' as const, store_failure: null }
  const rest = { database: null, region_isolated: null, sinks: [], alerts: [], figures: rings.figures() }
  const node = nodeOf({ report: { ...facts, ...more, ...rest }, ageMs: 0 }, (1000 + secondsLater) * 1000)
  expect([node.checks_per_second, node.refused_per_second]).toEqual(rates)
})

test('the hot keys of all nodes are those that they report, without nodes that are silent', async () => {
  const key = { rule_id: 'r', name: 'default', key_hash: 'a', checks_per_second: 100, share: 0.5 }
  const reportOf = (node: string, hotKeys?: readonly ApiHotKey[]) =>
    JSON.stringify({ node, figures: [], alerts: [], ...(hotKeys && { hot_keys: hotKeys }) })
  const list = async () => [
    { process: 'b', text: reportOf('b', [key]), ageMs: 0 },
    { process: 'earlier version', text: reportOf('c'), ageMs: 0 },
    { process: 'silent', text: reportOf('d', [key]), ageMs: 60_000 },
  ]
  const reports = { put: async () => {}, remove: async () => {}, list }
  const report = () => ({ ...JSON.parse(reportOf('own', [key])), address: '' })
  const fleet = new Fleet({ reports, counts: () => counts(0), report, log: captureLog().log })
  expect(mergeHotKeys(await fleet.hotKeys())).toEqual([{ ...key, checks_per_second: 200 }])
})

test('a node without a fleet lists itself', async () => {
  const { get } = await serveApp([{ rule_id: 'one', limit: 1, window_seconds: 1 }])
  const { nodes, incomplete } = (await get(FLEET, ADMIN_TOKEN)).body as unknown as Answer
  expect([nodes.length, nodes[0]?.status, incomplete]).toEqual([1, 'ready', null])
})

async function fleetOf(client: Client): Promise<Answer> {
  return (await client.get(FLEET, ADMIN_TOKEN)).body as unknown as Answer
}

function sum(values: readonly number[] = []): number {
  return values.reduce((total, value) => total + value, 0)
}

/** Expects each node to list both, and `one` to see the checks of `other` and its shutdown. */
async function expectFleet(one: Client, other: Client & { close(): Promise<void> }): Promise<void> {
  for (const client of [one, other]) {
    await vi.waitFor(async () => expect((await fleetOf(client)).nodes).toHaveLength(2), 10_000)
  }
  for (let i = 0; i < 5; i++) await other.post(CHECK, {})
  expect((await one.get(`${HOT_KEYS_PATH}?nodes=all`, ADMIN_TOKEN)).body).toEqual({ hot_keys: [] })
  await vi.waitFor(async () => {
    const { figures, nodes } = await fleetOf(one)
    for (const { allowed, refused } of figures) expect([sum(allowed), sum(refused)]).toEqual([2, 3])
    expect(nodes.find(({ address }) => address === other.address)?.checks_per_second).toBeGreaterThan(0)
  }, 20_000)
  await other.close()
  await vi.waitFor(async () => expect((await fleetOf(one)).nodes).toHaveLength(1), 10_000)
}

describe('nodes that share a Redis', () => {
  let redis: RedisProcess
  beforeAll(async () => {
    redis = await startRedis()
  })
  afterAll(() => redis.stop())

  test('see each other', { timeout: 60_000 }, async () => {
    const settings = { redis: redis.url, checks: 'open' as const }
    const one = await serveFile(RULE, settings)
    await expectFleet(one, await serveFile(RULE, settings))
  })
})

describe('nodes that share a PostgreSQL', () => {
  const postgres = usePostgres()

  test('see each other, and which of them are degraded', { timeout: 120_000 }, async () => {
    const settings = { database: postgres().createDatabase() }
    const one = await serveSettings({ ...settings, dataDir: temporaryFolder() })
    const other = await serveSettings({ ...settings, dataDir: temporaryFolder() })
    expect((await one.post(RULES, JSON.parse(RULE)[0], ADMIN_TOKEN)).status).toBe(201)
    await vi.waitFor(async () => expect((await other.get(`${RULES}/one`, ADMIN_TOKEN)).status).toBe(200), 10_000)
    const killed = await one.post('/api/v1/rate-limit/kill-switch', { on: true, rule_id: 'address_flood' }, ADMIN_TOKEN)
    expect(killed.status).toBe(200)
    await vi.waitFor(async () => {
      const { nodes, alerts } = await fleetOf(one)
      expect(nodes.map(({ status }) => status)).toEqual(['degraded', 'degraded'])
      expect(alerts.map(({ type }) => type)).toEqual(['node.degraded', 'node.degraded'])
    }, 20_000)
    await expectFleet(one, other)
  })
})

test('the stream sends the state of the fleet, and ends with its token', async () => {
  const secret = newSecret()
  const dates = { createdAt: '', expiresAt: null, revokedAt: null }
  const token = { tokenId: 'tok_1', name: 'test', role: 'viewer' as const, hash: tokenHash(secret), ...dates }
  const { address, admin } = await serveApp([], undefined, { tokens: [token] })
  const response = await fetch(`${address}${FLEET}/stream`, { headers: { authorization: `Bearer ${secret}` } })
  expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8')
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  while (!text.includes('event: fleet')) text += (await reader?.read())?.value ?? ''
  admin.tokens.replace([{ ...token, revokedAt: '2029-01-01T00:00:00Z' }])
  while ((await reader?.read())?.done === false);
})
