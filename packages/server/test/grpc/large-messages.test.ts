// Messages that are large because they have many fields: the largest valid ones are answered in full, and one with more
// fields than any valid one is refused.

import { randomBytes } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import { decodeReplies, encodeRequests, type WireRequest } from 'sluice/remote-wire'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { FIELDS_MAX } from '../../../sluice/src/remote/protobuf.ts'
import { wholeMessage } from '../../src/grpc/compression.ts'
import type { Peer, UnaryMethod } from '../../src/grpc/method.ts'
import { ProtobufReader, ProtobufWriter } from '../../src/grpc/protobuf.ts'
import { STACKS } from '../../src/grpc/stacks.ts'
import { ADMIN_TOKEN } from '../service.ts'
import { echoForTest } from './http2/echo-server.ts'
import { callBlock, END_HEADERS, END_STREAM, frame, message as framedMessage, RawClient } from './http2/raw-client.ts'
import {
  CheckManyRequest,
  CheckManyResponse,
  CheckRequest,
  CheckResponse,
  CheckStreamRequest,
  CheckStreamResponse,
  RATE_LIMITER,
} from './messages.ts'
import { readResponse, requestBytes } from './rate-limit-fixture.ts'
import { STACK_NAMES, serveGrpc } from './stacks.ts'

const RULES = '- { rule_id: users, limit: 100000, window: 1d, algorithm: fixed_window, scope: per_user }'
const SHOULD_RATE_LIMIT = '/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit'
const EXCHANGE = '/sluice.v1.Leases/Exchange'
const QUOTAS = '/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas'
const CHECK = `${RATE_LIMITER}/Check`
const CHECK_STREAM = `${RATE_LIMITER}/CheckStream`
const [OK, INVALID, UNAUTHENTICATED] = [0, 3, 16]
const MIB = 2 ** 20
const GZIP = { 'grpc-encoding': 'gzip' }
const ADMIN = { authorization: `Bearer ${ADMIN_TOKEN}` }

function times<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => make(index))
}

/** A message of so many unknown fields, in a message in this field unless it is 0. */
function repeated(count: number, within: number): Uint8Array {
  const bytes = Buffer.concat(times(count, () => Buffer.of(0x78, 1))) // field 15, number 1
  return within === 0 ? bytes : new ProtobufWriter().bytes(within, bytes).finish()
}

function peer(): Peer {
  return { address: '192.0.2.1', certificateSubject: undefined }
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

/** The number of the current turn of the event loop, until the test ends. */
function countTurns(): () => number {
  let turn = 0
  const next = () => {
    turn += 1
    immediate = setImmediate(next)
  }
  let immediate = setImmediate(next)
  onTestFinished(() => clearImmediate(immediate))
  return () => turn
}

/** Count of the most frequent item. */
function mostOf(items: readonly number[]): number {
  return Math.max(...items.map((item) => items.filter((other) => other === item).length))
}

describe('messages that arrive in one turn', () => {
  // The turn before may have read messages.
  beforeEach(() => nextTurn())

  test('short gzip of a long message is not decompressed in the turn in which it arrives', async () => {
    const bomb = gzipSync(Buffer.alloc(4 * MIB))
    expect(bomb.length).toBeLessThan(5000)
    const whole = wholeMessage(bomb, true, 4 * MIB, peer())
    expect(whole).toBeInstanceOf(Promise)
    expect(await whole).toHaveLength(4 * MIB)
    await nextTurn()
    expect(wholeMessage(gzipSync(Buffer.alloc(64 * 1024)), true, 4 * MIB, peer())).toHaveLength(64 * 1024)
    const longer = wholeMessage(gzipSync(Buffer.alloc(64 * 1024 + 1)), true, 4 * MIB, peer())
    expect(longer).toBeInstanceOf(Promise)
    expect(await longer).toHaveLength(64 * 1024 + 1)
  })

  test('long gzip of nothing is not decompressed in the turn in which it arrives', async () => {
    const empty = Buffer.concat(times(300, () => gzipSync('')))
    const whole = wholeMessage(empty, true, 4 * MIB, peer())
    expect(whole).toBeInstanceOf(Promise)
    expect(await whole).toHaveLength(0)
  })

  test('100 small messages of gzip, and any number of plain ones, are read at once', () => {
    const small = gzipSync(Buffer.alloc(300, 'x'))
    for (const whole of times(100, () => wholeMessage(small, true, 4 * MIB, peer()))) expect(whole).toHaveLength(300)
    const plain = Buffer.alloc(4096)
    for (const whole of times(1000, () => wholeMessage(plain, false, 4 * MIB, peer()))) expect(whole).toBe(plain)
  })

  test('gzip of 60 KiB is decompressed at once for 256 KiB of a turn, the rest in the thread', async () => {
    const bomb = gzipSync(Buffer.alloc(60 * 1024))
    const all = times(50, () => wholeMessage(bomb, true, 4 * MIB, peer()))
    expect(all.filter((whole) => !(whole instanceof Promise)).length).toBeLessThanOrEqual(5)
    for (const whole of await Promise.all(all)) expect(whole).toHaveLength(60 * 1024)
  })

  test.each([
    ['plain', false, (bytes: number) => Buffer.alloc(bytes)],
    ['compressed', true, (bytes: number) => gzipSync(Buffer.alloc(bytes))],
  ])('large %s messages are read in a turn each, and connections alternate', async (_name, isCompressed, make) => {
    const turnOf = countTurns()
    const [many, few] = [peer(), peer()]
    const read: { turn: number; from: Peer }[] = []
    const large = make(300 * 1024)
    const send = async (from: Peer) => {
      await wholeMessage(large, isCompressed, 4 * MIB, from)
      read.push({ turn: turnOf(), from })
    }
    await Promise.all([...times(10, () => send(many)), send(few)])
    expect(mostOf(read.map(({ turn }) => turn))).toBe(1)
    expect(read.findIndex(({ from }) => from === few)).toBeLessThan(4)
  })
})

test('long gzip that waits for the thread is bounded, and accepted again when it has been read', async () => {
  const long = gzipSync(randomBytes(4 * MIB - 10_000))
  const waiting: unknown[] = []
  const flood = () => {
    for (let count = 0; count < 20; count += 1) waiting.push(wholeMessage(long, true, 4 * MIB, peer()))
  }
  expect(flood).toThrow('too many compressed messages wait')
  expect(waiting.length).toBeGreaterThan(7)
  await Promise.all(waiting)
  expect(await wholeMessage(long, true, 4 * MIB, peer())).toHaveLength(4 * MIB - 10_000)
})

describe.each(STACK_NAMES)('on the %s stack', (stack) => {
  test.each([
    ['Check', `${RATE_LIMITER}/Check`, 0],
    ['CheckMany', `${RATE_LIMITER}/CheckMany`, 0],
    ['a check of CheckMany', `${RATE_LIMITER}/CheckMany`, 1],
    ['a check of CheckStream', `${RATE_LIMITER}/CheckStream`, 2],
    ['Refund', `${RATE_LIMITER}/Refund`, 0],
    ['Explain', `${RATE_LIMITER}/Explain`, 0],
    ['ShouldRateLimit', SHOULD_RATE_LIMIT, 0],
    ['a descriptor of ShouldRateLimit', SHOULD_RATE_LIMIT, 2],
    ['Exchange', EXCHANGE, 0],
    ['a request of Exchange', EXCHANGE, 1],
    ['quota reports', QUOTAS, 0],
    ['a bucket of a quota report', QUOTAS, 2],
    ['health', '/grpc.health.v1.Health/Check', 0],
    ['reflection', '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo', 0],
  ])('%s refuses a message of more fields than any valid one, and names the bound', async (_name, path, within) => {
    const { client } = await serveGrpc(stack, RULES)
    const refused = await client.call(path, repeated(FIELDS_MAX + 1, within), ADMIN)
    expect(refused).toMatchObject({ status: INVALID, detail: expect.stringContaining('at most 120000 fields') })
    const { status, detail } = await client.call(path, repeated(FIELDS_MAX - 1, within), ADMIN)
    expect([status, detail], 'as many as are accepted').not.toContain('fields in one message')
  })

  test.each([
    `${RATE_LIMITER}/Check`,
    `${RATE_LIMITER}/CheckMany`,
    `${RATE_LIMITER}/Refund`,
    `${RATE_LIMITER}/Explain`,
    SHOULD_RATE_LIMIT,
    EXCHANGE,
  ])('a call of %s without a token is refused before its message is decompressed', async (path) => {
    const { client } = await serveGrpc(stack, RULES, { checks: 'token' })
    const notGzip = Buffer.from('hello')
    expect((await client.call(path, notGzip, GZIP, 1)).status).toBe(UNAUTHENTICATED)
    const admitted = await client.call(path, notGzip, { ...GZIP, ...ADMIN }, 1)
    expect(admitted.detail).toBe('malformed message: it is not valid gzip')
  })

  test('messages that one read of the socket completes are handled in several turns, and answered', async () => {
    const turnOf = countTurns()
    const turns: number[] = []
    const path = '/echo.Echo/Turns'
    const handle = () => {
      turns.push(turnOf())
      return Buffer.alloc(0)
    }
    const method: UnaryMethod = { kind: 'unary', path, handle }
    const { port } = await echoForTest({ create: STACKS[stack], methods: [method] })
    const client = await RawClient.open(port)
    onTestFinished(() => client.close())
    const ids = times(16, (index) => 1 + 2 * index)
    const body = framedMessage(Buffer.alloc(60_000))
    for (const id of ids) {
      client.send(frame('HEADERS', END_HEADERS, id, callBlock(path)))
      for (let at = 0; at < body.length; at += 16_000) {
        client.send(frame('DATA', 0, id, body.subarray(at, at + 16_000)))
      }
    }
    client.send(...ids.map((id) => frame('DATA', END_STREAM, id)))
    for (const id of ids) expect(await client.stream(id)).toMatch(/^HEADERS .*HEADERS\+END$/)
    expect(turns).toHaveLength(16)
    expect(mostOf(turns), 'four times 60,000 bytes').toBeLessThanOrEqual(4)
  })

  test('gzip is accepted, in any mix with plain messages, and answered in order', async () => {
    const { client } = await serveGrpc(stack, RULES)
    const check = CheckRequest.encode({ client_id: 'ann' })
    const [one] = (await client.call(CHECK, gzipSync(check), GZIP, 1)).messages
    expect(CheckResponse.decode(one as Buffer)).toMatchObject({ allowed: true, remaining: 99_999 })
    expect((await client.call(CHECK, check, GZIP)).status, 'a plain message of such a call').toBe(OK)
    const stream = client.open(CHECK_STREAM, GZIP)
    // The second message is decompressed in a thread, because it is long.
    const noise = randomBytes(200_000).toString('hex')
    for (let id = 0; id < 6; id += 1) {
      const body = CheckStreamRequest.encode({ id, check: { client_id: id === 1 ? noise : 'ann' } })
      if (id % 3 === 2) stream.send(body)
      else stream.send(gzipSync(body), 1)
    }
    stream.end()
    const { status, messages } = await stream.done
    expect(status).toBe(OK)
    expect(messages.map((message) => Number(CheckStreamResponse.decode(message).id ?? 0))).toEqual([0, 1, 2, 3, 4, 5])
  })

  test('messages of 4 MiB are accepted, and what gzip contains has the same bounds', async () => {
    const { client } = await serveGrpc(stack, RULES, { envoyDomains: ['edge'] })
    const ask = async (message: Uint8Array, flag = 0) => {
      const { status, detail, messages } = await client.call(SHOULD_RATE_LIMIT, message, GZIP, flag)
      return status === OK ? readResponse(messages[0] as Buffer).code : [status, detail]
    }
    const [overLimit, tooLarge] = [2, 8] // no rule can count a value that long
    const letters = (bytes: number) => requestBytes('edge', [[`user=${'x'.repeat(bytes)}`]])
    const noise = (bytes: number) => requestBytes('edge', [[`user=${randomBytes(bytes / 2).toString('hex')}`]])
    for (const make of [letters, noise]) {
      expect(await ask(make(4 * MIB - 100))).toBe(overLimit)
      expect(await ask(gzipSync(make(4 * MIB - 100)), 1)).toBe(overLimit)
      expect(await ask(make(4 * MIB))).toEqual([tooLarge, expect.stringContaining('at most 4194304')])
      expect(await ask(gzipSync(make(4 * MIB)), 1)).toEqual([tooLarge, expect.stringContaining('at most 4194304')])
    }
    expect(await ask(gzipSync(repeated(FIELDS_MAX + 1, 0)), 1)).toEqual([INVALID, expect.stringContaining('120000')])
  })

  test.each([
    ['compressed, although the call has no grpc-encoding', {}, 1, gzipSync('hello'), 13],
    ['of another encoding', { 'grpc-encoding': 'snappy' }, 1, gzipSync('hello'), 12],
    ['not gzip', GZIP, 1, Buffer.from('hello'), 13],
    ['long and not gzip', GZIP, 1, Buffer.alloc(100_000), 13],
    ['a part of gzip', GZIP, 1, gzipSync('hello').subarray(0, -9), 13],
    ['of another flag', GZIP, 2, Buffer.from('hello'), 13],
  ])('a message that is %s ends its call, and no other', async (_name, headers, flag, message, expected) => {
    const { client, metrics } = await serveGrpc(stack, RULES)
    for (const path of [CHECK, CHECK_STREAM]) {
      const { status, detail } = await client.call(path, message, headers, flag)
      expect([status, detail]).toEqual([expected, expect.stringMatching(/gzip|first byte/)])
    }
    expect(await client.call(CHECK, CheckRequest.encode({ client_id: 'ann' }))).toMatchObject({ status: OK })
    expect(await metrics.scrape(), 'the stream has ended').toMatch(/CheckStream",status="cancelled"} 1\n/)
  })

  test('a quota report names at most 64 entries of a bucket, as a descriptor has', async () => {
    const { client } = await serveGrpc(stack, RULES)
    const report = (entries: number) => {
      const writer = new ProtobufWriter().string(1, 'edge')
      writer.message(2, (usage) =>
        usage.message(1, (id) => {
          for (let at = 0; at < entries; at += 1) id.message(1, (entry) => entry.string(1, `k${at}`))
        }),
      )
      return writer.finish()
    }
    const accepted = client.open(QUOTAS, ADMIN)
    accepted.send(report(64))
    await accepted.count(1)
    accepted.end()
    const refused = await client.call(QUOTAS, report(65), ADMIN)
    expect(refused).toMatchObject({ status: INVALID, detail: expect.stringContaining('bucket_id: give at most 64') })
  })

  test('1000 checks with all facts and 32 attributes are decided in order', async () => {
    const { client } = await serveGrpc(stack, RULES)
    const attributes = Object.fromEntries(times(32, (index) => [`a${index}`, { text: 'x' }]))
    const facts = { endpoint: '/x', method: 'GET', ip_address: '192.0.2.1', api_key: 'k', tenant: 't', plan: 'p' }
    const checks = times(1000, (index) => {
      return { client_id: 'ann', ...facts, cost: 1, attributes, request_id: `r${index}`, detail: true }
    })
    const { status, messages } = await client.call(`${RATE_LIMITER}/CheckMany`, CheckManyRequest.encode({ checks }))
    expect(status).toBe(OK)
    const { results } = CheckManyResponse.decode(messages[0] as Buffer) as { results: unknown[] }
    expect(results).toMatchObject(times(1000, (index) => ({ response: { allowed: true, remaining: 99_999 - index } })))
  })

  test('128 descriptors of 64 entries are answered', async () => {
    const { client } = await serveGrpc(stack, RULES, { envoyDomains: ['edge'] })
    const descriptors = times(128, (index) => ['user=ann', ...times(63, (at) => `k${at}=${index}`)])
    const { status, messages } = await client.call(SHOULD_RATE_LIMIT, requestBytes('edge', descriptors))
    expect(status).toBe(OK)
    expect(readResponse(messages[0] as Buffer).statuses).toHaveLength(128)
  })

  test('a lease exchange of 1000 requests with 16 charges each is answered', async () => {
    const { client } = await serveGrpc(stack, RULES)
    const name = { ruleId: 'users', name: 'default', plan: undefined, byIp: false }
    const charge = { name, facts: { user: 'ann' }, fingerprint: '', min: 1, max: 1, kind: 'enforce' } as const
    const take: WireRequest = { type: 'take', charges: Array(16).fill(charge), op: '', returns: [] }
    const { status, messages } = await client.call(EXCHANGE, encodeRequests(Array(1000).fill(take)), ADMIN)
    expect(status).toBe(OK)
    const replies = decodeReplies(messages[0] as Buffer)
    expect(replies).toHaveLength(1000)
    for (const reply of replies) expect(reply).toMatchObject({ type: 'taken', taken: { granted: true } })
  })

  test('a quota report of 10,000 buckets with four entries each is answered', async () => {
    const { client } = await serveGrpc(stack, RULES)
    const writer = new ProtobufWriter().string(1, 'edge')
    for (let index = 0; index < 10_000; index += 1) {
      writer.message(2, (usage) => {
        usage.message(1, (id) => {
          for (const key of ['user', 'a', 'b', 'c'])
            id.message(1, (entry) => entry.string(1, key).string(2, `${index}`))
        })
        usage
          .message(2, (elapsed) => elapsed.uint(1, 5))
          .uint(3, 1)
          .uint(4, 1)
      })
    }
    const stream = client.open(QUOTAS, ADMIN)
    stream.send(writer.finish())
    await stream.count(1)
    const reader = new ProtobufReader(stream.messages[0] as Buffer)
    const buckets = new Set<string>() // a bucket may have several actions
    for (let field = reader.next(); field !== 0; field = reader.next()) {
      const action = reader.message()
      expect(action.next()).toBe(1)
      buckets.add(action.bytes().toString('latin1'))
    }
    expect(buckets.size).toBe(10_000)
    stream.end()
  })
})
