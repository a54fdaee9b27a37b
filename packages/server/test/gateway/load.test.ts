// A gateway in its own process under mixed load: downloads, uploads, WebSockets, clients that disconnect and clients
// that read slowly. Afterwards it may hold no resources. `SOAK_REQUESTS=100000` makes it a long run.

import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { Agent, type IncomingMessage, type RequestOptions, request, type ServerResponse } from 'node:http'
import { finished } from 'node:stream/promises'
import { seededRandom } from 'sluice/testing'
import { afterAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { start } from '../process.ts'
import { ruleFile } from '../service.ts'
import { openGateway, startUpstream } from './setup.ts'

const REQUESTS = Number(process.env.SOAK_REQUESTS ?? 800)
const AT_ONCE = 24
const BYTES_MAX = 100_000
const PERMITS = 1000
const agent = new Agent({ keepAlive: true, maxSockets: 64 })
afterAll(() => agent.destroy())

const data = Buffer.from(Array.from({ length: BYTES_MAX }, (_, at) => (at * 31 + (at >> 8)) & 255))

/** Bytes that the upstream has sent and received, to compare with those of the clients. */
const behind = { sent: 0, got: 0 }

function serve(incoming: IncomingMessage, response: ServerResponse): void {
  const [, kind, size] = incoming.url?.split('/') ?? []
  if (kind === 'endless') return void endless(response)
  if (kind === 'echo') {
    incoming.on('data', (chunk: Buffer) => {
      behind.got += chunk.length
    })
    return void incoming.pipe(response)
  }
  behind.sent += Number(size)
  response.end(data.subarray(0, Number(size)))
}

function endless(response: ServerResponse): void {
  const more = () => {
    while (!response.destroyed && response.write(data)) {
      // until it is full
    }
  }
  response.on('drain', more)
  more()
}

async function answered(url: string, options: RequestOptions = {}, body?: Buffer): Promise<IncomingMessage> {
  const sent = request(url, { agent, ...options })
  sent.on('error', () => {}) // reported by `once`
  sent.end(body)
  const [answer] = (await once(sent, 'response')) as [IncomingMessage]
  expect(answer.statusCode).toBe(200)
  return answer
}

async function digestOf(answer: IncomingMessage, slowly: boolean): Promise<{ bytes: number; digest: string }> {
  const hash = createHash('sha1')
  let bytes = 0
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    hash.update(chunk)
    bytes += chunk.length
    if (slowly) for (let turn = 0; turn < 5; turn += 1) await new Promise((next) => setImmediate(next))
  }
  return { bytes, digest: hash.digest('hex') }
}

function digestOfData(size: number): string {
  return createHash('sha1').update(data.subarray(0, size)).digest('hex')
}

const clients = { sent: 0, got: 0, left: 0 }

async function download(address: string, size: number, slowly: boolean): Promise<void> {
  const { bytes, digest } = await digestOf(await answered(`${address}/data/${size}`), slowly)
  expect([bytes, digest]).toEqual([size, digestOfData(size)])
  clients.got += bytes
}

async function upload(address: string, size: number): Promise<void> {
  const chunked = size % 2 === 0 ? {} : { 'content-length': size }
  const answer = await answered(`${address}/echo`, { method: 'POST', headers: chunked }, data.subarray(0, size))
  const { bytes, digest } = await digestOf(answer, false)
  expect([bytes, digest]).toEqual([size, digestOfData(size)])
  clients.sent += bytes
}

async function leave(address: string, size: number): Promise<void> {
  const answer = await answered(`${address}/endless`)
  let bytes = 0
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes >= size) break // destroys it
  }
  clients.left += 1
}

async function talk(address: string, size: number): Promise<void> {
  const socket = new WebSocket(address.replace('http', 'ws'))
  await once(socket, 'open')
  socket.send(data.subarray(0, size))
  const [message] = (await once(socket, 'message')) as [Buffer]
  expect(message.equals(data.subarray(0, size))).toBe(true)
  if (size % 2 === 0) socket.terminate()
  else socket.close()
  await once(socket, 'close')
}

const KINDS = [
  (address: string, size: number) => download(address, size, false),
  (address: string, size: number) => download(address, size, true),
  upload,
  leave,
  talk,
]

async function load(address: string, count: number): Promise<void> {
  const random = seededRandom(count)
  let next = 0
  const worker = async () => {
    while (next < count) {
      const kind = KINDS[next++ % KINDS.length] as (typeof KINDS)[number]
      await kind(address, random.between(1, BYTES_MAX))
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
}

async function metricsOf(api: string): Promise<Map<string, number>> {
  const lines = (await (await fetch(`${api}/metrics`)).text()).split('\n')
  return new Map(
    lines.filter((line) => /^\w/.test(line)).map((line) => [line.split(' ')[0] ?? '', Number(line.split(' ')[1])]),
  )
}

async function startSockets() {
  const upstream = await startUpstream(serve)
  // On a busy machine it may close a connection just as an upload is sent on it, which cannot be retried.
  upstream.server.keepAliveTimeout = 600_000
  const sockets = new WebSocketServer({ server: upstream.server })
  sockets.on('connection', (socket) => socket.on('message', (message, binary) => socket.send(message, { binary })))
  return upstream
}

test(`${REQUESTS} requests of all kinds: every byte arrives, and nothing leaks`, {
  timeout: 3_600_000,
}, async () => {
  const { url } = await startSockets()
  const rule = { rule_id: 'held', algorithm: 'concurrency', limit: PERMITS, window: '1d', scope: 'global' }
  const rules = ruleFile(JSON.stringify([rule]), 'rules.json')
  const args = ['gateway', '--upstream', url.origin, '--listen', '127.0.0.1:0', '--rules', rules]
  const { address, output } = await start(args)
  const api = /metrics: (\S+)/.exec(output().stdout)?.[1] ?? ''
  const settled = async () => {
    agent.destroy()
    await vi.waitFor(async () => {
      expect((await metricsOf(api)).get('sluice_gateway_in_flight_requests')).toBe(0)
    })
    return metricsOf(api)
  }
  await load(address, Math.floor(REQUESTS / 5))
  const before = await settled()
  await load(address, REQUESTS - Math.floor(REQUESTS / 5))
  const after = await settled()

  expect([clients.got, clients.sent]).toEqual([behind.sent, behind.got])
  const ended = (outcome: string) => after.get(`sluice_gateway_requests_total{outcome="${outcome}"}`)
  expect(ended('aborted')).toBe(clients.left)
  expect(ended('passed')).toBe(REQUESTS - clients.left)
  // Connections to the service are kept for a while; none of a client is.
  const files = (found: Map<string, number>) => found.get('process_open_fds') ?? Number.NaN
  expect(files(after) - files(before)).toBeLessThanOrEqual(AT_ONCE)
  const body = JSON.stringify({ dry_run: true })
  const check = { method: 'POST', headers: { 'content-type': 'application/json' }, body }
  const { remaining } = (await (await fetch(`${api}/api/v1/rate-limit/check`, check)).json()) as { remaining: number }
  expect(remaining, 'every permit is back').toBe(PERMITS)
  const heap = (found: Map<string, number>) => found.get('nodejs_heap_size_used_bytes') ?? Number.NaN
  expect(heap(after) - heap(before), 'of the heap, before it was collected').toBeLessThan(100_000_000)
})

describe('back-pressure', () => {
  test('a client that does not read stops the service from sending', async () => {
    let written = 0
    const { url } = await startUpstream((_request, response) => {
      const more = () => {
        do written += data.length
        while (response.write(data) && written < 1e9)
      }
      response.on('drain', more)
      more()
    })
    const { address } = await openGateway([], { upstream: url })
    const answer = await answered(address, { agent: false })
    onTestFinished(() => void answer.destroy())
    await standsStill(() => written)
    expect(written).toBeLessThan(50_000_000)
  })

  test('a service that does not read stops the client from sending', async () => {
    const { url } = await startUpstream((incoming) => void incoming.pause())
    const { address } = await openGateway([], { upstream: url }, 50)
    let written = 0
    const sent = request(address, { method: 'POST', agent: false })
    sent.on('error', () => {})
    onTestFinished(() => void sent.destroy())
    const more = () => {
      do written += data.length
      while (sent.write(data) && written < 1e9)
    }
    sent.on('drain', more)
    more()
    await standsStill(() => written)
    expect(written).toBeLessThan(50_000_000)
  })

  test('a stream arrives chunk by chunk, not at its end', async () => {
    let say = (_text: string) => {}
    const { url } = await startUpstream((_request, response) => {
      say = (text) => void (text === '' ? response.end() : response.write(text))
      say('one')
    })
    const { address } = await openGateway([], { upstream: url })
    const answer = await answered(address, { agent: false })
    for (const text of ['one', 'two', 'three']) {
      const [chunk] = (await once(answer, 'data')) as [Buffer]
      expect(chunk.toString()).toBe(text)
      say(text === 'one' ? 'two' : text === 'two' ? 'three' : '')
    }
    await finished(answer)
  })
})

/** Waits until a number is stable. */
async function standsStill(read: () => number): Promise<void> {
  let last = Number.NaN
  await vi.waitFor(
    () => {
      const [before, now] = [last, read()]
      last = now
      expect(now).toBe(before)
    },
    { interval: 300, timeout: 20_000 },
  )
}
