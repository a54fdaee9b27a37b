// Decision events of one process: what is recorded, what is counted, and what a failing sink costs.

import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { createLimiter, type Limiter, type Subject } from 'sluice'
import { seededRandom } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { createEndpointPattern } from '../src/checks/endpoint-pattern.ts'
import { type Database, DatabaseUnavailable } from '../src/db/database.ts'
import { migrate } from '../src/db/migrate.ts'
import { SamplePosition } from '../src/events/client-key.ts'
import { embeddedSink } from '../src/events/embedded/embedded-sink.ts'
import { deleteOldEvents } from '../src/events/embedded/event-retention.ts'
import { type Batch, type CountRow, OTHER } from '../src/events/event.ts'
import { compareIn, readKeySecret, SecretComparison } from '../src/events/key-secret.ts'
import { type CountsFile, EventPipeline, type KeyMode, type PipelineTotals } from '../src/events/pipeline.ts'
import { createSampleRate } from '../src/events/sample-rate.ts'
import { BatchRejected, type Sink } from '../src/events/sink.ts'
import { keyHash } from '../src/log.ts'
import { describeDatabases, temporaryFolder } from './databases.ts'
import { batchOf, eventRow } from './event-rows.ts'
import { captureLog } from './service.ts'

const SECRET = 'a secret of tests'
const RULES = [
  { rule_id: 'all', scope: 'per_ip', limit: 1_000_000, window_seconds: 60 },
  { rule_id: 'one', scope: 'per_user', limit: 1, window_seconds: 86_400, endpoint_pattern: '/one/:id' },
  {
    rule_id: 'tiers',
    scope: 'per_api_key',
    endpoint_pattern: '/tiers',
    limits: [
      { name: 'short', limit: 5, window_seconds: 86_400 },
      { name: 'long', limit: 100, window_seconds: 864_000 },
    ],
  },
  { rule_id: 'pairs', scope: ['user', 'api_key'], limit: 5, window_seconds: 60, endpoint_pattern: '/pairs' },
  { rule_id: 'trial', scope: 'per_user', limit: 0, window_seconds: 60, endpoint_pattern: '/trial', mode: 'shadow' },
]

/** Keeps what it is given; `fail` decides about each attempt. */
function memorySink(name: string, fail: (attempt: number) => Error | undefined = () => undefined) {
  const batches: Batch[] = []
  let attempts = 0
  const sink: Sink = {
    name,
    write: async (_id, batch) => {
      attempts += 1
      const error = fail(attempts)
      if (error !== undefined) throw error
      batches.push(batch)
      return 0
    },
    close: async () => {},
  }
  const events = () => batches.flatMap((batch) => batch.events)
  const counts = () => batches.flatMap((batch) => batch.counts)
  return { sink, batches, events, counts }
}

type Options = { sample?: number; keys?: KeyMode; countsFile?: CountsFile }

function start(sinks: readonly Sink[], { sample, keys = 'clear', countsFile }: Options = {}) {
  const limiter = createLimiter({ rules: RULES })
  const { log, logged } = captureLog()
  let nowMs = Date.UTC(2030, 0, 31, 12)
  const pipeline = new EventPipeline(
    {
      nowMs: () => nowMs,
      log,
      keyHash: keyHash(SECRET),
      endpointOf: createEndpointPattern(limiter),
      sampleRate: createSampleRate(sample),
      position: new SamplePosition(SECRET),
      node: 'node',
      region: 'eu',
    },
    sinks.map((sink) => ({ sink, keys })),
    countsFile,
  )
  const check = (subject: Subject, us = 12) => {
    const decision = limiter.checkSync(subject)
    if (decision === undefined) throw new Error('the memory store decides synchronously')
    pipeline.record(subject, decision, decision, us)
    return decision.allowed
  }
  const advance = (ms: number) => {
    nowMs += ms
  }
  return { pipeline, check, advance, logged, limiter: limiter as Limiter }
}

function sum(rows: readonly CountRow[], where: Partial<CountRow> = {}): number {
  const matches = (row: CountRow) =>
    Object.entries(where).every(([name, value]) => row[name as keyof CountRow] === value)
  return rows.filter(matches).reduce((total, { count }) => total + count, 0)
}

/** A sink whose writes wait until `open` is called. */
function gatedSink(name: string, eventsMax?: Sink['eventsMax']) {
  const stored = memorySink(name)
  let open = () => {}
  const isOpen = new Promise<void>((resolve) => {
    open = resolve
  })
  const sink: Sink = {
    ...stored.sink,
    eventsMax,
    write: async (...args) => {
      await isOpen
      return stored.sink.write(...args)
    },
  }
  return { ...stored, sink, open }
}

/** decided + operations = sampled out + stored + dropped + pending, for every sink. */
function expectBalanced(pipeline: EventPipeline) {
  const { decided, operations, sampledOut, sinks } = pipeline.totals()
  for (const { stored, dropped, pending } of sinks) {
    expect(sampledOut + stored + dropped + pending).toBe(decided + operations)
  }
}

describe('an event', () => {
  test('has the facts of the request, the deciding limit and its numbers', async () => {
    const { sink, events } = memorySink('memory')
    const { pipeline, check } = start([sink])
    const subject = {
      user: 'ann',
      ip: '::ffff:192.0.2.1',
      tenant: 'acme',
      plan: 'free',
      method: 'GET',
      path: '/one/7?x=1',
    }
    expect([check(subject), check(subject)]).toEqual([true, false])
    await pipeline.close()
    const [, refused] = events()
    expect(refused).toMatchObject({
      ...{ client_id: 'ann', ip: '192.0.2.1', tenant: 'acme', plan: 'free', method: 'GET', api_key: null },
      ...{ endpoint_pattern: '/one/:id', rule_id: 'one', limit_name: 'default', scope: 'per_user', mode: 'enforce' },
      ...{ allowed: false, limit_count: 1, remaining: 0, current_count: 1, cost: 1, source: 'store', version: 1 },
      ...{ region: 'eu', node: 'node', decision_us: 12, sample_rate: 1, bucket_key: 'one:default:user:ann' },
      timestamp: Date.UTC(2030, 0, 31, 12),
      event_id: expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/),
    })
    expect(refused?.retry_after_ms).toBeGreaterThan(0)
  })

  test('never has an API key in plain text', async () => {
    const { sink, batches } = memorySink('memory')
    const { pipeline, check } = start([sink])
    for (let count = 0; count < 6; count += 1) check({ apiKey: 'k_live_secret', path: '/tiers' })
    check({ user: 'ann', apiKey: 'k_live_secret', path: '/pairs' })
    await pipeline.close()
    expect(JSON.stringify(batches)).not.toContain('k_live_secret')
    expect(batches[0]?.clients).toMatchObject([{ kind: 'api_key', allowed: 5, refused: 1 }, { kind: 'user' }])
    expect(batches[0]?.events.at(-1)?.bucket_key).toMatch(/^pairs:default:user:hmac:/)
  })

  test('names the shadow rule that would have refused, and no rule decided', async () => {
    const { sink, events, counts } = memorySink('memory')
    const { pipeline, check } = start([sink])
    check({ user: 'ann', path: '/trial' })
    await pipeline.close()
    expect(events()).toMatchObject([{ allowed: true, rule_id: null, mode: 'shadow', shadow_refused_by: 'trial' }])
    expect(counts()).toMatchObject([{ rule: 'none', endpoint: '/trial', result: 'allowed', count: 1 }])
  })

  test('with hashed keys has no plain key and no path', async () => {
    const { sink, batches } = memorySink('memory')
    const { pipeline, check } = start([sink], { keys: 'hmac' })
    check({ user: 'ann-lee', ip: '192.0.2.77', tenant: 'acme-corp', apiKey: 'k_live', path: '/one/of-ann-lee' })
    await pipeline.close()
    expect(JSON.stringify(batches)).not.toMatch(/ann-lee|192\.0\.2\.77|acme-corp|k_live/)
    const hash = keyHash(SECRET)
    const [batch] = batches
    expect(batch?.events).toMatchObject([{ client_id: `hmac:${hash('user', 'ann-lee')}`, endpoint: '/one/:id' }])
    expect(batch?.counts).toMatchObject([{ tenant: `hmac:${hash('tenant', 'acme-corp')}` }])
    expect(batch?.clients).toMatchObject([{ client: `hmac:${hash('user', 'ann-lee')}` }])
  })
})

describe('counting', () => {
  test('every decision counts once, at any sample rate, and refusals are all events', async () => {
    const random = seededRandom(11)
    for (const sample of [0, 0.3, 1]) {
      const { sink, events, counts } = memorySink('memory')
      const { pipeline, check, advance } = start([sink], { sample })
      const allowed = { true: 0, false: 0 }
      for (let index = 0; index < 10_000; index += 1) {
        allowed[`${check({ user: `u${random.between(0, 500)}`, path: '/one/1' })}`] += 1
        if (index % 1000 === 0) advance(random.between(0, 700))
        if (index % 3000 === 0) pipeline.flush()
        if (index % 500 === 0) expectBalanced(pipeline)
      }
      await pipeline.close()
      expectBalanced(pipeline)
      expect(sum(counts(), { result: 'allowed' })).toBe(allowed.true)
      expect(sum(counts(), { result: 'refused' })).toBe(allowed.false)
      expect(events().filter((event) => !event.allowed)).toHaveLength(allowed.false)
      const admitted = events().filter((event) => event.allowed)
      if (sample === 0) expect(admitted).toEqual([])
      if (sample === 1) expect(admitted).toHaveLength(allowed.true)
    }
  })

  test('a sampled client keeps all its events', async () => {
    const { sink, events } = memorySink('memory')
    const { pipeline, check } = start([sink], { sample: 0.2 })
    for (let round = 0; round < 20; round += 1) {
      for (let user = 0; user < 200; user += 1) check({ user: `u${user}`, path: '/free' })
    }
    await pipeline.close()
    const perClient = new Map<string | null, number>()
    for (const { client_id, sample_rate } of events()) {
      expect(sample_rate).toBe(0.2)
      perClient.set(client_id, (perClient.get(client_id) ?? 0) + 1)
    }
    expect(new Set(perClient.values())).toEqual(new Set([20]))
    expect(perClient.size).toBeGreaterThan(15) // 40 expected; the hash is fixed
    expect(perClient.size).toBeLessThan(80)
  })

  test('without a setting, a busy second samples one in a hundred, and a calm one everything', () => {
    const rate = createSampleRate(undefined)
    const second = (start: number, decisions: number) => {
      return Array.from({ length: decisions }, (_, index) => rate.at(start * 1000 + index / 10))
    }
    expect(new Set(second(1, 500))).toEqual(new Set([1]))
    expect(second(2, 600).at(0)).toBe(0.01)
    expect(second(3, 10).at(0)).toBe(0.01)
    expect(new Set(second(4, 10))).toEqual(new Set([1]))
    expect(new Set(second(9, 400))).toEqual(new Set([1]))
  })

  test('names beyond the cap count as other, and nothing is lost', async () => {
    const { sink, counts } = memorySink('memory')
    const { pipeline, check } = start([sink])
    for (let index = 0; index < 3000; index += 1) check({ user: 'ann', tenant: `t${index}`, plan: `p${index}` })
    await pipeline.close()
    expect(sum(counts())).toBe(3000)
    expect(new Set(counts().map(({ tenant }) => tenant)).size).toBe(201)
    expect(new Set(counts().map(({ plan }) => plan)).size).toBe(51)
    expect(sum(counts(), { tenant: OTHER })).toBe(2800)
  })

  test('long names are cut between characters: half a character would make a database reject the batch', async () => {
    const { sink, counts } = memorySink('memory')
    const { pipeline, check } = start([sink])
    const long = `a${'\u{1f6b0}'.repeat(400)}`
    check({ user: long, plan: long, tenant: long })
    await pipeline.close()
    expect(counts()).toMatchObject([{ plan: long.slice(0, 63), tenant: long.slice(0, 127) }])
  })

  test('a flood of made-up clients adds few rows per minute, and does not hide a busy client', async () => {
    const { sink, batches } = memorySink('memory')
    const { pipeline, check, advance } = start([sink], { sample: 0 })
    for (let second = 0; second < 60; second += 1) {
      for (let index = 0; index < 500; index += 1) check({ user: `${second}-${index}` })
      for (let index = 0; index < 50; index += 1) check({ user: 'busy' })
      pipeline.flush()
      advance(1000)
    }
    await pipeline.close()
    const clients = batches.flatMap((batch) => batch.clients)
    expect(new Set(clients.map(({ client }) => client)).size).toBeLessThan(600)
    const busy = clients.filter(({ client }) => client === 'busy').reduce((total, { allowed }) => total + allowed, 0)
    expect(busy).toBe(3000)
  })

  test('each limit has its own outcomes', async () => {
    const { sink, batches } = memorySink('memory')
    const { pipeline, check } = start([sink])
    for (let count = 0; count < 7; count += 1) check({ apiKey: 'k', path: '/tiers' })
    await pipeline.close()
    const rows = batches.flatMap(({ limits }) => limits).filter(({ rule }) => rule === 'tiers')
    expect(rows).toMatchObject([
      { limit: 'short', allowed: 5, refused: 2, near_limit: 2 },
      { limit: 'long', allowed: 7, refused: 0, near_limit: 0 },
    ])
  })

  test('every decision counts once while a batch is hashed, and the next batch does not overtake it', async () => {
    const { sink, batches, events, counts } = memorySink('memory')
    const { pipeline, check } = start([sink], { keys: 'hmac', sample: 1 })
    for (let index = 0; index < 3000; index += 1) check({ user: `u${index}`, path: '/free' })
    pipeline.flush()
    expect(batches).toHaveLength(0)
    expect(pipeline.totals()).toMatchObject({ decided: 3000, sinks: [{ pending: 3000 }] })
    check({ user: 'last' })
    pipeline.flush()
    expect(batches).toHaveLength(1)
    expectBalanced(pipeline)
    await pipeline.close()
    expect(events().map(({ sequence }) => sequence)).toEqual(Array.from({ length: 3001 }, (_, index) => index + 1))
    expect(sum(counts())).toBe(3001)
  })

  test('more decisions in one turn than the ring buffer holds are all counted', async () => {
    const { sink, counts } = memorySink('memory')
    const { pipeline, check } = start([sink], { sample: 0 })
    for (let index = 0; index < 30_000; index += 1) check({ user: 'ann' })
    await pipeline.close()
    expect(sum(counts())).toBe(30_000)
  })
})

describe('the counts that a worker keeps in a file', () => {
  test('are at least what was recorded, at most 256 more, and exactly what sinks have settled', async () => {
    let kept: PipelineTotals | undefined
    const stored = memorySink('stored')
    const full = gatedSink('full', { perBatch: 5, perWrite: 5 })
    const countsFile: CountsFile = {
      write: (counts) => {
        kept = counts
      },
    }
    const { pipeline, check } = start([stored.sink, full.sink], { sample: 0.5, countsFile })
    const expectKept = () => {
      const { decided, operations, sampledOut, sinks } = pipeline.totals()
      const recorded = (kept?.decided ?? 0) + (kept?.operations ?? 0)
      expect(recorded).toBeGreaterThanOrEqual(decided + operations)
      expect(recorded).toBeLessThanOrEqual(decided + operations + 256)
      expect(kept?.sampledOut).toBe(sampledOut)
      const settled = (totals: PipelineTotals['sinks']) => totals.map((one) => [one.stored, one.dropped, one.counted])
      expect(settled(kept?.sinks ?? [])).toEqual(settled(sinks))
    }
    for (let index = 0; index < 10_000; index += 1) {
      check({ user: `user ${index % 50}`, path: '/one/1' })
      if (index % 1000 === 0) pipeline.recordRefund('a', 1, 0)
      expectKept()
      if (index % 9000 !== 0) continue
      pipeline.flush()
      await new Promise((resolve) => setImmediate(resolve))
      expectKept()
    }
    full.open()
    await pipeline.close()
    expectKept()
    const { decided, operations } = pipeline.totals()
    expect(kept).toMatchObject({ decided, operations })
    for (const { pending, counted } of kept?.sinks ?? []) expect([pending, counted]).toEqual([0, decided])
  })

  test('cost no decision if the file cannot be written', async () => {
    const { sink, events } = memorySink('memory')
    const write = () => {
      throw new Error('ENOSPC')
    }
    const { pipeline, check, logged } = start([sink], { sample: 1, countsFile: { write } })
    for (let index = 0; index < 1000; index += 1) check({ user: 'ann' })
    await pipeline.close()
    expect(events()).toHaveLength(1000)
    expect(logged.filter(({ event }) => event === 'event_counts_failed')).toMatchObject([{ reason: 'ENOSPC' }])
  })
})

test('a decision that cannot be recorded is counted as dropped, and the others are stored', async () => {
  const { sink, events } = memorySink('memory')
  const { pipeline, check, limiter, logged } = start([sink])
  check({ user: 'ann' })
  const decision = limiter.checkSync({ user: 'bob' })
  if (decision === undefined) throw new Error('the memory store decides synchronously')
  const broken = { user: 'bob', path: 7 as unknown as string }
  pipeline.record(broken, decision, decision, 1)
  check({ user: 'cyd' })
  await pipeline.close()
  expect(events().map(({ client_id }) => client_id)).toEqual(['ann', 'cyd'])
  expect(pipeline.totals()).toMatchObject({ decided: 3, sinks: [{ stored: 2, dropped: 1, pending: 0 }] })
  expect(logged).toMatchObject([{ event: 'event_failed' }])
})

describe('a sink that fails', () => {
  test('does not affect another sink, is retried, and then stores everything once', async () => {
    const good = memorySink('good')
    const bad = memorySink('bad', (attempt) => (attempt <= 3 ? new Error('down') : undefined))
    const { pipeline, check, logged } = start([good.sink, bad.sink])
    for (let index = 0; index < 100; index += 1) check({ user: `u${index}`, path: '/one/1' })
    pipeline.flush()
    await vi.waitFor(() => expect(good.events()).toHaveLength(100))
    expectBalanced(pipeline)
    expect(pipeline.totals().sinks[1]).toMatchObject({ name: 'bad', stored: 0, pending: 100, isUp: false })
    expect(pipeline.degradedReason()).toBe('events: bad does not store events')
    await vi.waitFor(() => expect(bad.events()).toHaveLength(100), { timeout: 10_000 })
    await vi.waitFor(() => expect(pipeline.totals().sinks[1]).toMatchObject({ stored: 100, pending: 0, isUp: true }))
    expect(pipeline.degradedReason()).toBeUndefined()
    expect(logged.map(({ event }) => event)).toEqual(['events_sink_down', 'events_sink_up'])
    await pipeline.close()
    expectBalanced(pipeline)
  })

  test('keeps a bounded number of events, refusals first, and exact totals', async () => {
    let isDown = true
    const { sink, events, counts } = memorySink('slow', () => (isDown ? new Error('down') : undefined))
    const { pipeline, check, advance } = start([sink], { sample: 1 })
    for (let round = 0; round < 70; round += 1) {
      for (let index = 0; index < 1000; index += 1) check({ user: 'ann', path: '/free' })
      advance(1000)
      pipeline.flush()
      expectBalanced(pipeline)
    }
    for (let index = 0; index < 1000; index += 1) check({ user: 'bob', path: '/one/1' })
    pipeline.flush()
    expectBalanced(pipeline)
    const [totals] = pipeline.totals().sinks
    expect(totals?.pending).toBe(50_000)
    expect(totals?.dropped).toBe(21_000)
    isDown = false
    await vi.waitFor(() => expect(pipeline.totals().sinks[0]?.pending).toBe(0), { timeout: 20_000 })
    await pipeline.close()
    expect(events()).toHaveLength(50_000)
    expect(events().filter(({ allowed }) => !allowed)).toHaveLength(999)
    expect(sum(counts())).toBe(71_000)
    expectBalanced(pipeline)
  })

  test('stores a backlog completely, in writes of bounded size: its rate cap applies when events arrive', async () => {
    const { sink, open, batches, events } = gatedSink('capped', { perBatch: 10, perWrite: 4 })
    const { pipeline, check, advance } = start([sink])
    const second = (refusals: number, admissions: number) => {
      for (let index = 0; index < refusals; index += 1) check({ user: 'ann', path: '/one/1' })
      for (let index = 0; index < admissions; index += 1) check({ user: `u${index}`, path: '/free' })
      advance(1000)
      pipeline.flush()
      expectBalanced(pipeline)
    }
    check({ user: 'ann', path: '/one/1' })
    for (let count = 0; count < 5; count += 1) second(9, 1)
    second(8, 20)
    second(12, 20)
    expect(pipeline.totals().sinks[0]).toMatchObject({ dropped: 1 + 18 + 22, lagSeconds: 6 })
    open()
    await pipeline.close()
    expect(events().filter(({ allowed }) => !allowed)).toHaveLength(5 * 9 + 8 + 10)
    expect(Math.max(...batches.map((batch) => batch.events.length))).toBe(4)
    expect(pipeline.totals().sinks[0]).toMatchObject({ dropped: 41, pending: 0, lagSeconds: 0 })
    expectBalanced(pipeline)
  })

  test('keeps the lag of the oldest event that waits', async () => {
    const { sink, open } = gatedSink('slow', { perBatch: 10, perWrite: 1 })
    const { pipeline, check, advance } = start([sink])
    const lags: number[] = []
    const write = sink.write
    Object.assign(sink, {
      write: (...args: Parameters<Sink['write']>) => {
        lags.push(pipeline.totals().sinks[0]?.lagSeconds ?? Number.NaN)
        return write(...args)
      },
    })
    for (const user of ['ann', 'bob', 'cyd']) {
      check({ user })
      advance(10_000)
    }
    pipeline.flush()
    open()
    await pipeline.close()
    expect(lags).toEqual([0, 20, 10])
  })

  test('is down while a write has no answer for 30 s', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    onTestFinished(() => void vi.useRealTimers())
    const { sink, open } = gatedSink('stuck')
    const { pipeline, check, logged } = start([sink])
    check({ user: 'ann' })
    pipeline.flush()
    vi.advanceTimersByTime(29_999)
    expect(pipeline.degradedReason()).toBeUndefined()
    vi.advanceTimersByTime(1)
    expect(pipeline.degradedReason()).toBe('events: stuck does not store events')
    expect(pipeline.totals().sinks).toMatchObject([{ isUp: false, pending: 1 }])
    open()
    await pipeline.close()
    expect(pipeline.totals().sinks).toMatchObject([{ isUp: true, stored: 1 }])
    expect(logged.map(({ event }) => event)).toEqual(['events_sink_down', 'events_sink_up'])
  })

  test('is counted and logged if it is still down at the end, totals included', async () => {
    const { sink } = memorySink('dead', () => new Error('down'))
    const { pipeline, check, logged } = start([sink], { sample: 0 })
    for (let index = 0; index < 100; index += 1) check({ user: 'ann', path: '/free' })
    check({ user: 'ann', path: '/one/1' })
    check({ user: 'ann', path: '/one/1' })
    await pipeline.close()
    expectBalanced(pipeline)
    expect(pipeline.totals().sinks).toMatchObject([{ stored: 0, dropped: 1, uncounted: 102, pending: 0 }])
    expect(logged.at(-1)).toMatchObject({ event: 'events_dropped_at_close', sink: 'dead', events: 1, decisions: 102 })
  })

  test('a rejected batch is dropped and counted, and the next one is stored', async () => {
    const { sink, events } = memorySink('picky', (attempt) => (attempt === 1 ? new BatchRejected('no') : undefined))
    const { pipeline, check } = start([sink])
    check({ user: 'ann' })
    pipeline.flush()
    await vi.waitFor(() => expect(pipeline.totals().sinks[0]?.dropped).toBe(1))
    check({ user: 'bob' })
    await pipeline.close()
    expect(events()).toMatchObject([{ client_id: 'bob' }])
    expect(pipeline.totals().sinks).toMatchObject([{ stored: 1, dropped: 1, uncounted: 1, pending: 0 }])
  })
})

describe('the key secret', () => {
  test('is compared with that of other nodes as soon as the database answers', async () => {
    let isUp = false
    const query = async (sql: string) => {
      if (!isUp) throw new DatabaseUnavailable('down')
      return sql.startsWith('SELECT') ? [{ fingerprint: 'that of other nodes' }] : []
    }
    const comparison = new SecretComparison(compareIn({ kind: 'postgres', query } as unknown as Database), SECRET)
    await comparison.settled()
    expect(comparison.isForeign).toBe(false)
    isUp = true
    await comparison.settled()
    await vi.waitFor(() => expect(comparison.isForeign).toBe(true))
  })

  test('is generated once, in a file that only its owner can read', () => {
    const folder = join(temporaryFolder(), 'data')
    const secret = readKeySecret(undefined, folder)
    expect(readKeySecret(undefined, folder)).toBe(secret)
    expect(secret).toMatch(/^[0-9a-f]{64}$/)
    expect(statSync(join(folder, 'key-secret')).mode & 0o777).toBe(0o600)
    expect(readFileSync(join(folder, 'key-secret'), 'utf8')).toBe(secret)
    expect(readKeySecret('0123456789abcdef', folder)).toBe('0123456789abcdef')
    expect(readdirSync(folder)).toEqual(['key-secret'])
  })
})

describeDatabases('the embedded sink', ({ open }) => {
  test('stores a batch once, however often it is retried', async () => {
    const database = await open()
    await migrate(database)
    const sink = embeddedSink(database)
    const time = Date.UTC(2030, 0, 31) / 1000
    const counts: CountRow[] = [
      { time, rule: 'r', endpoint: '/', plan: 'p', tenant: 't', result: 'allowed', source: 'store', count: 3 },
      {
        time: time + 1,
        rule: 'r',
        endpoint: '/',
        plan: 'p',
        tenant: 't',
        result: 'allowed',
        source: 'store',
        count: 4,
      },
    ]
    const batch = batchOf({ events: [eventRow()], counts })
    for (const [seq, isRetry] of [
      [1, false],
      [1, true],
      [2, true],
      [2, true],
    ] as const) {
      await sink.write({ producer: 'p', seq }, batch, isRetry)
    }
    const [events] = await database.query<{ count: number }>('SELECT count(*) AS count FROM events', [])
    expect(events?.count).toBe(2)
    expect(await database.query('SELECT minute, count FROM event_counts', [])).toEqual([
      { minute: time / 60, count: 14 },
    ])
  })

  test('stores a batch once if the first attempt commits after its answer was given up', async () => {
    const database = await open()
    await migrate(database)
    let commit = () => {}
    const mayCommit = new Promise<void>((resolve) => {
      commit = resolve
    })
    let first: Promise<unknown> | undefined
    const slow: Database = {
      ...database,
      transaction: (work) =>
        new Promise((_, reject) => {
          first = database.transaction(async (queries) => {
            await work(queries)
            reject(new DatabaseUnavailable('timeout'))
            await mayCommit
          })
        }),
    }
    const [id, batch] = [{ producer: 'p', seq: 1 }, batchOf({ events: [eventRow()] })]
    await expect(embeddedSink(slow).write(id, batch, false)).rejects.toThrow(DatabaseUnavailable)
    const retry = embeddedSink(database).write(id, batch, true)
    setTimeout(commit, 200)
    await Promise.all([first, retry])
    expect(await database.query('SELECT 1 FROM events', [])).toHaveLength(1)
  })

  test('hostile values come back unchanged', async () => {
    const database = await open()
    await migrate(database)
    const hostile = `'; DROP TABLE events; --"\\\n\r\t\u{1f6b0}\u202e{}[]$1${'x'.repeat(400)}`
    const fields = ['client_id', 'tenant', 'plan', 'method', 'endpoint', 'endpoint_pattern', 'rule_id', 'request_id']
    const event = eventRow(Object.fromEntries(fields.map((name) => [name, hostile])))
    const client = { time: 60, kind: 'user' as const, client: hostile, allowed: 1, refused: 0, near_limit: 0 }
    await embeddedSink(database).write(
      { producer: hostile, seq: 1 },
      batchOf({ events: [event], clients: [client] }),
      false,
    )
    const [row] = await database.query('SELECT * FROM events', [])
    for (const name of fields) expect(row?.[name]).toBe(hostile)
    expect(await database.query('SELECT client FROM event_clients', [])).toEqual([{ client: hostile }])
  })

  test('deletes the oldest minutes of totals beyond a number of rows', async () => {
    const database = await open()
    await migrate(database)
    const minute = Date.UTC(2030, 0, 31) / 60_000
    await database.query(
      `INSERT INTO event_limits SELECT ${minute} + n / 10, 'r' || n % 10, 'default', 'enforce', 1, 0, 0
       FROM generate_series(0, 299) n`,
    )
    const trim = () => deleteOldEvents(database, new Date(0), 155)
    expect(await trim()).toBe(150)
    expect(await trim()).toBe(0)
    const [left] = await database.query('SELECT min(minute) AS first, count(*) AS rows FROM event_limits', [])
    expect(left).toEqual({ first: minute + 15, rows: 150 })
  })

  test('nodes with another secret are noticed', async () => {
    const database = await open()
    await migrate(database)
    const isForeign = async (secret: string) => {
      const comparison = new SecretComparison(compareIn(database), secret)
      await comparison.settled()
      return comparison.isForeign
    }
    expect(await isForeign(SECRET)).toBe(false)
    expect(await isForeign(SECRET)).toBe(false)
    // An embedded database has one node, whose secret may change.
    expect(await isForeign('another secret of tests')).toBe(database.kind === 'postgres')
  })
})
