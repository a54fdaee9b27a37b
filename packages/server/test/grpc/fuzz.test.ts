// Hostile clients: whatever they send, the process survives and serves the next client.

import { once } from 'node:events'
import { constants } from 'node:http2'
import { connect, type Socket } from 'node:net'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { encodeRequests } from 'sluice/remote-wire'
import { seededRandom } from 'sluice/testing'
import { afterEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { SHOULD_RATE_LIMIT } from '../../src/grpc/envoy/should-rate-limit.ts'
import { ProtobufWriter } from '../../src/grpc/protobuf.ts'
import { grpcClient } from './client.ts'
import { CheckManyRequest, CheckRequest, CheckStreamRequest, RATE_LIMITER } from './messages.ts'
import { readResponse, requestBytes } from './rate-limit-fixture.ts'
import { type GrpcService, STACK_NAMES, serveGrpc } from './stacks.ts'

const RULE = '- { rule_id: one, limit: 5, window: 1d, scope: per_user }\n'
const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
const CHECK = `${RATE_LIMITER}/Check`
const STREAM = `${RATE_LIMITER}/CheckStream`
const REFLECTION = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo'
const QUOTAS = '/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas'
const MIB = 2 ** 20
const OVER_LIMIT = 2
const SEED = Number(process.env.SEED ?? 1)

const NAME = { ruleId: 'one', name: 'default', plan: undefined, byIp: false }
const CHARGE = { name: NAME, facts: { user: 'a' }, fingerprint: '', min: 1, max: 2, kind: 'enforce' } as const
const RETURN = { lease: 'x'.repeat(40), units: 1, settled: 0, spentUs: 0, ttlUs: 0 }
const EXCHANGE = encodeRequests([
  { type: 'take', charges: [CHARGE], op: 'o', returns: [RETURN] },
  { type: 'give', returns: [RETURN], op: '' },
  { type: 'peek', charges: [CHARGE] },
  { type: 'decide', subject: '{"user":"a"}', requestId: 'r', dryRun: false },
  { type: 'refund', requestId: 'r', units: 1 },
])

/** Every method, with a message that it accepts. */
const METHODS: Readonly<Record<string, Uint8Array>> = {
  [CHECK]: CheckRequest.encode({ client_id: 'a', attributes: { x: { text: 'y' } } }),
  [`${RATE_LIMITER}/CheckMany`]: CheckManyRequest.encode({ checks: [{ client_id: 'a' }, { client_id: 'b' }] }),
  [STREAM]: CheckStreamRequest.encode({ id: 1, check: { client_id: 'a' } }),
  [`${RATE_LIMITER}/Refund`]: new ProtobufWriter().string(1, 'request').finish(),
  '/grpc.health.v1.Health/Check': new Uint8Array(),
  [SHOULD_RATE_LIMIT]: requestBytes('edge', [['user=a', 'k=v'], { entries: ['ip=203.0.113.7'], hits: 0 }], 2),
  [QUOTAS]: new ProtobufWriter()
    .string(1, 'edge')
    .message(2, (usage) => {
      usage.message(1, (id) => id.message(1, (entry) => entry.string(1, 'user').string(2, 'a')))
      usage.uint(3, 5).uint(4, 1)
    })
    .finish(),
  '/sluice.v1.Leases/Exchange': EXCHANGE,
  '/sluice.v1.Leases/Watch': new Uint8Array(),
}

const unexpected: unknown[] = []
const keep = (error: unknown) => unexpected.push(error)
process.on('uncaughtExceptionMonitor', keep)
afterEach(() => expect(unexpected).toEqual([]))

/** A new client gets a correct answer, and no handler has failed. */
async function expectAlive({ grpcUrl, logged }: GrpcService): Promise<void> {
  const answer = await grpcClient(grpcUrl).call(CHECK, CheckRequest.encode({ client_id: 'alive' }))
  expect(answer.status).toBe(0)
  expect(logged.filter(({ event }) => event === 'grpc_internal_error')).toEqual([])
}

async function socketTo({ grpcUrl }: GrpcService): Promise<Socket> {
  const socket = connect(Number(new URL(grpcUrl).port), '127.0.0.1')
  socket.on('error', () => {}) // resets are expected
  socket.resume()
  onTestFinished(() => void socket.destroy())
  await once(socket, 'connect')
  return socket
}

describe.each(STACK_NAMES)('the %s stack survives', (stack) => {
  test('random bytes on the socket, and random frames after the preface', async () => {
    const service = await serveGrpc(stack, RULE, { envoyDomains: ['edge'] })
    const random = seededRandom(SEED)
    const bytes = (length: number) => Buffer.from(Array.from({ length }, () => random.between(0, 255)))
    for (let round = 0; round < 40; round += 1) {
      const socket = await socketTo(service)
      if (round % 2 === 1) socket.write(PREFACE)
      for (let frame = 0; frame < 10; frame += 1) {
        const payload = bytes(random.between(0, 64))
        const head = Buffer.from([0, 0, payload.length, random.between(0, 10), random.between(0, 255), 0, 0, 0, 1])
        socket.write(round % 4 < 2 ? payload : Buffer.concat([head, payload]))
      }
      socket.end()
    }
    await expectAlive(service)
  })

  test('random messages to every method', async () => {
    const service = await serveGrpc(stack, RULE, { envoyDomains: ['edge'] })
    const random = seededRandom(SEED)
    const methods = Object.keys(METHODS)
    const statuses = new Set<number>()
    const calls = Array.from({ length: 60 * methods.length }, async (_, round) => {
      const message = Buffer.from(Array.from({ length: random.between(0, 60) }, () => random.between(0, 255)))
      statuses.add((await service.client.call(methods[round % methods.length] as string, message)).status)
    })
    await Promise.all(calls)
    // ok, invalid_argument, not_found
    for (const status of statuses) expect([0, 3, 5]).toContain(status)
    await expectAlive(service)
  })

  test('valid messages with random changes, in constant memory', async () => {
    const service = await serveGrpc(stack, RULE, { envoyDomains: ['edge'] })
    const statuses = new Set<number>()
    const round = async () => {
      const random = seededRandom(SEED)
      for (let batch = 0; batch < 5; batch += 1) {
        const calls = Object.entries(METHODS).flatMap(([path, valid]) =>
          Array.from({ length: 10 }, async () => {
            const message = Buffer.from(valid)
            for (let change = 0; change < 3 && message.length > 0; change += 1) {
              message[random.between(0, message.length - 1)] = random.between(0, 255)
            }
            statuses.add((await service.client.call(path, message)).status)
          }),
        )
        await Promise.all(calls)
      }
    }
    await round()
    await round()
    const before = memory()
    for (let again = 0; again < 4; again += 1) await round()
    const after = memory()
    expect(after.heapUsed - before.heapUsed, 'heap, after 1800 calls').toBeLessThan(8 * MIB)
    expect(after.rss - before.rss, 'RSS, after 1800 calls').toBeLessThan(64 * MIB)
    for (const status of statuses) expect([0, 3, 5]).toContain(status)
    await expectAlive(service)
  })

  test('huge messages, huge lists and huge attributes', async () => {
    const service = await serveGrpc(stack, RULE, { envoyDomains: ['edge'] })
    const attributes = Object.fromEntries(Array.from({ length: 20_000 }, (_, index) => [`a${index}`, { text: 'x' }]))
    const huge = { client_id: 'x'.repeat(1_500_000) }
    expect(await service.client.call(CHECK, CheckRequest.encode({ attributes }))).toMatchObject({ status: 3 })
    expect(await service.client.call(CHECK, CheckRequest.encode(huge))).toMatchObject({ status: 3 })
    const checks = Array.from({ length: 1000 }, () => ({ ...huge, client_id: 'x'.repeat(2000) }))
    const many = await service.client.call(
      `${RATE_LIMITER}/CheckMany`,
      CheckManyRequest.encode({ checks }).subarray(0, 2e6),
    )
    expect([0, 3]).toContain(many.status)
    const descriptor = (bytes: number) => requestBytes('edge', [[`user=${'x'.repeat(bytes)}`]])
    expect(await service.client.call(SHOULD_RATE_LIMIT, descriptor(4 * MIB))).toMatchObject({ status: 8 })
    const { status, messages } = await service.client.call(SHOULD_RATE_LIMIT, descriptor(4 * MIB - 100))
    expect([status, readResponse(messages[0] as Buffer).code], 'no client avoids its limit').toEqual([0, OVER_LIMIT])
    const entries = Array.from({ length: 100_000 }, (_, index) => `k${index}=v`)
    expect(await service.client.call(SHOULD_RATE_LIMIT, requestBytes('edge', [entries]))).toMatchObject({ status: 3 })
    await expectAlive(service)
  })

  test('streams that are half closed, never ended, or reset while answers are on their way', async () => {
    const service = await serveGrpc(stack, RULE, { envoyDomains: ['edge'] })
    const client = grpcClient(service.grpcUrl)
    const message = CheckStreamRequest.encode({ id: 1, check: { client_id: 'a' } })
    for (let round = 0; round < 50; round += 1) {
      const stream = client.open(round % 5 === 0 ? REFLECTION : STREAM)
      stream.done.catch(() => {})
      for (let sent = 0; sent < 20; sent += 1) stream.send(round % 5 === 0 ? Buffer.from([0x3a, 0]) : message)
      if (round % 3 === 0) stream.stream.close(constants.NGHTTP2_CANCEL)
      if (round % 3 === 1) stream.end()
    }
    await expectAlive(service)
    client.close()
    await vi.waitFor(
      async () => expect(await inFlight(service), 'calls of the closed connection have ended').toBe(0),
      5000,
    )
  })

  test('ten thousand open streams, which all get their answers', { timeout: 60_000 }, async () => {
    const service = await serveGrpc(stack, RULE, { envoyDomains: ['edge'] })
    const message = CheckStreamRequest.encode({ id: 1, check: { client_id: 'a' } })
    const clients = Array.from({ length: 10 }, () => grpcClient(service.grpcUrl))
    const streams = clients.flatMap((client) => Array.from({ length: 1000 }, () => client.open(STREAM)))
    for (const stream of streams) stream.send(message)
    await Promise.all(streams.map((stream) => stream.count(1)))
    expect(await inFlight(service)).toBe(10_000)
    for (const stream of streams) stream.end()
    const ended = await Promise.all(streams.map((stream) => stream.done))
    expect(new Set(ended.map(({ status }) => status))).toEqual(new Set([0]))
    await vi.waitFor(async () => expect(await inFlight(service)).toBe(0), 5000)
    await expectAlive(service)
  })

  test('a flood of streams that are reset at once', async () => {
    const service = await serveGrpc(stack, RULE, { envoyDomains: ['edge'] })
    const client = grpcClient(service.grpcUrl)
    for (let round = 0; round < 20 && !client.session.destroyed; round += 1) {
      for (let opened = 0; opened < 200 && !client.session.closed; opened += 1) {
        const stream = client.open(CHECK)
        stream.done.catch(() => {})
        stream.stream.close(constants.NGHTTP2_CANCEL)
      }
      await new Promise((resolve) => setImmediate(resolve))
    }
    await expectAlive(service)
  })

  test('clients that read no answers: the stream is paused instead of buffering without bound', async () => {
    const service = await serveGrpc(stack, RULE, { envoyDomains: ['edge'] })
    const { open } = grpcClient(service.grpcUrl)
    const { stream } = open(STREAM)
    stream.on('error', () => {})
    stream.pause()
    const message = CheckStreamRequest.encode({ id: 1, check: { client_id: 'a', detail: true } })
    const frame = Buffer.concat([Buffer.from([0, 0, 0, 0, message.length]), message])
    const chunk = Buffer.concat(Array.from({ length: 1000 }, () => frame))
    let blocked = false
    for (let round = 0; round < 200 && !blocked; round += 1) {
      blocked = !stream.write(chunk) && !(await drainedWithin(stream, 300))
    }
    expect(blocked, 'the server stops reading').toBe(true)
    await expectAlive(service)
  })
})

function memory(): NodeJS.MemoryUsage {
  setFlagsFromString('--expose-gc')
  runInNewContext('gc')()
  return process.memoryUsage()
}

async function inFlight({ metrics }: GrpcService): Promise<number> {
  return Number(/sluice_grpc_in_flight_calls (\d+)/.exec(await metrics.scrape())?.[1])
}

async function drainedWithin(stream: NodeJS.EventEmitter, ms: number): Promise<boolean> {
  const signal = AbortSignal.timeout(ms)
  return once(stream, 'drain', { signal }).then(
    () => true,
    () => false,
  )
}
