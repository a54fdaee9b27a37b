// Contract of Analytics: writes random batches through a sink and compares every query with a model of the same rows.

import { wallClock } from 'sluice'
import { type Random, seededRandom } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Analytics, type Dimension, type Filter, QueryInvalid, type Range } from '../src/events/analytics.ts'
import { type Batch, EVENT_SOURCES } from '../src/events/event.ts'
import type { Sink } from '../src/events/sink.ts'
import { AnalyticsModel } from './analytics-model.ts'
import { CLIENTS, ENDPOINTS, KINDS, LIMITS, PLANS, RULES, randomBatches, TENANTS } from './random-batches.ts'

export type AnalyticsUnderTest = { readonly sink: Sink; readonly analytics: Analytics; close(): Promise<void> }

const SEED = 19
const BATCHES = 12
const MINUTE_MS = 60_000
const HOUR_MS = 3_600_000
const STEPS = [MINUTE_MS, 5 * MINUTE_MS, HOUR_MS, 24 * HOUR_MS]
const DIMENSIONS: readonly Dimension[] = ['rule', 'endpoint', 'plan', 'tenant', 'result', 'source', 'limit']
const TOP_OF = ['client', 'rule', 'endpoint', 'plan', 'tenant', 'limit'] as const
const TOP_BY = ['refused', 'allowed', 'near_limit'] as const

/** `create` returns an empty sink, and the analytics that read what it stored. */
export function analyticsContract(name: string, { create }: { create: () => Promise<AnalyticsUnderTest> }): void {
  describe(`analytics contract, ${name}`, () => {
    const nowMs = Math.floor(wallClock.nowUs() / 1000)
    const batches = randomBatches(SEED, nowMs, BATCHES)
    const model = new AnalyticsModel(batches)
    let tested: AnalyticsUnderTest
    beforeAll(async () => {
      tested = await create()
      await writeAll(tested.sink, batches)
    })
    afterAll(() => tested?.close())
    const analytics = () => tested.analytics
    const query = { analytics, model, nowMs }
    timelineCases(query)
    topCases(query)
    refusedClientCases(query)
    clientCases(query)
    latencyAndSummaryCases(query)
    eventCases(query)
    invalidCases(query)
  })
}

type Cases = { readonly analytics: () => Analytics; readonly model: AnalyticsModel; readonly nowMs: number }

/** Writes some batches twice, as the pipeline does after a lost answer. */
async function writeAll(sink: Sink, batches: readonly Batch[]): Promise<void> {
  for (const [index, batch] of batches.entries()) {
    const id = { producer: `it's "me" \\ ${index % 2}`, seq: index }
    expect(await sink.write(id, batch, false)).toBe(0)
    if (index % 3 === 0) expect(await sink.write(id, batch, true)).toBe(0)
  }
}

function timelineCases({ analytics, model, nowMs }: Cases): void {
  it.each([undefined, ...DIMENSIONS])('a timeline by %s adds up all decisions', async (by) => {
    for (const stepMs of STEPS) {
      for (const seriesMax of [1, 3, 50]) {
        const query = { ...all(nowMs), filter: {}, stepMs, by, seriesMax }
        expect(await analytics().timeline(query)).toEqual(model.timeline(query))
      }
    }
  })

  it('a timeline counts only decisions that match every filter', async () => {
    const random = seededRandom(SEED + 1)
    for (const by of [undefined, ...DIMENSIONS]) {
      for (let round = 0; round < 6; round += 1) {
        const filter = randomFilter(random, by === 'limit' || (by === undefined && round === 0))
        const query = { ...randomRange(random, nowMs), filter, stepMs: random.pick(STEPS), by, seriesMax: 5 }
        expect(await analytics().timeline(query), JSON.stringify(query)).toEqual(model.timeline(query))
      }
    }
  })

  it('a timeline of an empty range has no series', async () => {
    const query = { filter: {}, stepMs: MINUTE_MS, by: undefined, seriesMax: 5 }
    expect(await analytics().timeline({ ...query, fromMs: nowMs, toMs: nowMs })).toEqual([])
    expect(await analytics().timeline({ ...query, fromMs: 0, toMs: MINUTE_MS })).toEqual([])
    expect(await analytics().timeline({ ...query, fromMs: nowMs + HOUR_MS, toMs: Number.MAX_SAFE_INTEGER })).toEqual([])
  })
}

function topCases({ analytics, model, nowMs }: Cases): void {
  it.each(TOP_OF)('the top of each %s is ranked by each count, ties by name', async (of) => {
    for (const by of TOP_BY) {
      for (const limit of [1, 4, 1000]) {
        const query = { ...all(nowMs), filter: {}, of, by, limit, ...(limit === 4 && { search: 'E' }) }
        expect(await analytics().top(query), JSON.stringify(query)).toEqual(model.top(query))
      }
    }
  })

  it('the top counts only decisions that match every filter', async () => {
    const random = seededRandom(SEED + 2)
    for (const of of TOP_OF) {
      for (const by of TOP_BY) {
        const filter = of === 'client' ? { result: random.pick(['allowed', 'refused'] as const) } : undefined
        const query = { ...randomRange(random, nowMs), of, by, limit: 5 }
        const filtered = { ...query, filter: filter ?? randomFilter(random, of === 'limit') }
        expect(await analytics().top(filtered), JSON.stringify(filtered)).toEqual(model.top(filtered))
      }
    }
  })
}

function refusedClientCases({ analytics, model, nowMs }: Cases): void {
  it('clients are ranked by the refusals that match every filter, ties by name', async () => {
    const random = seededRandom(SEED + 5)
    for (let round = 0; round < 40; round += 1) {
      const range = round % 2 === 0 ? all(nowMs) : randomRange(random, nowMs)
      const { result: _, ...filter } = round === 0 ? {} : randomFilter(random, false)
      const query = { ...range, filter, limit: random.pick([1, 5, 1000]) }
      expect(await analytics().refusedClients(query), JSON.stringify(query)).toEqual(model.refusedClients(query))
    }
    expect(model.refusedClients({ ...all(nowMs), filter: {}, limit: 10 })).toHaveLength(10)
  })
}

function clientCases({ analytics, model, nowMs }: Cases): void {
  it.each(KINDS)('the report of a client of kind %s has its counts and its newest events', async (kind) => {
    for (const client of CLIENTS) {
      for (const stepMs of [MINUTE_MS, HOUR_MS]) {
        const range = all(nowMs)
        const report = await analytics().client({ kind, client, stepMs, events: 3, ...range })
        const events = model.events({ filter: { kind, client }, ...range, limit: 3 })
        expect(report).toEqual({ ...model.client(kind, client, range, stepMs), events })
      }
    }
  })

  it('the report of an unknown client is empty', async () => {
    const query = { kind: 'user' as const, client: 'mallory', stepMs: MINUTE_MS, events: 3, ...all(nowMs) }
    expect(await analytics().client(query)).toEqual({ allowed: 0, refused: 0, near_limit: 0, points: [], events: [] })
  })
}

function latencyAndSummaryCases({ analytics, model, nowMs }: Cases): void {
  it('latency has the histogram of each step', async () => {
    const random = seededRandom(SEED + 3)
    for (const stepMs of STEPS) {
      for (const range of [all(nowMs), randomRange(random, nowMs), { fromMs: nowMs, toMs: nowMs }]) {
        expect(await analytics().latency({ ...range, stepMs })).toEqual(model.latency(range, stepMs))
      }
    }
  })

  it('a summary adds up decisions and their sources', async () => {
    const random = seededRandom(SEED + 4)
    const filters = [{}, ...Array.from({ length: 12 }, (_, round) => randomFilter(random, round % 3 === 0))]
    for (const filter of filters) {
      for (const range of [all(nowMs), randomRange(random, nowMs), { fromMs: nowMs, toMs: nowMs }]) {
        const query = { ...range, filter }
        expect(await analytics().summary(query), JSON.stringify(query)).toEqual(model.summary(query))
      }
    }
  })
}

function eventCases({ analytics, model, nowMs }: Cases): void {
  it('events come back unchanged, newest first', async () => {
    const query = { ...all(nowMs), filter: {}, limit: 10_000 }
    expect(await analytics().events(query)).toEqual(model.events(query))
    expect(await analytics().events({ ...query, limit: 7 })).toEqual(model.events({ ...query, limit: 7 }))
  })

  it('events match every filter', async () => {
    const random = seededRandom(SEED + 5)
    const selections = [
      ...RULES.map((rule) => ({ rule })),
      ...ENDPOINTS.map((endpoint) => ({ endpoint })),
      ...PLANS.map((plan) => ({ plan })),
      ...TENANTS.map((tenant) => ({ tenant })),
      ...EVENT_SOURCES.map((source) => ({ source })),
      ...CLIENTS.flatMap((client) => [{ client }, { client, kind: random.pick(KINDS) }]),
      ...KINDS.map((kind) => ({ kind, result: 'refused' as const })),
    ]
    for (const filter of selections) {
      const query = { ...random.pick([all(nowMs), randomRange(random, nowMs)]), filter, limit: 100 }
      expect(await analytics().events(query), JSON.stringify(query)).toEqual(model.events(query))
    }
  })

  it('a range includes its first millisecond and excludes its last', async () => {
    const newest = model.events({ ...all(nowMs), filter: {}, limit: 1000 })
    for (const { timestamp } of newest.slice(0, 5)) {
      const query = { fromMs: timestamp, toMs: timestamp + 1, filter: {}, limit: 1000 }
      expect(await analytics().events(query)).toEqual(newest.filter((event) => event.timestamp === timestamp))
    }
  })
}

function invalidCases({ analytics, nowMs }: Cases): void {
  it('a query by a dimension that is not recorded is refused', async () => {
    const range = all(nowMs)
    const timeline = { ...range, filter: {}, stepMs: MINUTE_MS, by: undefined, seriesMax: 5 }
    const top = { ...range, filter: {}, of: 'client', by: 'refused', limit: 5 } as const
    await expect(analytics().timeline({ ...timeline, filter: { plan: 'pro' }, by: 'limit' })).rejects.toThrow(
      QueryInvalid,
    )
    await expect(analytics().timeline({ ...timeline, filter: { limit: 'a/b' }, by: 'plan' })).rejects.toThrow(
      QueryInvalid,
    )
    await expect(analytics().timeline({ ...timeline, stepMs: 1000 })).rejects.toThrow(QueryInvalid)
    await expect(analytics().top({ ...top, filter: { rule: 'login' } })).rejects.toThrow(QueryInvalid)
    await expect(analytics().summary({ ...range, filter: { limit: 'a/b', plan: 'pro' } })).rejects.toThrow(QueryInvalid)
  })
}

function all(nowMs: number): Range {
  return { fromMs: nowMs - 48 * HOUR_MS, toMs: nowMs + MINUTE_MS }
}

function randomRange(random: Random, nowMs: number): Range {
  const fromMs = nowMs - random.between(0, 27 * HOUR_MS)
  return { fromMs, toMs: fromMs + random.pick([1, MINUTE_MS, HOUR_MS, 27 * HOUR_MS]) }
}

function randomFilter(random: Random, perLimit: boolean): Filter {
  const rule = random.pick(RULES)
  const result = random.pick(['allowed', 'refused', undefined] as const)
  if (perLimit) return { ...random.pick([{ rule }, { limit: `${rule}/${random.pick(LIMITS)}` }]), result }
  return random.pick<Filter>([
    { rule },
    { rule, result },
    { endpoint: random.pick(ENDPOINTS) },
    { plan: random.pick(PLANS), tenant: random.pick(TENANTS) },
    { source: random.pick(EVENT_SOURCES), result },
  ])
}
