// Time limits of the lean server, in virtual time: connections that never start, requests that never end, idle clients.

import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { createLeanServer } from '../../../src/grpc/http2/server.ts'
import { type ConnectionAge, connectionAgeMs } from '../../../src/grpc/method.ts'
import { createNodeServer } from '../../../src/grpc/node-stack.ts'
import { type EchoServer, startEcho } from './echo-server.ts'
import { callBlock, END_HEADERS, END_STREAM, frame, message, RawClient, uint32, unaryCall } from './raw-client.ts'

const PING = frame('PING', 0, 0, Buffer.from('8 bytes.'))

let echo: EchoServer

beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  echo = await startEcho()
})

afterEach(async () => {
  vi.useRealTimers()
  await echo.server.close(0)
})

async function open(): Promise<RawClient> {
  const client = await RawClient.open(echo.port)
  onTestFinished(() => client.close())
  await client.until(({ type, flags }) => type === 'SETTINGS' && flags === 1)
  return client
}

/** Resolves once the server has closed the connection. */
async function ended(client: RawClient): Promise<boolean> {
  await client.until(() => false)
  return client.isClosed
}

test('a connection without a preface is closed after 10 seconds', async () => {
  const client = await RawClient.connect(echo.port)
  onTestFinished(() => client.close())
  await client.until(({ type }) => type === 'SETTINGS')
  vi.advanceTimersByTime(10_000)
  expect(echo.server.stats().connections).toBe(1)
  vi.advanceTimersByTime(2000)
  expect(await ended(client)).toBe(true)
})

test('a unary request that is incomplete after 30 seconds fails, and the connection stays', async () => {
  const client = await open()
  client.send(
    frame('HEADERS', END_HEADERS, 1, callBlock('/echo.Echo/Now')),
    frame('DATA', 0, 1, message('x').subarray(3)),
  )
  client.send(frame('HEADERS', END_HEADERS, 3, callBlock('/echo.Echo/Watch')), unaryCall(5, '/echo.Echo/Now'))
  await client.stream(5)
  vi.advanceTimersByTime(32_000)
  expect(await client.stream(1)).toMatch(/^HEADERS\+END/)
  expect(client.status(1)).toBe('4')
  client.send(unaryCall(7, '/echo.Echo/Now'))
  expect(await client.stream(7)).toBe('HEADERS DATA HEADERS+END')
  expect(echo.server.stats().calls).toBe(1) // the stream stays open
})

test('a connection that never had a call gets a GOAWAY after 20 seconds, even if it sends PINGs', async () => {
  const client = await open()
  vi.advanceTimersByTime(15_000)
  client.send(PING)
  await client.until(({ type }) => type === 'PING')
  vi.advanceTimersByTime(5000)
  expect(client.frames.some(({ type }) => type === 'GOAWAY')).toBe(false)
  vi.advanceTimersByTime(5000)
  expect(await client.goaway(), 'clients that connect in advance reconnect without an error').toBe(0)
  expect(await ended(client)).toBe(true)
  expect(echo.server.stats().timedOut).toMatchObject({ no_call: 1, idle: 0 })
})

test('a connection whose only call was refused counts as one without a call', async () => {
  const full = await startEcho({ limits: { callsMax: 1 } })
  onTestFinished(() => full.server.close(0))
  const holder = await RawClient.open(full.port)
  onTestFinished(() => holder.close())
  holder.send(frame('HEADERS', END_HEADERS, 1, callBlock('/echo.Echo/Watch')))
  await holder.until(({ type }) => type === 'DATA')
  const refused = await RawClient.open(full.port)
  onTestFinished(() => refused.close())
  refused.send(unaryCall(1, '/echo.Echo/Now'))
  expect(await refused.stream(1)).toBe('RST_STREAM(7)')
  vi.advanceTimersByTime(25_000)
  expect(await ended(refused)).toBe(true)
  expect(holder.isClosed).toBe(false)
})

describe('a connection is closed 10 seconds after', () => {
  const headers = callBlock('/echo.Echo/Now')
  const split = frame('HEADERS', 0, 3, headers.subarray(0, 20))
  const BEGINNINGS = [
    ['the first byte of a frame', Buffer.of(0)],
    ['the head of a frame', frame('DATA', 0, 3, Buffer.alloc(100)).subarray(0, 9)],
    ['all but the last byte of a frame', frame('HEADERS', END_HEADERS, 3, headers).subarray(0, -1)],
    ['HEADERS without END_HEADERS', split],
    ['a CONTINUATION without END_HEADERS', Buffer.concat([split, frame('CONTINUATION', 0, 3, headers.subarray(20))])],
  ] as const

  test.each(BEGINNINGS)('%s, if nothing completes it', async (_name, bytes) => {
    const client = await open()
    client.send(unaryCall(1, '/echo.Echo/Now'))
    await client.stream(1)
    client.send(bytes)
    await arrived()
    vi.advanceTimersByTime(10_000)
    expect(client.isClosed).toBe(false)
    vi.advanceTimersByTime(2000)
    expect(await client.goaway()).toBe(11) // ENHANCE_YOUR_CALM
    vi.advanceTimersByTime(5000)
    expect(await ended(client)).toBe(true)
    expect(echo.server.stats().timedOut).toMatchObject({ frame: 1 })
  })

  test('its first byte, however many more drip in', async () => {
    const client = await open()
    client.send(unaryCall(1, '/echo.Echo/Now'))
    await client.stream(1)
    for (const byte of frame('DATA', 0, 1, Buffer.alloc(100)).subarray(0, 12)) {
      client.send(Buffer.of(byte))
      await arrived()
      vi.advanceTimersByTime(1000)
    }
    expect(await client.goaway()).toBe(11)
  })
})

test('a slow upload whose frames each arrive within 10 seconds is not cut', async () => {
  const client = await open()
  client.send(frame('HEADERS', END_HEADERS, 1, callBlock('/echo.Echo/Stream')))
  const bytes = message('x'.repeat(20))
  for (const byte of bytes) {
    const data = frame('DATA', 0, 1, Buffer.of(byte))
    client.send(data.subarray(0, 9))
    await arrived()
    vi.advanceTimersByTime(8000)
    client.send(data.subarray(9))
    await arrived()
  }
  expect(await client.until(({ type, id }) => type === 'DATA' && id === 1)).toBeDefined()
  expect(client.isClosed).toBe(false)
})

test('idle connections that had a call, and silent streams, are not cut', async () => {
  const idle = await open()
  idle.send(unaryCall(1, '/echo.Echo/Now'))
  await idle.stream(1)
  const silent = await open()
  silent.send(frame('HEADERS', END_HEADERS, 1, callBlock('/echo.Echo/Watch')))
  await silent.until(({ type }) => type === 'DATA')
  for (let minute = 0; minute < 29; minute += 1) vi.advanceTimersByTime(60_000)
  for (const client of [idle, silent]) client.send(PING)
  for (const client of [idle, silent]) await client.until(({ type }) => type === 'PING')
  for (let minute = 0; minute < 29; minute += 1) vi.advanceTimersByTime(60_000)
  idle.send(unaryCall(3, '/echo.Echo/Now'))
  expect(await idle.stream(3)).toBe('HEADERS DATA HEADERS+END')
  for (const client of [idle, silent]) expect(client.frames.some(({ type }) => type === 'GOAWAY')).toBe(false)
})

test('a connection without calls gets a GOAWAY after 30 minutes and is closed', async () => {
  const client = await open()
  client.send(unaryCall(1, '/echo.Echo/Now'))
  await client.stream(1)
  vi.advanceTimersByTime(30 * 60_000)
  expect(client.frames.some(({ type }) => type === 'GOAWAY')).toBe(false)
  vi.advanceTimersByTime(5000)
  expect(await client.goaway()).toBe(0)
  expect(await ended(client)).toBe(true)
})

describe.each([
  ['lean', createLeanServer],
  ['node', createNodeServer],
] as const)('with a maximum age of a minute and a grace of 30 seconds, on the %s stack', (_name, create) => {
  const MINUTE = { maxMs: 60_000, graceMs: 30_000 }

  async function aging(connectionAge: ConnectionAge | undefined) {
    const server = await startEcho({ create, limits: { connectionAge } })
    onTestFinished(() => server.server.close(0))
    const clients = await Promise.all(Array.from({ length: 3 }, () => RawClient.open(server.port)))
    for (const client of clients) {
      onTestFinished(() => client.close())
      client.send(unaryCall(1, '/echo.Echo/Now'))
      await client.stream(1)
    }
    return { server: server.server, clients }
  }

  test('connections end with a GOAWAY, not together, and calls in progress are answered', async () => {
    const { server, clients } = await aging(MINUTE)
    const [client, streaming, silent] = clients as [RawClient, RawClient, RawClient]
    streaming.send(frame('HEADERS', END_HEADERS, 3, callBlock('/echo.Echo/Stream')))
    silent.send(frame('HEADERS', END_HEADERS, 3, callBlock('/echo.Echo/Watch')))
    await silent.until(({ type }) => type === 'DATA')
    vi.advanceTimersByTime(53_000)
    client.send(unaryCall(3, '/echo.Echo/Now'))
    expect(await client.stream(3)).toBe('HEADERS DATA HEADERS+END')
    expect(server.stats()).toMatchObject({ connections: 3, timedOut: { age: 0 } })
    vi.advanceTimersByTime(15_000)
    for (const one of clients) expect(await one.goaway()).toBe(0)
    expect(await ended(client)).toBe(true)
    streaming.send(frame('DATA', END_STREAM, 3, message('late')))
    expect(await streaming.stream(3)).toBe('HEADERS DATA HEADERS+END')
    expect(await ended(streaming)).toBe(true)
    expect(silent.isClosed).toBe(false)
    vi.advanceTimersByTime(31_000)
    expect(await ended(silent)).toBe(true)
    expect(server.stats().timedOut).toMatchObject({ age: 3, idle: 0, no_call: 0 })
  })

  test('without the setting, connections stay', async () => {
    const { clients } = await aging(undefined)
    for (let minute = 0; minute < 25; minute += 1) vi.advanceTimersByTime(60_000)
    for (const client of clients) {
      client.send(unaryCall(3, '/echo.Echo/Now'))
      expect(await client.stream(3)).toBe('HEADERS DATA HEADERS+END')
    }
  })
})

test('the age of a connection is within 10 % of the setting', () => {
  const ages = [0, 0.5, 1].map((random) => connectionAgeMs({ maxMs: 60_000, graceMs: 0 }, random))
  expect(ages).toEqual([54_000, 60_000, 66_000])
})

/** Resolves once the bytes that were sent have been read: the server reads its sockets in the order of arrival. */
async function arrived(): Promise<void> {
  const probe = await open()
  probe.close()
}

test('a client whose windows let nothing pass is closed after 5 minutes', async () => {
  const client = await open()
  client.send(unaryCall(1, '/echo.Echo/Large', uint32(500_000)))
  await client.until(({ type }) => type === 'DATA')
  vi.advanceTimersByTime(299_000)
  expect(echo.server.stats()).toMatchObject({ connections: 1, calls: 1 })
  vi.advanceTimersByTime(5000)
  expect(await ended(client)).toBe(true)
  await expect.poll(() => echo.server.stats().calls).toBe(0)
})
