// A real Redis that is killed, frozen, slow, disconnected or restarted empty: every check is decided by its deadline as
// its rule says, nothing is counted twice, and memory does not grow. Also writes the table of
// docs/guides/failure-modes.md: UPDATE_FIGURES=1 npx vitest run outages

import { readFileSync, writeFileSync } from 'node:fs'
import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { Redis } from 'ioredis'
import { createLimiter, type Decision, type Limiter } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type FaultProxy, type RedisProcess, startFaultProxy, startRedis } from 'sluice/testing'
import { expect, onTestFinished, test, vi } from 'vitest'

const GUIDE = new URL('../../../docs/guides/failure-modes.md', import.meta.url)
const START = '<!-- outages:start -->'
const END = '<!-- outages:end -->'

/** A window that does not end during the test. */
const SHARED = { scope: 'per_user', algorithm: 'fixed_window', window: '365d', consistency: 'strict' }
const LIMIT = 1000
const DEADLINE_MS = 15
/** Time that a decision may exceed its deadline by, in addition to event loop delay. */
const MARGIN_MS = 5
/** Checks during the outage, which must not leave memory behind. */
const OUTAGE_CHECKS = 5000
const GROWTH_KB_MAX = 1000
const RULES = [
  { rule_id: 'open', endpoint_pattern: '/open', limit: LIMIT, ...SHARED },
  { rule_id: 'closed', endpoint_pattern: '/closed', limit: LIMIT, on_fail: 'closed', ...SHARED },
  { rule_id: 'local', endpoint_pattern: '/local', limit: 10, on_fail: 'local', ...SHARED },
  { rule_id: 'leased', endpoint_pattern: '/leased', limit: LIMIT, on_fail: 'closed', ...SHARED, consistency: 'leased' },
]

type Fleet = {
  redis: RedisProcess
  readonly proxy: FaultProxy
  readonly limiter: Limiter
  readonly watch: Watch
  ask(path: string): Promise<Decision>
}
type Fault = {
  readonly name: string
  begin(fleet: Fleet): void | Promise<void>
  end(fleet: Fleet): void | Promise<void>
  /** Whether Redis keeps its data. */
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

test.each(FAULTS)('Redis $name: every check is answered as its rule says', async (fault) => {
  const fleet = await startFleet()
  const { ask, watch } = fleet
  await storeAnswers(fleet)
  await leaseFilled(fleet)

  watch.start()
  await fault.begin(fleet)
  await vi.waitFor(async () => expect((await ask('/closed')).source).toBe('policy'), { timeout: 10_000 })
  const leased = await ask('/leased')
  const during = {
    open: await many(ask, '/open'),
    closed: await many(ask, '/closed'),
    local: await many(ask, '/local'),
  }
  watch.stop()
  const grownKb = await growthKb(async () => {
    for (let checks = 0; checks < OUTAGE_CHECKS; checks += 20) await many(ask, '/open')
  })
  if (!fault.keeps) watch.admitted = 0
  await fault.end(fleet)
  const exactAfterMs = await storeAnswers(fleet)

  expect(summary(during.open)).toBe('20 of 20 admitted (policy)')
  expect(summary(during.closed)).toBe('0 of 20 admitted (policy)')
  expect(summary(during.local)).toBe('5 of 20 admitted (local)') // the node share: 10 / 2 nodes
  expect([leased.allowed, leased.source]).toEqual([true, 'lease'])
  await nothingCountedTwice(fleet, 0)
  rows.push([
    fault.name,
    ...Object.values(during).map(summary),
    summary([leased]),
    ...kept(watch, grownKb, exactAfterMs),
  ])
})

test('a connection reset in mid-reply: the check is decided, and nothing is counted twice', async () => {
  const fleet = await startFleet()
  const { ask, watch, proxy } = fleet
  const cut = async (path: string) => {
    await storeAnswers(fleet)
    watch.start()
    proxy.cutNextReply(3)
    const decision = await ask(path)
    watch.stop()
    return decision
  }
  const decisions = [await cut('/open'), await cut('/closed'), await cut('/local')]
  const grownKb = await growthKb(async () => {
    for (let cuts = 0; cuts < 5; cuts += 1) await cut('/open')
  })
  const exactAfterMs = await storeAnswers(fleet)
  const answers = decisions.map((decision) => summary([decision]))
  expect(answers).toEqual(['1 of 1 admitted (policy)', '0 of 1 admitted (policy)', '1 of 1 admitted (local)'])
  // The check whose reply was lost is counted once: the node cannot know that it was, so it gives nothing back.
  await nothingCountedTwice(fleet, 1)
  rows.push(['resets the connection in mid-reply', ...answers, '', ...kept(watch, grownKb, exactAfterMs)])
})

test('docs/guides/failure-modes.md matches the measurements', () => {
  const page = readFileSync(GUIDE, 'utf8')
  const [start, end] = [page.indexOf(START), page.indexOf(END)]
  const wanted = `${page.slice(0, start + START.length)}\n${tableOf(rows)}\n${page.slice(end)}`
  if (process.env.UPDATE_FIGURES === '1') writeFileSync(GUIDE, wanted)
  else expect(unmeasured(page), 'out of date: UPDATE_FIGURES=1 npx vitest run outages').toBe(unmeasured(wanted))
})

/** Measurements of the checks of one fleet. */
class Watch {
  errors = 0
  slowestMs = 0
  /** Longest event loop delay while measuring. */
  lateMs = 0
  /** Admissions of the rule `closed`, which only the store can grant. */
  admitted = 0
  #loop: IntervalHistogram | undefined

  /** Starts measuring decision times. */
  start(): void {
    this.#loop = monitorEventLoopDelay({ resolution: 1 })
    this.#loop.enable()
  }

  stop(): void {
    this.lateMs = Math.max(this.lateMs, (this.#loop?.max ?? 0) / 1e6)
    this.#loop?.disable()
    this.#loop = undefined
  }

  async see(limiter: Limiter, path: string): Promise<Decision> {
    const startedMs = performance.now()
    try {
      const decision = await limiter.check({ user: 'alice', path })
      if (this.#loop !== undefined) this.slowestMs = Math.max(this.slowestMs, performance.now() - startedMs)
      if (decision.allowed && path === '/closed') this.admitted += 1
      return decision
    } catch (error) {
      this.errors += 1
      throw error
    }
  }
}

async function startFleet(): Promise<Fleet> {
  const redis = await startRedis()
  const proxy = await startFaultProxy(redis.port)
  const client = new Redis(proxy.port, { lazyConnect: true, retryStrategy: () => 50 })
  const store = redisStore(client, { nodes: 2, deadlineMs: DEADLINE_MS })
  await store.ready()
  const limiter = createLimiter({ rules: RULES, store })
  const watch = new Watch()
  const fleet = { redis, proxy, limiter, watch, ask: (path: string) => watch.see(limiter, path) }
  onTestFinished(async () => {
    await limiter.close()
    await proxy.stop()
    await fleet.redis.stop()
  })
  return fleet
}

/** Waits until the store decides again; returns how long that took. */
async function storeAnswers({ ask }: Fleet): Promise<number> {
  const startedMs = performance.now()
  await vi.waitFor(async () => expect((await ask('/closed')).source).toBe('store'), { timeout: 20_000, interval: 100 })
  return performance.now() - startedMs
}

/** Checks until ten in a row are served from a lease: on a busy machine, replies may be late. */
async function leaseFilled({ ask }: Fleet): Promise<void> {
  const isLeased = async () => (await ask('/leased')).source === 'lease'
  let row = 0
  while (row < 10) row = (await isLeased()) ? row + 1 : 0
}

/** Late replies are given back, so that in the end the units counted are the units admitted. */
async function nothingCountedTwice({ limiter, watch }: Fleet, lost: number): Promise<void> {
  await vi.waitFor(
    async () => {
      const { remaining } = await limiter.peek({ user: 'alice', path: '/closed' })
      expect(LIMIT - (remaining ?? 0)).toBe(watch.admitted + lost)
    },
    { timeout: 10_000, interval: 100 },
  )
}

/** Memory that a second run of `work` leaves behind. */
async function growthKb(work: () => Promise<unknown>): Promise<number> {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  await work()
  collect()
  const before = process.memoryUsage().heapUsed
  await work()
  collect()
  return (process.memoryUsage().heapUsed - before) / 1024
}

/** Asserts the numeric guarantees and formats them as table cells. */
function kept(watch: Watch, grownKb: number, exactAfterMs: number): string[] {
  expect(watch.errors).toBe(0)
  expect(watch.slowestMs).toBeLessThanOrEqual(DEADLINE_MS + MARGIN_MS + 2 * watch.lateMs)
  expect(grownKb).toBeLessThan(GROWTH_KB_MAX)
  const slowest = `${watch.slowestMs.toFixed(0)} ms`
  return [slowest, String(watch.errors), 'never', 'flat', `${(exactAfterMs / 1000).toFixed(1)} s`]
}

function many(ask: Fleet['ask'], path: string): Promise<Decision[]> {
  return Promise.all(Array.from({ length: 20 }, () => ask(path)))
}

function summary(decisions: readonly Decision[]): string {
  const sources = [...new Set(decisions.map(({ source }) => source))]
  return `${decisions.filter(({ allowed }) => allowed).length} of ${decisions.length} admitted (${sources.join(', ')})`
}

function tableOf(all: readonly Row[]): string {
  const answers = ['`open`', '`closed`', '`local`, 10 for 2 nodes', 'leased units']
  const numbers = ['slowest decision', 'errors', 'counted twice', 'memory', 'exact again after']
  const head = ['Redis', ...answers, ...numbers]
  const line = (cells: Row) => `| ${cells.join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...all.map(line)].join('\n')
}

/** Masks times, which differ from run to run. */
function unmeasured(page: string): string {
  return page.replaceAll(/\d+(\.\d)? (ms|s) \|/g, '# |')
}
