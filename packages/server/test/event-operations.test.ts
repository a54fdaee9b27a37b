// Events for replays: store time, sequence numbers, attributes and samples; refunds and resets beside decisions.

import { createLimiter, type Decision, memoryStore, type Subject } from 'sluice'
import { fakeClock } from 'sluice/testing'
import { describe, expect, test } from 'vitest'
import { parseReceipt, serializeReceipt } from '../src/checks/receipt-text.ts'
import { SamplePosition } from '../src/events/client-key.ts'
import { ecsDocument } from '../src/events/ecs.ts'
import type { Batch, DecisionEvent } from '../src/events/event.ts'
import { readMessage } from '../src/events/kafka/message-reader.ts'
import { EventPipeline, type KeyMode } from '../src/events/pipeline.ts'
import { keptAttributes } from '../src/events/rule-attributes.ts'
import { createSampleRate } from '../src/events/sample-rate.ts'
import { keyHash } from '../src/log.ts'
import { eventRow } from './event-rows.ts'
import { captureLog } from './service.ts'

const SECRET = 'a secret of tests'
const RULES = [
  { rule_id: 'all', scope: 'per_user', limit: 3, window_seconds: 60, when: { country: 'NL' } },
  { rule_id: 'pair', scope: ['api_key', 'attributes.header.cookie'], limit: 3, window_seconds: 60 },
]

function start({ sample = 1, keys = 'clear' }: { sample?: number; keys?: KeyMode } = {}) {
  const clock = fakeClock()
  const store = memoryStore({ clock })
  const limiter = createLimiter({ rules: RULES, store, clock })
  const batches: Batch[] = []
  const sink = {
    name: 'memory',
    write: async (_: unknown, batch: Batch) => {
      batches.push(batch)
      return 0
    },
    close: async () => {},
  }
  const hash = keyHash(SECRET)
  const pipeline = new EventPipeline(
    {
      nowMs: () => clock.nowUs() / 1000,
      steadyUs: () => clock.nowUs(),
      lastStoreUs: () => store.lastUs?.(),
      attributesOf: keptAttributes(limiter, hash),
      endpointOf: () => 'none',
      sampleRate: createSampleRate(sample),
      position: new SamplePosition(SECRET),
      ...{ log: captureLog().log, keyHash: hash, node: 'node', region: undefined },
    },
    [{ sink, keys }],
  )
  const check = (subject: Subject, requestId?: string) => {
    const decision = limiter.checkSync(subject, requestId) as Decision
    pipeline.record(subject, decision, decision, 1)
    return decision
  }
  const events = async (): Promise<readonly DecisionEvent[]> => {
    await pipeline.close()
    return batches.flatMap((batch) => batch.events)
  }
  return { clock, limiter, pipeline, check, events, batches }
}

describe('an event of a decision', () => {
  test('has the store time, a number without gaps, its cost, and attributes that rules use', async () => {
    const { clock, check, events } = start()
    check({ user: 'ann', cost: 2, attributes: { country: 'NL', secret: 'x', 'header.cookie': 'session=1' } })
    const firstUs = clock.nowUs()
    clock.advanceUs(1234)
    check({ user: 'ann', path: '/a' })
    expect(await events()).toMatchObject([
      {
        ...{ operation: 'check', store_time_us: firstUs, sequence: 1, request_cost: 2, admission_rate: 1 },
        attributes: expect.stringMatching(/^\{"country":"NL","header.cookie":"hmac:[0-9a-f]+"\}$/),
      },
      { store_time_us: firstUs + 1234, sequence: 2, request_cost: 1, attributes: null },
    ])
  })

  test('with hashed keys has no attributes', async () => {
    const { check, events } = start({ keys: 'hmac' })
    check({ user: 'ann', attributes: { country: 'NL' } })
    expect(await events()).toMatchObject([{ attributes: null }])
  })

  test('has the position of its client, also if the event is a refusal outside the sample', async () => {
    const { pipeline, check, events } = start({ sample: 0.5 })
    const users = Array.from({ length: 20 }, (_, number) => `user-${number}`)
    const outside = users.find((user) => (pipeline.positionOf({ user }) ?? 0) >= 0.5) ?? ''
    for (let count = 0; count < 4; count += 1) check({ user: outside, attributes: { country: 'NL' } })
    const found = await events()
    expect(found).toMatchObject([{ allowed: false, sample_rate: 1, admission_rate: 0.5, sequence: 1 }])
    expect(found[0]?.sample_position).toBeGreaterThanOrEqual(0.5)
  })
})

describe('refunds and resets', () => {
  test('are events in the order of the operations, and count in no total', async () => {
    const { clock, limiter, pipeline, check, events, batches } = start()
    const decision = check({ user: 'ann', attributes: { country: 'NL' } }, 'r1')
    clock.advanceMs(5)
    await limiter.give(decision)
    pipeline.recordRefund('r1', undefined, pipeline.positionOf({ user: 'ann' }))
    await limiter.reset('all', 'ann')
    pipeline.recordReset({ ruleId: 'all', scope: ['user'], key: 'ann' })
    check({ user: 'ann' })
    const { decided, operations, sampledOut, sinks } = pipeline.totals()
    expect([decided, operations, sampledOut, sinks[0]?.pending]).toEqual([2, 2, 0, 4])
    const found = await events()
    expect(found.map(({ operation, sequence }) => [operation, sequence])).toEqual([
      ['check', 1],
      ['refund', 2],
      ['reset', 3],
      ['check', 4],
    ])
    expect(found[1]).toMatchObject({
      request_id: 'r1',
      request_cost: null,
      store_time_us: clock.nowUs(),
      allowed: true,
    })
    expect(found[2]).toMatchObject({ rule_id: 'all', client_id: 'ann', bucket_key: 'all::user:ann' })
    expect(batches.flatMap(({ counts }) => counts).reduce((sum, { count }) => sum + count, 0)).toBe(2)
    expect(batches.flatMap(({ limits }) => limits).reduce((sum, { allowed }) => sum + allowed, 0)).toBe(1)
  })

  test('of a key with several facts have them all, API keys hashed', async () => {
    const { pipeline, events } = start()
    const key = { api_key: 'k_live_secret', 'attributes.header.cookie': 'c', endpoint: 'GET /a' }
    pipeline.recordReset({ ruleId: 'pair', scope: ['api_key', 'attributes.header.cookie'], key })
    const [event] = await events()
    expect(event).toMatchObject({ method: 'GET', endpoint: '/a', api_key: expect.stringMatching(/^hmac:/) })
    expect(JSON.stringify(event)).not.toContain('k_live_secret')
  })

  test('are sampled like the client of the check', async () => {
    const { pipeline, events } = start({ sample: 0.5 })
    pipeline.recordRefund('in', 1, 0.2)
    pipeline.recordRefund('out', 1, 0.7)
    pipeline.recordRefund('no client', 1, undefined)
    expect(await events()).toMatchObject([{ request_id: 'in', request_cost: 1, sample_position: 0.2 }])
    expect(pipeline.totals()).toMatchObject({ operations: 1, decided: 0, sinks: [{ stored: 1 }] })
  })
})

test('a receipt carries the position of its client, and receipts of older versions are read', () => {
  const receipt = { id: 'i', issuer: 'p', op: undefined, ttlUs: 5, items: [] }
  const [position, text] = [0.25, serializeReceipt({ receipt, caller: 'c', position: 0.25 })]
  expect(parseReceipt(text)).toEqual({ receipt, caller: 'c', position })
  expect(parseReceipt(serializeReceipt({ receipt, caller: 'c', position: undefined }))?.position).toBeUndefined()
  expect(parseReceipt(JSON.stringify([1, 'i', 'p', null, 5, 'c']))).toEqual({
    receipt,
    caller: 'c',
    position: undefined,
  })
})

test('a message of Kafka from an older version is read, as one that cannot be replayed', () => {
  const { operation, store_time_us, sequence, request_cost, attributes, admission_rate, sample_position, ...old } =
    eventRow()
  const read = (event: object) =>
    readMessage(Buffer.from(JSON.stringify({ kind: 'event', producer: 'p', seq: 1, ...event })))
  expect(read(old)).toMatchObject({ message: { operation: 'check', admission_rate: 0, sequence: 0 } })
  expect(read(eventRow())).toMatchObject({ message: eventRow({ event_id: expect.any(String) as never }) })
  expect(read({ ...eventRow(), operation: 'drop' })).toMatchObject({ bad: 'wrong_type' })
})

test('files of JSON lines have the fields of replays', () => {
  const { sluice } = ecsDocument(eventRow({ operation: 'refund', sequence: 7 }), 'host')
  expect(sluice).toMatchObject({ operation: 'refund', sequence: 7, admission_rate: 1 })
})
