// Clients that make the server hold bytes: the answers and messages of a connection, and those of all connections
// together, are bounded, and other clients are served meanwhile.

import { expect, onTestFinished, test } from 'vitest'
import { echoForTest } from './echo-server.ts'
import { callBlock, END_HEADERS, END_STREAM, frame, message, RawClient, uint32, unaryCall } from './raw-client.ts'

const RESOURCE_EXHAUSTED = '8'
const NO_WINDOW: Buffer = Buffer.concat([Buffer.of(0, 4), uint32(0)])
const MEGABYTE = uint32(1_000_000)
const limits = { streamsMax: 1000, messageBytesMax: 2 * 1024 * 1024 }

async function open(port: number, settings?: Buffer): Promise<RawClient> {
  const client = await RawClient.open(port, settings)
  onTestFinished(() => client.close())
  return client
}

async function expectServed(port: number): Promise<void> {
  const client = await open(port)
  client.send(unaryCall(1, '/echo.Echo/Now'))
  expect(await client.stream(1)).toBe('HEADERS DATA HEADERS+END')
  client.send(frame('HEADERS', END_HEADERS, 3, callBlock('/echo.Echo/Stream')))
  client.send(frame('DATA', END_STREAM, 3, Buffer.concat([message('one'), message('two')])))
  expect(await client.stream(3)).toBe('HEADERS DATA DATA HEADERS+END')
}

function refusals(client: RawClient): number {
  const ended = client.frames.filter(({ type, flags }) => type === 'HEADERS' && (flags & END_STREAM) !== 0)
  return ended.filter(({ id }) => client.status(id) === RESOURCE_EXHAUSTED).length
}

async function answered(client: RawClient, lastId: number): Promise<void> {
  await client.until(({ type, id }) => type === 'HEADERS' && id === lastId)
}

test('a connection leaves at most 16 MiB of unary answers unread', async () => {
  const { port } = await echoForTest({ limits })
  const client = await open(port, NO_WINDOW)
  for (let id = 1; id < 80; id += 2) client.send(unaryCall(id, '/echo.Echo/Large', MEGABYTE))
  await answered(client, 79)
  expect(refusals(client)).toBe(40 - 17)
  await expectServed(port)
})

test('a connection leaves at most 16 MiB of the answers of its streams unread', async () => {
  const { port } = await echoForTest({ limits })
  const client = await open(port, NO_WINDOW)
  const half = Buffer.concat([frame('DATA', 0, 0, message(Buffer.alloc(15_000))), frame('DATA', 0, 0, message('x'))])
  for (let id = 1; id < 1000; id += 2) {
    client.send(frame('HEADERS', END_HEADERS, id, callBlock('/echo.Echo/Stream')))
    for (let at = 0; at < 4; at += 1) client.send(withId(half, id))
  }
  await client.until(({ flags, type }) => type === 'HEADERS' && (flags & END_STREAM) !== 0)
  expect(refusals(client)).toBeGreaterThan(0)
  await expectServed(port)
})

test('all connections together hold at most 128 MiB and 64 KiB each', async () => {
  const { port } = await echoForTest({ limits })
  const clients: RawClient[] = []
  for (let at = 0; at < 11; at += 1) {
    const client = await open(port, NO_WINDOW)
    for (let id = 1; id < 32; id += 2) client.send(unaryCall(id, '/echo.Echo/Large', MEGABYTE))
    await answered(client, 31)
    clients.push(client)
  }
  expect(clients.slice(0, 8).map(refusals)).toEqual([0, 0, 0, 0, 0, 0, 0, 0])
  expect(clients.slice(9).map(refusals)).toEqual([15, 15])
  await expectServed(port)
  for (const client of clients) client.close()
  const next = await open(port, NO_WINDOW)
  await expect
    .poll(async () => {
      next.send(unaryCall(nextId(), '/echo.Echo/Large', MEGABYTE), unaryCall(nextId(), '/echo.Echo/Large', MEGABYTE))
      await answered(next, lastId)
      return next.status(lastId)
    })
    .toBe(undefined)
})

let lastId = -1
function nextId(): number {
  lastId += 2
  return lastId
}

/** DATA frames with another stream id. */
function withId(frames: Buffer, id: number): Buffer {
  const copy = Buffer.from(frames)
  for (let at = 0; at < copy.length; at += 9 + copy.readUIntBE(at, 3)) copy.writeUInt32BE(id, at + 5)
  return copy
}
