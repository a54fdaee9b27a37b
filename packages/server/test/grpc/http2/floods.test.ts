// Clients that send cheap frames without end, read nothing, or never finish: each connection is bounded, and ends.

import { once } from 'node:events'
import { seededRandom } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { GrpcError, type StreamOutput } from '../../../src/grpc/method.ts'
import { type EchoServer, echoForTest, startEcho } from './echo-server.ts'
import {
  block,
  callBlock,
  END_HEADERS,
  END_STREAM,
  frame,
  message,
  PREFACE,
  RawClient,
  uint32,
  unaryCall,
} from './raw-client.ts'

const PROTOCOL_ERROR = 1
const CANCEL = 8
const ENHANCE_YOUR_CALM = 11
const NOTHING = Buffer.alloc(0)

let echo: EchoServer
let bystander: RawClient

beforeAll(async () => {
  echo = await startEcho()
  bystander = await RawClient.open(echo.port)
})

afterAll(async () => {
  bystander.close()
  await echo.server.close(0)
})

async function open(port = echo.port, settings: Buffer = NOTHING): Promise<RawClient> {
  const client = await RawClient.open(port, settings)
  onTestFinished(() => client.close())
  return client
}

function setting(name: number, value: number): Buffer {
  return Buffer.concat([Buffer.of(0, name), uint32(value)])
}

const INITIAL_WINDOW = 4

let bystanderId = 1
async function expectBystanderServed(): Promise<void> {
  const id = bystanderId
  bystanderId += 2
  bystander.send(unaryCall(id, '/echo.Echo/Now'))
  expect(await bystander.stream(id)).toBe('HEADERS DATA HEADERS+END')
}

/** Sends a chunk again and again until the server has had enough. */
async function flood(client: RawClient, chunkOf: (round: number) => Buffer): Promise<number | undefined> {
  for (let round = 0; round < 2000 && !client.isClosed; round += 1) {
    if (client.frames.some(({ type }) => type === 'GOAWAY')) break
    client.send(chunkOf(round))
    await new Promise((sent) => setImmediate(sent))
  }
  return client.goaway()
}

const repeated = (bytes: Buffer) => Buffer.concat(Array.from({ length: 100 }, () => bytes))

describe('frames that carry no work', () => {
  const openStream = frame('HEADERS', END_HEADERS, 1, callBlock('/echo.Echo/Never'))
  test.each([
    { name: 'PING', bytes: frame('PING', 0, 0, Buffer.alloc(8)) },
    { name: 'answers to PING', bytes: frame('PING', 1, 0, Buffer.alloc(8)) },
    { name: 'empty SETTINGS', bytes: frame('SETTINGS', 0, 0) },
    { name: 'SETTINGS', bytes: frame('SETTINGS', 0, 0, setting(INITIAL_WINDOW, 1)) },
    { name: 'acknowledged SETTINGS', bytes: frame('SETTINGS', 1, 0) },
    { name: 'PRIORITY', bytes: frame('PRIORITY', 0, 1, Buffer.from([0, 0, 0, 3, 1])) },
    { name: 'empty DATA', bytes: frame('DATA', 0, 1) },
    { name: 'padded empty DATA', bytes: frame('DATA', 8, 1, Buffer.from([9, 0, 0, 0, 0, 0, 0, 0, 0, 0])) },
    { name: 'WINDOW_UPDATE', bytes: frame('WINDOW_UPDATE', 0, 1, uint32(1)) },
    { name: 'WINDOW_UPDATE of the connection', bytes: frame('WINDOW_UPDATE', 0, 0, uint32(1)) },
    { name: 'RST_STREAM', bytes: frame('RST_STREAM', 0, 1, uint32(CANCEL)) },
    { name: 'GOAWAY', bytes: frame('GOAWAY', 0, 0, Buffer.alloc(8)) },
    { name: 'unknown types', bytes: frame(99, 0, 0, Buffer.from('what?')) },
  ])('a flood of $name ends the connection, and no other', async ({ bytes }) => {
    const client = await open()
    client.send(openStream)
    expect(await flood(client, () => repeated(bytes))).toBe(ENHANCE_YOUR_CALM)
    await expectBystanderServed()
  })

  test('a flood of calls that are reset at once ends the connection', async () => {
    const client = await open()
    const pair = (id: number) => [
      frame('HEADERS', END_HEADERS, id, callBlock('/echo.Echo/Never')),
      frame('RST_STREAM', 0, id, uint32(CANCEL)),
    ]
    const rounds = (round: number) =>
      Buffer.concat(Array.from({ length: 100 }, (_, index) => pair(1 + 2 * (round * 100 + index))).flat())
    expect(await flood(client, rounds)).toBe(ENHANCE_YOUR_CALM)
    await expectBystanderServed()
  })

  test('endless CONTINUATION ends the connection', async () => {
    const client = await open()
    client.acknowledges = false
    client.send(frame('HEADERS', 0, 1, callBlock('/echo.Echo/Now')))
    expect(await flood(client, () => frame('CONTINUATION', 0, 1))).toBe(ENHANCE_YOUR_CALM)
  })

  test('a header block above 20 KiB ends the connection', async () => {
    const client = await open()
    const part = block({ 'x-long': 'x'.repeat(100) })
    client.acknowledges = false
    client.send(frame('HEADERS', 0, 1, callBlock('/echo.Echo/Now')))
    const large = Buffer.concat(Array.from({ length: 100 }, () => part))
    client.send(frame('CONTINUATION', 0, 1, large), frame('CONTINUATION', END_HEADERS, 1, large))
    expect(await client.goaway()).toBe(ENHANCE_YOUR_CALM)
  })

  test('a busy client may send thousands of PING and WINDOW_UPDATE frames between its calls', async () => {
    const client = await open()
    const ping = frame('PING', 0, 0, Buffer.alloc(8))
    const update = (id: number) => frame('WINDOW_UPDATE', 0, id, uint32(10))
    for (let round = 0; round < 100; round += 1) {
      const ids = Array.from({ length: 100 }, (_, index) => 1 + 2 * (round * 100 + index))
      client.send(...ids.flatMap((id) => [unaryCall(id, '/echo.Echo/Now'), ping, update(0), update(id)]))
      await client.stream(ids.at(-1) ?? 0)
      client.frames.length = 0
    }
    expect(client.isClosed).toBe(false)
  })
})

describe('calls that a client abandons', () => {
  test('a reset call counts against the limit until its handler has settled', async () => {
    const releases: (() => void)[] = []
    const slow = {
      kind: 'unary' as const,
      path: '/echo.Echo/Slow',
      handle: () => new Promise<Uint8Array>((done) => releases.push(() => done(NOTHING))),
    }
    const { port, server } = await echoForTest({ limits: { streamsMax: 2 }, methods: [slow] })
    const client = await open(port)
    const reset = (id: number) => frame('RST_STREAM', 0, id, uint32(CANCEL))
    client.send(unaryCall(1, slow.path), reset(1), unaryCall(3, slow.path), reset(3), unaryCall(5, slow.path))
    expect(await client.stream(5)).toBe('RST_STREAM(7)')
    expect(server.stats().calls).toBe(2)
    for (const release of releases) release()
    await expect.poll(() => server.stats().calls).toBe(0)
    client.send(unaryCall(7, '/echo.Echo/Now'))
    expect(await client.stream(7)).toBe('HEADERS DATA HEADERS+END')
  })

  test('frames that cross a reset of the server are ignored', async () => {
    const client = await open()
    client.send(frame('HEADERS', END_HEADERS, 1, callBlock('/echo.Echo/Missing')))
    expect(await client.stream(1)).toBe('HEADERS+END RST_STREAM(0)')
    client.send(frame('DATA', 0, 1, message('late')), frame('HEADERS', END_HEADERS | END_STREAM, 1, block({ a: 'b' })))
    client.send(unaryCall(3, '/echo.Echo/Now'))
    expect(await client.stream(3)).toBe('HEADERS DATA HEADERS+END')
  })

  test('incomplete messages of one connection are bounded together', async () => {
    const { port } = await echoForTest({ limits: { messageBytesMax: 300_000, streamsMax: 1000 } })
    const client = await open(port)
    const half = Buffer.concat([Buffer.of(0), uint32(300_000), Buffer.alloc(16_000)])
    for (let id = 1; id < 300; id += 2) {
      client.send(frame('HEADERS', END_HEADERS, id, callBlock('/echo.Echo/Now')), frame('DATA', 0, id, half))
    }
    await client.until(({ type, flags }) => type === 'HEADERS' && (flags & END_STREAM) !== 0)
    const refused = client.frames.find(({ type }) => type === 'HEADERS')?.id ?? 0
    expect(client.status(refused)).toBe('8')
    expect(refused).toBeGreaterThan(100)
  })

  test.each([
    { name: 'compressed', bytes: Buffer.concat([Buffer.of(1), uint32(1), Buffer.of(7)]), status: '13' },
    { name: 'too large', bytes: Buffer.concat([Buffer.of(0), uint32(2 ** 31)]), status: '8' },
    { name: 'incomplete at the end', bytes: message('hello').subarray(0, 7), status: '13' },
  ])('a message that is $name ends a stream with status $status, and its handler learns it', async (one) => {
    const client = await open()
    client.send(frame('HEADERS', END_HEADERS, 1, callBlock('/echo.Echo/Watch')))
    await client.until(({ type }) => type === 'DATA')
    const before = echo.cancelled
    client.send(frame('DATA', END_STREAM, 1, Buffer.concat([message('fine'), one.bytes])))
    await client.stream(1)
    expect(client.status(1)).toBe(one.status)
    expect(echo.cancelled).toBe(before + 1)
  })

  test('a closed connection cancels its streams', async () => {
    const client = await open()
    client.send(frame('HEADERS', END_HEADERS, 1, callBlock('/echo.Echo/Watch')))
    await client.until(({ type }) => type === 'DATA')
    const before = echo.cancelled
    client.close()
    await expect.poll(() => echo.cancelled).toBe(before + 1)
  })
})

describe('clients that do not read', () => {
  test('a window of 0 holds the answer back, and later bytes follow the windows', async () => {
    const client = await open(echo.port, setting(INITIAL_WINDOW, 0))
    client.send(unaryCall(1, '/echo.Echo/Now', 'hello'))
    await client.until(({ type }) => type === 'HEADERS')
    client.send(frame('WINDOW_UPDATE', 0, 1, uint32(3)))
    await client.until(({ type, id }) => type === 'DATA' && id === 1)
    client.send(frame('SETTINGS', 0, 0, setting(INITIAL_WINDOW, 4)))
    await client.until(({ type, payload }) => type === 'DATA' && payload.length === 4)
    client.send(frame('WINDOW_UPDATE', 0, 1, uint32(100)))
    expect(await client.stream(1)).toBe('HEADERS DATA DATA DATA HEADERS+END')
    const sizes = client.frames.filter(({ type }) => type === 'DATA').map(({ payload }) => payload.length)
    expect(sizes).toEqual([3, 4, 3])
  })

  test('the server stops reading from a client that does not read, and goes on when it does', async () => {
    const client = await open(echo.port, setting(INITIAL_WINDOW, 2 ** 31 - 1))
    client.send(frame('WINDOW_UPDATE', 0, 0, uint32(2 ** 31 - 1 - 65_535)))
    client.socket.pause()
    const before = process.memoryUsage().arrayBuffers
    const ids = Array.from({ length: 600 }, (_, index) => 1 + 2 * index)
    for (const id of ids) client.send(unaryCall(id, '/echo.Echo/Large', uint32(100_000)))
    await expectBystanderServed()
    // The kernel holds a few MB at most; the rest of 60 MB was not even computed.
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(40 * 1024 * 1024)
    client.socket.resume()
    expect(await client.stream(ids.at(-1) ?? 0)).toMatch(/^HEADERS (DATA )+HEADERS\+END$/)
  })

  test('answers to a slow reader arrive complete and unchanged', async () => {
    const client = await open(echo.port, setting(INITIAL_WINDOW, 2 ** 31 - 1))
    client.send(frame('WINDOW_UPDATE', 0, 0, uint32(2 ** 31 - 1 - 65_535)))
    const random = seededRandom(7)
    const bodies = Array.from({ length: 200 }, () => {
      return Buffer.from(Array.from({ length: random.between(0, 16_000) }, () => random.between(0, 255)))
    })
    client.socket.pause()
    bodies.forEach((body, index) => {
      client.send(unaryCall(1 + 2 * index, random.pick(['/echo.Echo/Now', '/echo.Echo/Later']), body))
    })
    await expectBystanderServed()
    client.socket.resume()
    await Promise.all(bodies.map((_, index) => client.stream(1 + 2 * index)))
    for (const [index, body] of bodies.entries()) {
      const parts = client.frames.filter(({ type, id }) => type === 'DATA' && id === 1 + 2 * index)
      expect(Buffer.concat(parts.map(({ payload }) => payload)).equals(message(body))).toBe(true)
    }
  })

  test('a handler that writes without waiting is stopped, and reported', async () => {
    const outputs: StreamOutput[] = []
    const eager = {
      kind: 'stream' as const,
      path: '/echo.Echo/Eager',
      open: (_call: unknown, output: StreamOutput) => {
        outputs.push(output)
        return { message: () => {}, end: () => {}, cancel: () => {} }
      },
    }
    const { port, errors } = await echoForTest({ methods: [eager], limits: { messageBytesMax: 100_000 } })
    const client = await open(port)
    client.send(frame('HEADERS', END_HEADERS, 1, callBlock(eager.path)))
    await expect.poll(() => outputs.length).toBe(1)
    const [output] = outputs as [StreamOutput]
    const answers = Array.from({ length: 100 }, () => output.write(Buffer.alloc(50_000)))
    expect(answers.indexOf(false)).toBeLessThan(4)
    expect(errors).toHaveLength(1)
    expect(await client.stream(1)).toMatch(/RST_STREAM\(11\)$/)
    await output.drained()
    output.fail(new GrpcError('internal', 'ignored: the call has ended'))
  })

  test('messages of a stream wait until the handler has taken the one before', async () => {
    const releases: (() => void)[] = []
    const gated = {
      kind: 'stream' as const,
      path: '/echo.Echo/Gated',
      open: () => ({
        message: () => new Promise<void>((done) => releases.push(done)),
        end: () => {},
        cancel: () => {},
      }),
    }
    const { port } = await echoForTest({ methods: [gated] })
    const client = await open(port)
    client.send(frame('HEADERS', END_HEADERS, 1, callBlock(gated.path)))
    const one = message(Buffer.alloc(10_000))
    for (let index = 0; index < 6; index += 1) client.send(frame('DATA', 0, 1, one))
    client.send(unaryCall(3, '/echo.Echo/Now'))
    await client.stream(3)
    expect(releases).toHaveLength(1)
    expect(client.frames.some(({ type, id }) => type === 'WINDOW_UPDATE' && id === 1)).toBe(false)
    for (let taken = 1; taken < 6; taken += 1) {
      releases.at(-1)?.()
      await expect.poll(() => releases.length).toBe(taken + 1)
    }
    await client.until(({ type, id }) => type === 'WINDOW_UPDATE' && id === 1)
  })
})

describe('connections', () => {
  test('another protocol on the port is refused', async () => {
    const client = await RawClient.connect(echo.port)
    onTestFinished(() => client.close())
    client.send(Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n'))
    expect(await client.goaway()).toBe(PROTOCOL_ERROR)
    if (!client.isClosed) await once(client.socket, 'close')
  })

  test('a connection that sends its bytes one by one is served', async () => {
    const client = await RawClient.connect(echo.port)
    onTestFinished(() => client.close())
    client.acknowledges = false
    const bytes = Buffer.concat([PREFACE, frame('SETTINGS', 0, 0), unaryCall(1, '/echo.Echo/Now')])
    for (const byte of bytes) {
      client.send(Buffer.of(byte))
      await new Promise((sent) => setImmediate(sent))
    }
    expect(await client.stream(1)).toBe('HEADERS DATA HEADERS+END')
  })

  test('connections above the maximum are closed', async () => {
    const { port, server } = await echoForTest({ limits: { connectionsMax: 2 } })
    const clients = [await open(port), await open(port)]
    await Promise.all(clients.map((client) => client.until(({ type }) => type === 'SETTINGS')))
    const third = await open(port)
    expect(await third.until(() => true)).toBeUndefined()
    expect(server.stats().connections).toBe(2)
  })

  test('closing sends GOAWAY twice and ends idle connections', async () => {
    const { port, server } = await startEcho()
    const client = await open(port)
    client.send(unaryCall(1, '/echo.Echo/Now'))
    await client.stream(1)
    const closed = server.close(30_000)
    const ping = await client.until(({ type }) => type === 'PING')
    client.send(unaryCall(3, '/echo.Echo/Now'), frame('PING', 1, 0, ping?.payload))
    expect(await client.stream(3)).toBe('HEADERS DATA HEADERS+END')
    await closed
    const last = client.frames.filter(({ type }) => type === 'GOAWAY').map(({ payload }) => payload.readUInt32BE(0))
    expect(last).toEqual([2 ** 31 - 1, 3])
  })
})
