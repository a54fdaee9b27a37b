// Seeded fuzz of the lean server: random bytes, mutated frames, half-closed streams and 10,000 streams. The process
// survives, memory stays bounded, and another connection keeps its service. Replay: FUZZ_SEED=… npx vitest run …

import { type Random, seededRandom } from 'sluice/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type EchoServer, startEcho } from './echo-server.ts'
import {
  block,
  callBlock,
  END_HEADERS,
  END_STREAM,
  frame,
  message,
  PREFACE,
  RawClient,
  TYPES,
  uint32,
  unaryCall,
} from './raw-client.ts'

const SEED = Number(process.env.FUZZ_SEED ?? 22)
const CONNECTIONS = 300
const METHODS = ['Now', 'Later', 'Never', 'Refuse', 'RefuseLater', 'Stream', 'Watch', 'Missing']
const GROWTH_BYTES_MAX = 128 * 1024 * 1024

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

let bystanderId = 1
async function expectServed(seed: number): Promise<void> {
  const id = bystanderId
  bystanderId += 2
  bystander.send(unaryCall(id, '/echo.Echo/Later', `seed ${seed}`))
  expect(await bystander.stream(id), `replay: FUZZ_SEED=${seed}`).toBe('HEADERS DATA HEADERS+END')
  bystander.frames.length = 0
}

function randomBytes(random: Random, length: number): Buffer {
  return Buffer.from(Array.from({ length }, () => random.between(0, 255)))
}

/** A frame that is valid more often than not. */
function randomFrame(random: Random, ids: number[]): Buffer {
  const fresh = ids.length === 0 || random.next() < 0.4
  const id = fresh ? (ids.at(-1) ?? -1) + 2 : random.pick(ids)
  const isEnd = random.next() < 0.5 ? END_STREAM : 0
  const payload = () => randomBytes(random, random.between(0, 40))
  const makers: (() => Buffer)[] = [
    () => {
      if (fresh) ids.push(id)
      const more = random.next() < 0.3 ? { 'grpc-timeout': `${random.between(0, 30)}m` } : {}
      return frame('HEADERS', END_HEADERS | isEnd, id, callBlock(`/echo.Echo/${random.pick(METHODS)}`, more))
    },
    () => frame('DATA', isEnd, id, message(payload())),
    () => frame('DATA', isEnd, id, payload()),
    () => frame('DATA', isEnd, id, message(Buffer.alloc(random.between(0, 12_000)))),
    () => frame('RST_STREAM', 0, id, uint32(random.between(0, 13))),
    () => frame('WINDOW_UPDATE', 0, random.pick([0, id]), uint32(random.between(1, 100_000))),
    () => frame('SETTINGS', 0, 0, Buffer.concat([Buffer.of(0, 4), uint32(random.between(0, 100_000))])),
    () => frame('PING', 0, 0, Buffer.alloc(8)),
    () => frame('PRIORITY', 0, id, Buffer.concat([uint32(random.between(0, 9)), Buffer.of(1)])),
    () => {
      if (fresh) ids.push(id)
      // Inserts into the table of the decoder, resizes it and refers to it.
      const resized = random.next() < 0.3 ? Buffer.of(0x20 | random.between(0, 30)) : Buffer.alloc(0)
      const inserted = Buffer.of(0x40, 1, 97, 1, random.between(33, 126), 0x80 | random.between(61, 66))
      return frame('HEADERS', END_HEADERS | isEnd, id, Buffer.concat([resized, callBlock('/echo.Echo/Now'), inserted]))
    },
    () => frame('HEADERS', END_HEADERS | isEnd, id, block({ 'x-trailer': 'yes' })),
    () => frame('HEADERS', 0, id, callBlock('/echo.Echo/Now').subarray(0, 20)),
    () => frame(random.pick(TYPES), random.between(0, 255), random.between(0, 9), payload()),
  ]
  const likely = random.next() < 0.7 ? makers.slice(0, 4) : makers
  return random.pick(likely)()
}

function mutated(random: Random, bytes: Buffer): Buffer {
  for (let count = random.between(0, 3); count > 0; count -= 1) {
    bytes[random.between(0, bytes.length - 1)] = random.between(0, 255)
  }
  return bytes
}

/** One connection that ends in any way. */
async function attack(seed: number): Promise<void> {
  const random = seededRandom(seed)
  const client = await RawClient.connect(echo.port)
  if (random.next() < 0.95) client.send(PREFACE, frame('SETTINGS', 0, 0))
  const ids: number[] = []
  const isNoise = random.next() < 0.1
  const isMutated = random.next() < 0.3
  const frames = Array.from({ length: random.between(1, 60) }, () => {
    return isNoise ? randomBytes(random, random.between(1, 100)) : randomFrame(random, ids)
  })
  const bytes = Buffer.concat(frames)
  if (isMutated) mutated(random, bytes)
  for (let at = 0; at < bytes.length; ) {
    const next = at + random.between(1, random.pick([20, 1000, 20_000]))
    client.send(bytes.subarray(at, next))
    at = next
    await new Promise((sent) => setImmediate(sent))
  }
  if (random.next() < 0.3) client.socket.end()
  client.send(frame('PING', 0, 0, Buffer.from('finished')))
  if (random.next() < 0.7) await client.until(({ type, flags }) => type === 'PING' && flags === 1)
  client.close()
}

test('the server survives random bytes and frames, and serves others meanwhile', async () => {
  const before = process.memoryUsage().arrayBuffers
  for (let seed = SEED; seed < SEED + CONNECTIONS; seed += 10) {
    await Promise.all(Array.from({ length: 10 }, (_, index) => attack(seed + index)))
    await expectServed(seed)
  }
  expect(echo.errors).toEqual([])
  await expect.poll(() => echo.server.stats().connections, { timeout: 20_000 }).toBe(1)
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(GROWTH_BYTES_MAX)
})

test('10,000 streams on one connection are answered or refused, and the rest is forgotten', async () => {
  const client = await RawClient.open(echo.port)
  client.send(frame('WINDOW_UPDATE', 0, 0, uint32(2 ** 30)))
  const before = echo.server.stats().calls
  const random = seededRandom(SEED)
  let refused = 0
  for (let round = 0; round < 100; round += 1) {
    const ids = Array.from({ length: 100 }, (_, index) => 1 + 2 * (round * 100 + index))
    client.send(
      ...ids.flatMap((id) => {
        if (id % 7 !== 0) return [unaryCall(id, random.pick(['/echo.Echo/Now', '/echo.Echo/Later']))]
        // Half-closed: the client never ends its request, and resets it later.
        return [
          frame('HEADERS', END_HEADERS, id, callBlock('/echo.Echo/Stream')),
          frame('DATA', 0, id, message('open')),
        ]
      }),
    )
    const texts = await Promise.all(ids.filter((id) => id % 7 !== 0).map((id) => client.stream(id)))
    refused += texts.filter((text) => text !== 'HEADERS DATA HEADERS+END').length
    client.send(...ids.filter((id) => id % 7 === 0).map((id) => frame('RST_STREAM', 0, id, uint32(8))))
    client.frames.length = 0
  }
  expect(refused).toBe(0)
  await expect.poll(() => echo.server.stats().calls, { timeout: 20_000 }).toBe(before)
  client.close()
  await expectServed(SEED)
})
