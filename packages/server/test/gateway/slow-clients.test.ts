// Clients that send too slowly lose their connection in a bounded time; clients that are fast enough, or that the
// service slows down, do not.

import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { connect as connectHttp2 } from 'node:http2'
import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { filesOf, makeCertificate } from './certificate.ts'
import { dripping, echo, openGateway, startUpstream, statusesIn, type TestGateway } from './setup.ts'

const certificate = makeCertificate('localhost')
const secure = () => filesOf({ listenCert: certificate.pem, listenKey: certificate.keyPem })
const PERMITS = { rule_id: 'held', algorithm: 'concurrency', limit: 3, window: '1d', scope: 'per_ip' }

async function open(settings: object = {}): Promise<TestGateway> {
  const { url } = await startUpstream(echo)
  const timeouts = { clientHeadTimeoutMs: 300, clientBodyTimeoutMs: 300, clientTimeoutMs: 5000 }
  return openGateway([PERMITS], { upstream: url, ...timeouts, ...settings })
}

function portOf({ address }: TestGateway): number {
  return Number(new URL(address).port)
}

/** Writes `start`, then one drop after another until the other side closes; returns all that came back. */
async function drip(socket: Socket, start: string | Buffer, drop: string | Buffer): Promise<string> {
  let answer = ''
  socket.on('error', () => {})
  socket.on('data', (chunk: Buffer) => {
    answer += chunk.toString('latin1')
  })
  socket.write(start)
  const stop = dripping(() => void (socket.writable && socket.write(drop)))
  onTestFinished(() => void socket.destroy())
  await new Promise((closed) => socket.once('close', closed))
  stop()
  return answer
}

async function nothingIsLeft({ apiAddress }: TestGateway): Promise<void> {
  await vi.waitFor(async () => {
    const metrics = await (await fetch(`${apiAddress}/metrics`)).text()
    expect(metrics).toContain('sluice_gateway_in_flight_requests 0')
  }, 5000)
}

const HEAD = 'POST / HTTP/1.1\r\nHost: x\r\n'

describe('slow headers are aborted', () => {
  test('over plain HTTP', async () => {
    const socket = connect(portOf(await open()), '127.0.0.1')
    expect(statusesIn(await drip(socket, `${HEAD}X: `, 'x'))).toEqual([408])
  })

  test('over TLS and HTTP/1.1', async () => {
    const socket = connectTls({ port: portOf(await open(secure())), host: '127.0.0.1', rejectUnauthorized: false })
    expect(statusesIn(await drip(socket, `${HEAD}X: `, 'x'))).toEqual([408])
  })

  test('over TLS, when the handshake does not complete', async () => {
    const socket = connect(portOf(await open(secure())), '127.0.0.1')
    const hello = Buffer.from([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]) // a ClientHello of 512 bytes begins
    await drip(socket, hello, Buffer.from([0]))
  })

  test('over HTTP/2, in the middle of a frame', async () => {
    const gateway = await open(secure())
    const options = { port: portOf(gateway), host: '127.0.0.1', ALPNProtocols: ['h2'], rejectUnauthorized: false }
    const settings = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0])
    const headers = Buffer.from([0, 63, 0, 1, 4, 0, 0, 0, 1]) // HEADERS of 16,128 bytes begin
    const start = Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), settings, headers])
    await drip(connectTls(options), start, Buffer.from([0]))
  })
})

describe('a slow body is aborted, and its permit released', () => {
  test.each([
    ['with a length', 'Content-Length: 1000000\r\n\r\n', 'x'],
    ['in chunks', 'Transfer-Encoding: chunked\r\n\r\n', '1\r\nx\r\n'],
  ])('%s', async (_how, rest, drop) => {
    const gateway = await open()
    const answer = await drip(connect(portOf(gateway), '127.0.0.1'), `${HEAD}${rest}`, drop)
    expect(statusesIn(answer)).toEqual([400])
    expect(answer).toContain('arrived too slowly')
    await nothingIsLeft(gateway)
  })

  test('over HTTP/2', async () => {
    const gateway = await open(secure())
    const session = connectHttp2(gateway.address, { rejectUnauthorized: false })
    onTestFinished(() => session.destroy())
    const stream = session.request({ ':path': '/', ':method': 'POST' }).on('error', () => {})
    dripping(() => void (stream.writable && stream.write('x')))
    const [headers] = (await once(stream.resume(), 'response')) as [{ ':status': number }]
    expect(headers[':status']).toBe(400)
    await new Promise((closed) => stream.once('close', closed))
    await nothingIsLeft(gateway)
  })

  test('when the request is refused: its connection is closed', async () => {
    const { url } = await startUpstream(echo)
    const ban = { rule_id: 'ban', limit: 0, window: '1d', scope: 'global' }
    const gateway = await openGateway([ban], { upstream: url })
    const socket = connect(portOf(gateway), '127.0.0.1')
    expect(statusesIn(await drip(socket, `${HEAD}Content-Length: 100000\r\n\r\n`, 'x'))).toEqual([429])
  })
})

describe('an upload is not aborted', () => {
  const SLOW = `${HEAD}Content-Length: 1000000\r\n\r\n`

  test('that is fast enough, while a concurrent slow one is', async () => {
    const gateway = await open()
    const upload = request(gateway.address, { method: 'POST', agent: false })
    const stop = dripping(() => void upload.write('x'.repeat(1000)))
    for (const _ of [1, 2, 3]) await drip(connect(portOf(gateway), '127.0.0.1'), SLOW, 'x')
    stop()
    const answered = once(upload, 'response') as Promise<[IncomingMessage]>
    upload.end()
    const [answer] = await answered
    expect(answer.resume().statusCode).toBe(200)
  })

  test('that the service reads late', async () => {
    let read = () => {}
    const reading = new Promise<void>((begin) => {
      read = begin
    })
    const { url } = await startUpstream(async (incoming, response) => {
      if (incoming.url !== '/late') return
      await reading
      let bytes = 0
      for await (const chunk of incoming as AsyncIterable<Buffer>) bytes += chunk.length
      response.end(`${bytes}`)
    })
    const gateway = await openGateway([PERMITS], { upstream: url, clientBodyTimeoutMs: 300 })
    const answer = fetch(`${gateway.address}/late`, { method: 'POST', body: Buffer.alloc(20_000_000) })
    for (const _ of [1, 2]) await drip(connect(portOf(gateway), '127.0.0.1'), SLOW, 'x')
    read()
    expect([(await answer).status, await (await answer).text()]).toEqual([200, '20000000'])
  })
})
