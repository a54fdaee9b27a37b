// Approximate counting by four nodes on one real Redis: together they exceed the limit by at most max_unsynced units
// each. Writes a table of docs/guides/leases.md: UPDATE_FIGURES=1 npx vitest run fleet/approximate

import { readFileSync, writeFileSync } from 'node:fs'
import { Redis } from 'ioredis'
import { type Charge, compileLimit, type Limit, type Store, wallClock } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type RedisProcess, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { Oracle } from '../simulation/oracle.ts'

const GUIDE = new URL('../../../../docs/guides/leases.md', import.meta.url)
const START = '<!-- approximate:start -->'
const END = '<!-- approximate:end -->'

const NODES = 4
const LIMIT = 400
const MAX_UNSYNCED = 20
const WINDOW_US = 1_000_000
const TURN_MS = 5
/** Per node and turn: each node alone requests more than the limit. */
const CHECKS_PER_TURN = 6
const TURNS = 600
const ALGORITHMS = ['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const

let redis: RedisProcess
beforeAll(async () => {
  redis = await startRedis()
})
afterAll(() => redis.stop())

const rows: string[] = []

test.each(ALGORITHMS)(
  '%s: no window admits more than limit + nodes × max_unsynced',
  { timeout: 60_000 },
  async (name) => {
    const numbers = { id: name, fact: 'user', algorithm: name, units: LIMIT, windowUs: WINDOW_US } as const
    const limit = compileLimit({ ...numbers, onFail: 'closed', approximate: { maxUnsynced: MAX_UNSYNCED } })
    const oracle = new Oracle()
    const runs = await Promise.all(Array.from({ length: NODES }, () => run(limit, oracle)))
    const checks = NODES * TURNS * CHECKS_PER_TURN
    const requests = runs.reduce((sum, { requests }) => sum + requests, 0)
    const overshoot = overshootOf(oracle, limit)
    expect(overshoot).toBeLessThanOrEqual(NODES * MAX_UNSYNCED)
    expect(runs.every(({ unsynced }) => unsynced === 0)).toBe(true)
    expect(requests).toBeLessThan(checks / 2)
    const share = ((100 * requests) / checks).toFixed(1)
    rows.push(`| \`${name}\` | ${LIMIT} | ${NODES} × ${MAX_UNSYNCED} | ${overshoot} | ${share} % |`)
  },
)

test('docs/guides/leases.md has the figures of a run', () => {
  const page = readFileSync(GUIDE, 'utf8')
  const [start, end] = [page.indexOf(START) + START.length, page.indexOf(END)]
  const head = [
    '| algorithm | limit per second | may exceed it by | exceeded it by | checks sent to Redis |',
    '|---|---|---|---|---|',
  ]
  const table = `\n${[...head, ...rows].join('\n')}\n`
  if (process.env.UPDATE_FIGURES === '1') writeFileSync(GUIDE, page.slice(0, start) + table + page.slice(end))
  const written = process.env.UPDATE_FIGURES === '1' ? table : page.slice(start, end)
  // The measured overshoot depends on the machine; the bound does not.
  for (const name of ALGORITHMS) expect(written).toContain(`| \`${name}\` | ${LIMIT} | ${NODES} × ${MAX_UNSYNCED} |`)
})

/** Runs one node under load. An admission counts from the time of Redis if Redis decided it, else from local time. */
async function run(limit: Limit, oracle: Oracle): Promise<{ requests: number; unsynced: number }> {
  const store = redisStore(new Redis(redis.url, { lazyConnect: true }), { deadlineMs: 5000 })
  await store.ready()
  const charge: Charge = { limit, owner: 'alice', detail: '', min: 1, max: 1, kind: 'enforce' }
  let turns = 0
  let waiting = 0
  const check = async () => {
    waiting += 1
    const { granted, source, nowUs } = await store.take({ charges: [charge] })
    waiting -= 1
    expect(source === 'policy').toBe(false)
    if (granted) oracle.admit(limit, 'alice', 1, source === 'store' ? nowUs : wallClock.nowUs())
  }
  const turn = () => {
    for (let checks = 0; checks < CHECKS_PER_TURN; checks += 1) void check()
    turns += 1
    if (turns < TURNS) setTimeout(turn, TURN_MS)
  }
  turn()
  await vi.waitFor(() => expect([turns, waiting, unsyncedOf(store)]).toEqual([TURNS, 0, 0]), { timeout: 40_000 })
  const { requests = 0, unsynced = 0 } = store.stats?.() ?? {}
  await store.close()
  return { requests, unsynced }
}

function unsyncedOf(store: Store): number | undefined {
  return store.stats?.().unsynced
}

/** Units by which the limit was exceeded. */
function overshootOf(oracle: Oracle, limit: Limit): number {
  let extra = 0
  while (oracle.violations(new Map([[limit.id, { ...limit, capacity: limit.capacity + extra }]])).length > 0) extra += 1
  return extra
}
