// Time limits of the lean server, in virtual time: connections that never start, requests that never end, idle clients.

import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { type EchoServer, startEcho } from './echo-server.ts'
import { callBlock, END_HEADERS, frame, message, RawClient, uint32, unaryCall } from './raw-client.ts'

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

test('a connection without calls gets a GOAWAY after 30 minutes and is closed', async () => {
  const client = await open()
  vi.advanceTimersByTime(30 * 60_000)
  expect(client.frames.some(({ type }) => type === 'GOAWAY')).toBe(false)
  vi.advanceTimersByTime(5000)
  expect(await client.goaway()).toBe(0)
  expect(await ended(client)).toBe(true)
})

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
