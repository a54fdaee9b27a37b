// Compatibility mode decides as envoyproxy/ratelimit documents.

import { memoryStore, type Store } from 'sluice'
import type { FakeClock } from 'sluice/testing'
import { describe, expect, it } from 'vitest'
import { guardStore } from '../../../sluice/src/failure/guard-store.ts'
import { remote } from '../../../sluice/src/testing/remote.ts'
import { ProtobufReader } from '../../src/grpc/protobuf.ts'
import { EXAMPLES, MESSAGING, OK, OVER, type Step } from './envoy-examples.ts'
import { type RateLimits, rateLimits, requestBytes } from './rate-limit-fixture.ts'

describe('compatibility mode', () => {
  it.for(EXAMPLES)('$name', async ({ domain, config, steps }) => {
    const service = rateLimits([config])
    for (const [index, step] of steps.entries()) await expectStep(service, domain, step, `step ${index + 1}`)
  })

  it.for([
    ['second', 1],
    ['minute', 60],
    ['hour', 3600],
    ['day', 86_400],
    ['week', 604_800],
    ['month', 2_592_000],
    ['Year', 31_536_000],
  ] as const)('a window of a %s is aligned to the epoch, and the reset is its end', async ([unit, seconds]) => {
    const config = `domain: d\ndescriptors: [{ key: k, rate_limit: { unit: ${unit}, requests_per_unit: 1, name: n } }]`
    const { ask, clock } = rateLimits([config])
    const nowSeconds = Math.floor(clock.nowUs() / 1_000_000)
    const left = seconds - (nowSeconds % seconds)
    const first = await ask('d', [['k=v']])
    expect(first.statuses[0]).toMatchObject({ code: OK, reset: left, limit: { requests: 1, name: 'n' } })
    expect((await ask('d', [['k=v']])).code).toBe(OVER)
    clock.advanceMs(left * 1000)
    expect(await ask('d', [['k=v']])).toMatchObject({ code: OK, statuses: [{ reset: seconds }] })
  })

  it('values that join to the same text have separate counters', async () => {
    const config = `
domain: d
descriptors:
  - key: a
    descriptors:
      - { key: b, rate_limit: { unit: hour, requests_per_unit: 1 } }
`
    const { ask } = rateLimits([config])
    expect((await ask('d', [['a=x_b', 'b=y']])).code).toBe(OK)
    expect((await ask('d', [['a=x', 'b=b_y']])).code).toBe(OK)
  })

  it('each decision is recorded under the name of its limit; metrics keys show values where asked', async () => {
    const config = `
domain: d
descriptors:
  - { key: plain, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: shown, value_to_metric: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: all, descriptors: [{ key: deep, detailed_metric: true, rate_limit: { unit: hour, requests_per_unit: 1 } }] }
`
    const { ask, recorded } = rateLimits([config])
    for (const entries of [['plain=x'], ['plain=x'], ['shown=1.2.3.4'], ['all=x', 'deep=y'], ['none=x']]) {
      await ask('d', [entries])
    }
    expect(recorded).toEqual([
      'envoy:d.plain true',
      'envoy:d.plain false',
      'envoy:d.shown_1_2_3_4 true',
      'envoy:d.all_x.deep_y true',
      'null true',
    ])
  })

  it('switches of the service apply to domains of the configuration only', async () => {
    const compat = { shadowMode: true, quotaMode: true, stopAtLimit: true, keyPrefix: '' }
    const { ask } = rateLimits([MESSAGING], { compat, overrides: true })
    const limited = { entries: ['to_number=1'], limit: [0, 3] as const }
    expect(await ask('messaging', [limited])).toMatchObject({ code: OK, statuses: [{ code: OVER }] })
    expect(await ask('other', [limited])).toMatchObject({ code: OVER, statuses: [{ code: OVER }] })
  })

  it('services with one key prefix share counters, those with others do not', async () => {
    const shared = memoryStore()
    const service = (keyPrefix: string) => {
      const compat = { shadowMode: false, quotaMode: false, stopAtLimit: false, keyPrefix }
      return rateLimits([MESSAGING], { compat, store: () => shared })
    }
    const remaining = async ({ ask }: RateLimits) => (await ask('messaging', [['to_number=1']])).statuses[0]?.remaining
    const [none, blue, alsoBlue, b] = [service(''), service('blue'), service('blue'), service('b')]
    expect([await remaining(none), await remaining(blue), await remaining(alsoBlue), await remaining(b)]).toEqual([
      99, 99, 98, 99,
    ])
  })

  it('an unavailable store is UNAVAILABLE, never an answer', async () => {
    const dead: Store = { ...memoryStore(), take: () => Promise.reject(new Error('gone')), close: async () => {} }
    const { ask } = rateLimits([MESSAGING], { store: () => guardStore(dead) })
    await expect(ask('messaging', [['to_number=1']])).rejects.toMatchObject({ status: 'unavailable' })
  })

  it.for([
    ['limit.unit', [{ entries: ['to_number=1'], limit: [2, 0] as const }]],
    ['from 1 to 7', [{ entries: ['to_number=1'], limit: [2, 9] as const }]],
    ['descriptors', []],
    ['entries', [[]]],
    ['key', [['=x']]],
    ['at most 128', Array.from({ length: 200 }, () => ['a=b'])],
    ['at most 64', [Array.from({ length: 100 }, () => 'a=b')]],
  ] as const)('an invalid request is INVALID_ARGUMENT: %s', async ([message, descriptors]) => {
    const { ask } = rateLimits([MESSAGING])
    await expect(ask('messaging', descriptors)).rejects.toMatchObject({
      status: 'invalid_argument',
      message: expect.stringContaining(message),
    })
  })

  it('a value that is not UTF-8 is counted: an error would make Envoy admit the request', async () => {
    const { send } = rateLimits([MESSAGING])
    const valid = Buffer.from(requestBytes('messaging', [['to_number=??']]))
    const invalid = Buffer.from(valid.toString('latin1').replace('??', '\xff\xfe'), 'latin1')
    const codes: number[] = []
    for (let hit = 0; hit < 200; hit += 1) codes.push((await send(invalid)).code)
    expect(new Set(codes)).toEqual(new Set([1, 2]))
  })

  it('random bytes are INVALID_ARGUMENT or an answer', async () => {
    const { send } = rateLimits([MESSAGING])
    let seed = 7
    for (let run = 0; run < 2000; run += 1) {
      const bytes = Buffer.from(
        Array.from({ length: run % 40 }, () => {
          seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31
          return seed % 256
        }),
      )
      const outcome = await send(bytes).catch((error) => error)
      expect(outcome.status ?? outcome.code).toSatisfy((one) => one === 'invalid_argument' || one === OK)
    }
  })

  it('adds headers and metadata if configured', async () => {
    const config = `
domain: d
descriptors:
  - key: k
    rate_limit: { unit: minute, requests_per_unit: 1, name: per-k }
    metadata: { tier: gold, weight: 2 }
`
    const { ask } = rateLimits([config], { headers: 'draft-03', metadata: true })
    const first = await ask('d', [['k=v'], ['other=v']])
    expect(first.headers).toEqual({
      'RateLimit-Limit': '1, 1;w=60;name="per-k"',
      'RateLimit-Remaining': '0',
      'RateLimit-Reset': String(first.statuses[0]?.reset),
    })
    for (const text of ['tier', 'gold', 'k=v', 'domain']) expect(first.metadata?.includes(text)).toBe(true)
    const second = await ask('d', [['k=v']])
    expect(second.headers['Retry-After']).toBe(String(second.statuses[0]?.reset))
    expect(second.metadata?.includes('gold')).toBe(false)
    const plain = rateLimits([config], { headers: 'x-ratelimit' })
    expect((await plain.ask('d', [['k=v']])).headers).toMatchObject({ 'X-RateLimit-Limit': '1' })
  })
})

describe('a request of several limits', () => {
  const CONFIG = `
domain: d
descriptors:
  - { key: hour, rate_limit: { unit: hour, requests_per_unit: 2 }, metadata: { who: { team: red, size: 1 }, all: [a] } }
  - { key: minute, rate_limit: { unit: minute, requests_per_unit: 2 }, metadata: { who: { team: blue, at: zrh } } }
  - { key: wide, rate_limit: { unit: day, requests_per_unit: 9 }, metadata: { all: [b], __proto__: { own: 1 } } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: week, requests_per_unit: 1 } }
  - { key: free, rate_limit: { unlimited: true }, metadata: { free: true } }
`
  const HOUR = 3600
  const MINUTE = 60

  /** Which limit the headers and the record describe, by the keys of the request, after it was sent so many times. */
  it.for([
    ['the last one over the limit', 'hour,minute', 3, 'minute'],
    ['the last one over the limit', 'minute,hour', 3, 'hour'],
    ['also before one that passes', 'hour,minute,wide', 3, 'minute'],
    ['a limit that refuses, not a quota', 'minute,quota', 3, 'minute'],
    ['a quota, if nothing refuses', 'wide,quota', 2, 'quota'],
    ['a shadow limit that has nothing left', 'wide,shadow', 2, 'shadow'],
    ['the first with the fewest hits left', 'hour,minute,wide', 1, 'hour'],
  ] as const)('is described as envoyproxy/ratelimit does: %s, of %s', async ([, keys, times, described]) => {
    const { ask, recorded } = rateLimits([CONFIG], { headers: 'x-ratelimit' })
    const descriptors = keys.split(',').map((key) => [`${key}=v`])
    let last = await ask('d', descriptors)
    for (let time = 1; time < times; time += 1) last = await ask('d', descriptors)
    const status = last.statuses[keys.split(',').indexOf(described)]
    expect(last.headers).toMatchObject({
      'X-RateLimit-Limit': String(status?.limit?.requests),
      'X-RateLimit-Remaining': String(status?.remaining),
      'X-RateLimit-Reset': String(status?.reset),
    })
    expect(recorded.at(-1)).toBe(`envoy:d.${described} ${last.code === OK}`)
  })

  it('passes again after Retry-After, and not before: when its last limit is full again', async () => {
    const { ask, clock } = rateLimits([CONFIG], { headers: 'x-ratelimit' })
    const both = [['hour=v'], ['minute=v']]
    for (let time = 0; time < 2; time += 1) await ask('d', both)
    const refused = await ask('d', both)
    const waitSeconds = Number(refused.headers['Retry-After'])
    expect(waitSeconds).toBe(Math.max(...refused.statuses.map(({ reset = 0 }) => reset)))
    expect(waitSeconds).toBeGreaterThan(MINUTE)
    expect(waitSeconds).toBeLessThanOrEqual(HOUR)
    clock.advanceMs((waitSeconds - 1) * 1000)
    expect((await ask('d', both)).code).toBe(OVER)
    clock.advanceMs(1000)
    expect((await ask('d', both)).code).toBe(OK)
  })

  it('has the metadata of all limits that passed, merged deeply; the first value of a key stays', async () => {
    const { ask } = rateLimits([CONFIG], { metadata: true })
    const { metadata } = await ask('d', [['minute=v'], ['hour=v'], ['wide=v'], ['free=v']])
    expect(structIn(new ProtobufReader(metadata ?? Buffer.alloc(0))).metadata).toEqual({
      ...{ who: { team: 'blue', at: 'zrh', size: 1 }, all: ['a'] },
      ['__proto__']: { own: 1 },
    })
  })
})

/** google.protobuf.Struct. */
function structIn(reader: ProtobufReader): Record<string, unknown> {
  const fields: [string, unknown][] = []
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    const entry = reader.message()
    entry.next()
    const key = entry.string()
    entry.next()
    fields.push([key, valueIn(entry.message())])
  }
  return Object.fromEntries(fields)
}

function valueIn(reader: ProtobufReader): unknown {
  const field = reader.next()
  if (field === 2) return reader.double()
  if (field === 3) return reader.string()
  if (field === 5) return structIn(reader.message())
  if (field !== 6) return undefined
  const list = reader.message()
  const values: unknown[] = []
  while (list.next() !== 0) values.push(valueIn(list.message()))
  return values
}

describe('the store', () => {
  /** Replies in later turns, as Redis does, and records what was started. */
  const recording = (started: [verb: string, expiresMs: number | undefined][]) => (clock: FakeClock) => {
    const store = remote(memoryStore({ clock }))
    const recorded: Store = {
      ...store,
      take: async (take) => {
        started.push(['take', take.expiresMs])
        await Promise.resolve()
        return store.take(take)
      },
      peek: (charges, mayBeStale, expiresMs) => {
        started.push(['peek', expiresMs])
        return store.peek(charges, mayBeStale, expiresMs)
      },
    }
    return recorded
  }

  it('adds and reads in one round trip, and knows when the caller gives up', async () => {
    const started: [string, number | undefined][] = []
    const config = 'domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 5 } }]'
    const rules = [{ rule_id: 'users', scope: 'per_user', limit: 5, window: '1d', algorithm: 'fixed_window' }]
    const { send } = rateLimits([config], { rules, timeoutMs: 60_000, store: recording(started) })
    const before = performance.now()
    const answered = send(requestBytes('d', [['k=a'], { entries: ['k=b'], hits: 0 }]))
    expect(started.map(([verb]) => verb)).toEqual(['take', 'peek'])
    expect((await answered).statuses.map(({ remaining }) => remaining)).toEqual([4, 5])
    await send(requestBytes('native', [['user=a'], { entries: ['user=b'], hits: 0 }]))
    expect(started.map(([verb]) => verb)).toEqual(['take', 'peek', 'peek', 'take'])
    for (const [, expiresMs = 0] of started) expect(expiresMs - before).toBeGreaterThan(50_000)
    for (const [, expiresMs = 0] of started) expect(expiresMs - performance.now()).toBeLessThan(60_000)
  })
})

async function expectStep({ ask, clock }: RateLimits, domain: string, step: Step, name: string): Promise<void> {
  if (step.afterSeconds !== undefined) clock.advanceMs(step.afterSeconds * 1000)
  let last = await ask(domain, step.ask, step.hits)
  for (let time = 1; time < (step.times ?? 1); time += 1) last = await ask(domain, step.ask, step.hits)
  expect(last.statuses, name).toHaveLength(step.ask.length)
  const statuses = last.statuses.map(({ code, remaining }) => [code, remaining])
  expect({ code: last.code, statuses }, name).toEqual({ code: step.code, statuses: step.statuses ?? statuses })
}
