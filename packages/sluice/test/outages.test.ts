// A real Redis that dies, freezes, slows down, loses connections or comes back empty: every check is answered, by what
// each rule says, and nothing is counted twice. The table of docs/guides/failure-modes.md is written here:
// UPDATE_FIGURES=1 npx vitest run outages

import { readFileSync, writeFileSync } from 'node:fs'
import { Redis } from 'ioredis'
import { createLimiter, type Decision, type Limiter } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type FaultProxy, type RedisProcess, startFaultProxy, startRedis } from 'sluice/testing'
import { expect, onTestFinished, test, vi } from 'vitest'

const GUIDE = new URL('../../../docs/guides/failure-modes.md', import.meta.url)
const START = '<!-- outages:start -->'
const END = '<!-- outages:end -->'

/** A window that does not end meanwhile. */
const SHARED = { scope: 'per_user', algorithm: 'fixed_window', window: '365d', consistency: 'strict' }
const RULES = [
  { rule_id: 'open', endpoint_pattern: '/open', limit: 1000, ...SHARED },
  { rule_id: 'closed', endpoint_pattern: '/closed', limit: 1000, on_fail: 'closed', ...SHARED },
  { rule_id: 'local', endpoint_pattern: '/local', limit: 10, on_fail: 'local', ...SHARED },
  { rule_id: 'leased', endpoint_pattern: '/leased', limit: 1000, on_fail: 'closed', ...SHARED, consistency: 'leased' },
]

type Fleet = { redis: RedisProcess; readonly proxy: FaultProxy; readonly limiter: Limiter }
type Fault = {
  readonly name: string
  begin(fleet: Fleet): void | Promise<void>
  end(fleet: Fleet): void | Promise<void>
  /** Whether what was counted before is still there afterwards. */
  readonly keeps: boolean
}

const FAULTS: readonly Fault[] = [
  {
    name: 'is killed, and restarted empty',
    begin: ({ redis }) => redis.stop(),
    end: async (fleet) => {
      fleet.redis = await startRedis(['--port', String(fleet.redis.port)])
    },
    keeps: false,
  },
  {
    name: 'is frozen (SIGSTOP)',
    begin: ({ redis }) => void process.kill(redis.pid, 'SIGSTOP'),
    end: ({ redis }) => void process.kill(redis.pid, 'SIGCONT'),
    keeps: true,
  },
  {
    name: 'is 50 ms slower',
    begin: ({ proxy }) => proxy.delayReplies(50),
    end: ({ proxy }) => proxy.delayReplies(0),
    keeps: true,
  },
  {
    name: 'is 500 ms slower',
    begin: ({ proxy }) => proxy.delayReplies(500),
    end: ({ proxy }) => proxy.delayReplies(0),
    keeps: true,
  },
]

type Row = readonly string[]
const rows: Row[] = []

test.each(FAULTS)('Redis $name: every check is answered as its rule says', { timeout: 60_000 }, async (fault) => {
  const fleet = await startFleet()
  const { limiter } = fleet
  const ask = (path: string) => limiter.check({ user: 'alice', path })
  for (let checks = 0; checks < 20; checks += 1) await ask('/leased') // so that some units are in hand
  await vi.waitFor(async () => expect((await ask('/closed')).source).toBe('store'), { timeout: 10_000 })

  await fault.begin(fleet)
  await vi.waitFor(async () => expect((await ask('/closed')).source).toBe('policy'), { timeout: 10_000 })
  const inHand = await ask('/leased')
  const during = {
    open: await many(ask, '/open'),
    closed: await many(ask, '/closed'),
    local: await many(ask, '/local'),
  }
  await fault.end(fleet)
  await vi.waitFor(async () => expect((await ask('/closed')).source).toBe('store'), { timeout: 20_000, interval: 100 })

  expect(summary(during.open)).toBe('20 of 20 pass (policy)')
  expect(summary(during.closed)).toBe('0 of 20 pass (policy)')
  expect(summary(during.local)).toBe('5 of 20 pass (local)') // half of ten, for there are two nodes
  expect([inHand.allowed, inHand.source]).toEqual([true, 'lease'])
  if (fault.keeps) await nothingCountedTwice(limiter)
  rows.push([fault.name, ...Object.values(during).map(summary), summary([inHand]), fault.keeps ? 'never' : ''])
})

test('a connection that is reset in mid-reply: an answer all the same, and nothing is counted twice', async () => {
  const { limiter, proxy } = await startFleet()
  const ask = (path: string) => limiter.check({ user: 'alice', path })
  const cut: Decision[] = []
  for (const path of ['/open', '/closed', '/local']) {
    await vi.waitFor(async () => expect((await ask('/closed')).source).toBe('store'), {
      timeout: 20_000,
      interval: 100,
    })
    proxy.cutNextReply(3)
    cut.push(await ask(path))
  }
  const answers = cut.map((decision) => summary([decision]))
  expect(answers).toEqual(['1 of 1 pass (policy)', '0 of 1 pass (policy)', '1 of 1 pass (local)'])
  await vi.waitFor(async () => expect((await ask('/closed')).source).toBe('store'), { timeout: 20_000, interval: 100 })
  const { remaining } = await limiter.peek({ user: 'alice', path: '/closed' })
  // The one whose answer was lost was counted, once: nobody knows whether it was, so nobody gives it back.
  expect(1000 - (remaining ?? 0)).toBe(admittedTimes(limiter) + 1)
  rows.push(['resets the connection in mid-reply', ...answers, '', 'never'])
})

test('docs/guides/failure-modes.md tells what happens', () => {
  const page = readFileSync(GUIDE, 'utf8')
  const [start, end] = [page.indexOf(START), page.indexOf(END)]
  const table = tableOf(rows)
  const wanted = `${page.slice(0, start + START.length)}\n${table}\n${page.slice(end)}`
  if (process.env.UPDATE_FIGURES === '1') writeFileSync(GUIDE, wanted)
  else expect(page, 'out of date: UPDATE_FIGURES=1 npx vitest run outages').toBe(wanted)
})

async function startFleet(): Promise<Fleet> {
  const redis = await startRedis()
  const proxy = await startFaultProxy(redis.port)
  const client = new Redis(proxy.port, { lazyConnect: true, retryStrategy: () => 50 })
  const store = redisStore(client, { nodes: 2 })
  await store.ready()
  const limiter = counting(createLimiter({ rules: RULES, store }))
  const fleet = { redis, proxy, limiter }
  onTestFinished(async () => {
    await limiter.close()
    await proxy.stop()
    await fleet.redis.stop()
  })
  return fleet
}

/** Admissions of the rule `closed`, which only the store can grant. */
const admitted = new WeakMap<Limiter, number>()

function counting(limiter: Limiter): Limiter {
  const check = limiter.check.bind(limiter)
  limiter.check = async (subject, requestId) => {
    const decision = await check(subject, requestId)
    if (decision.allowed && subject.path === '/closed') admitted.set(limiter, admittedTimes(limiter) + 1)
    return decision
  }
  return limiter
}

function admittedTimes(limiter: Limiter): number {
  return admitted.get(limiter) ?? 0
}

/** Replies that came too late were given back: in the end, what is counted is what was admitted. */
async function nothingCountedTwice(limiter: Limiter): Promise<void> {
  await vi.waitFor(
    async () => {
      const { remaining } = await limiter.peek({ user: 'alice', path: '/closed' })
      expect(1000 - (remaining ?? 0)).toBe(admittedTimes(limiter))
    },
    { timeout: 10_000, interval: 100 },
  )
}

function many(ask: (path: string) => Promise<Decision>, path: string): Promise<Decision[]> {
  return Promise.all(Array.from({ length: 20 }, () => ask(path)))
}

function summary(decisions: readonly Decision[]): string {
  const sources = [...new Set(decisions.map(({ source }) => source))]
  return `${decisions.filter(({ allowed }) => allowed).length} of ${decisions.length} pass (${sources.join(', ')})`
}

function tableOf(all: readonly Row[]): string {
  const head = ['Redis', '`open`', '`closed`', '`local`, 10 for 2 nodes', 'units in hand', 'counted twice']
  const line = (cells: Row) => `| ${cells.join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...all.map(line)].join('\n')
}
