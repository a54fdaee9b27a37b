// Services with rare, invalid or hard-to-forward responses: a client gets a complete response, a problem or a closed
// connection, never an endless wait, and the request leaks no resources.

import { once } from 'node:events'
import { connect as connectHttp2 } from 'node:http2'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { text as readText } from 'node:stream/consumers'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { filesOf, makeCertificate } from './certificate.ts'
import { exchange, openGateway, startUpstream, type TestGateway } from './setup.ts'

const GET = 'GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'
const PERMITS = { rule_id: 'held', algorithm: 'concurrency', limit: 3, window: '1d', scope: 'per_ip' }
const certificate = makeCertificate('localhost')
const secure = () => filesOf({ listenCert: certificate.pem, listenKey: certificate.keyPem })

/** A service that answers every request with these bytes. */
async function startOdd(bytes: string): Promise<URL> {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {}).on('data', () => void socket.write(bytes, 'latin1'))
  }).listen(0, '127.0.0.1')
  onTestFinished(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  await once(server, 'listening')
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
}

type Ended = {
  status: number | undefined
  headers: Record<string, unknown>
  body: string
  trailers: Record<string, unknown>
  code: number | undefined
}

/** `code`: error code of the stream; 0 for a complete response. */
async function askHttp2({ address }: TestGateway): Promise<Ended> {
  const session = connectHttp2(address, { rejectUnauthorized: false })
  session.on('error', () => {})
  onTestFinished(() => session.destroy())
  const stream = session.request({ ':path': '/' })
  let headers: Record<string, unknown> = {}
  let trailers: Record<string, unknown> = {}
  let body = ''
  stream.on('trailers', (got) => {
    trailers = got
  })
  stream.on('error', () => {}) // reported by the code
  stream.on('response', (answered) => {
    headers = answered
  })
  stream.setEncoding('utf8').on('data', (chunk: string) => {
    body += chunk
  })
  await new Promise((closed) => stream.once('close', closed))
  return { status: headers[':status'] as number | undefined, headers, body, trailers, code: stream.rstCode }
}

async function nothingIsLeft({ apiAddress }: TestGateway): Promise<void> {
  await vi.waitFor(async () => {
    const metrics = await (await fetch(`${apiAddress}/metrics`)).text()
    expect(metrics).toContain('sluice_gateway_in_flight_requests 0')
  }, 5000)
}

describe('an unusual response', () => {
  test.each([
    [
      'letters in its reason',
      'HTTP/1.1 200 Gr\xfc\xdfe\r\nContent-Length: 2\r\n\r\nok',
      /^HTTP\/1\.1 200 OK\r\n.*\r\nok$/s,
    ],
    [
      'a length without a body in 304',
      'HTTP/1.1 304 Unchanged\r\nContent-Length: 5\r\nETag: "a"\r\n\r\n',
      /^HTTP\/1\.1 304.*"a"/s,
    ],
    [
      'a body in 204',
      'HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\nhello',
      /^HTTP\/1\.1 204(?!.*length)(?!.*hello)/is,
    ],
    ['a control character in a header', 'HTTP/1.1 200 OK\r\nX-A: a\x01b\r\n\r\n', /^HTTP\/1\.1 502/],
  ])('%s', async (_what, bytes, answer) => {
    const gateway = await openGateway([PERMITS], { upstream: await startOdd(bytes) })
    expect(await exchange(gateway.address, GET)).toMatch(answer)
    await nothingIsLeft(gateway)
  })

  test('over HTTP/2, repeated headers are joined, except Set-Cookie', async () => {
    const twice = ['X-Content-Type-Options: nosniff', 'Vary: a', 'Set-Cookie: a=1'].map(
      (line) => `${line}\r\n${line}\r\n`,
    )
    const upstream = await startOdd(`HTTP/1.1 200 OK\r\n${twice.join('')}Content-Length: 2\r\n\r\nok`)
    const gateway = await openGateway([PERMITS], { upstream, ...secure() })
    const { headers, body } = await askHttp2(gateway)
    expect(body).toBe('ok')
    expect(headers).toMatchObject({ 'x-content-type-options': 'nosniff, nosniff', vary: 'a, a' })
    expect(headers['set-cookie']).toEqual(['a=1', 'a=1'])
    await nothingIsLeft(gateway)
  })

  test('hop-by-hop and framing trailers are dropped, all others arrive', async () => {
    const trailers = ['Connection: x', 'Keep-Alive: 5', 'Host: y', 'ETag: a', 'ETag: b', 'X-Sum: 7']
    const body = `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n${trailers.join('\r\n')}\r\n\r\n`
    const gateway = await openGateway([PERMITS], { upstream: await startOdd(body), ...secure() })
    expect(await askHttp2(gateway)).toMatchObject({ body: 'ok', code: 0, trailers: { etag: 'a, b', 'x-sum': '7' } })
    const plain = await openGateway([PERMITS], { upstream: await startOdd(body) })
    expect(await exchange(plain.address, GET)).toMatch(/\r\n0\r\netag: a, b\r\nx-sum: 7\r\n\r\n$/)
    await nothingIsLeft(gateway)
  })

  test('over HTTP/2, a response that cannot be encoded is a 502', async () => {
    const gateway = await openGateway([PERMITS], { upstream: await startOdd('HTTP/1.1 600 Odd\r\n\r\n'), ...secure() })
    expect(await askHttp2(gateway)).toMatchObject({ status: 502 })
    await nothingIsLeft(gateway)
  })

  test('over HTTP/2, an aborted response does not look complete', async () => {
    const upstream = await startOdd('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nwrong')
    const gateway = await openGateway([PERMITS], { upstream, ...secure() })
    const { status, code } = await askHttp2(gateway)
    expect(status).toBe(200)
    expect(code).toBeGreaterThan(0)
    await nothingIsLeft(gateway)
  })
})

test('pipelined requests end with their connection, even those behind a slow one', async () => {
  const { url } = await startUpstream((request, response) => void (request.url === '/slow' || response.end('ok')))
  const gateway = await openGateway([PERMITS], { upstream: url })
  const { hostname, port } = new URL(gateway.address)
  const socket = connect(Number(port), hostname)
  const ahead = ['/slow', '/1', '/2'].map((path) => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`)
  socket.write(ahead.join(''))
  await vi.waitFor(async () => expect((await fetch(gateway.address)).status).toBe(429))
  socket.destroy()
  await nothingIsLeft(gateway)
  expect((await fetch(gateway.address)).status).toBe(200)
})

test.each([
  ['has half-closed its connection', (socket: Socket) => socket.end()],
  ['has closed its connection', (socket: Socket) => socket.destroy()],
  ['has reset its connection', (socket: Socket) => socket.resetAndDestroy()],
])('a request whose client %s ends before its service responds', async (_what, leave) => {
  const { url } = await startUpstream(() => {}) // never answers
  const gateway = await openGateway([PERMITS], { upstream: url })
  const { hostname, port } = new URL(gateway.address)
  const socket = connect({ port: Number(port), host: hostname, allowHalfOpen: true })
  onTestFinished(() => void socket.destroy())
  socket.write('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello')
  await vi.waitFor(async () => {
    expect(await (await fetch(`${gateway.apiAddress}/metrics`)).text()).toContain('sluice_gateway_in_flight_requests 1')
  })
  leave(socket)
  await nothingIsLeft(gateway)
})

describe('an upload over HTTP/2 that does not end', () => {
  async function answerTo(gateway: TestGateway, path: string): Promise<number> {
    const session = connectHttp2(gateway.address, { rejectUnauthorized: false })
    session.on('error', () => {})
    onTestFinished(() => session.destroy())
    const stream = session.request({ ':path': path, ':method': 'POST' }).on('error', () => {})
    stream.write('the first of many')
    const [headers] = (await once(stream, 'response')) as [{ ':status': number }]
    stream.resume()
    return headers[':status']
  }

  test('ends at the gateway when it is refused', async () => {
    const { url } = await startUpstream(() => {})
    const ban = { rule_id: 'ban', limit: 0, window: '1d', scope: 'global' }
    const gateway = await openGateway([ban], { upstream: url, ...secure() })
    expect(await answerTo(gateway, '/')).toBe(429)
    await nothingIsLeft(gateway)
  })

  test('is reset without an error when it is long', async () => {
    const { url } = await startUpstream((_request, response) => void response.writeHead(413).end('too much'))
    const gateway = await openGateway([PERMITS], { upstream: url, ...secure() })
    const session = connectHttp2(gateway.address, { rejectUnauthorized: false })
    onTestFinished(() => session.destroy())
    const stream = session.request({ ':path': '/', ':method': 'POST' })
    stream.end(Buffer.alloc(3_000_000))
    const closed = new Promise((over) => stream.once('close', over))
    const [headers] = (await once(stream, 'response')) as [{ ':status': number }]
    expect([headers[':status'], await readText(stream)]).toEqual([413, 'too much'])
    await closed
    expect(stream.rstCode).toBe(0)
    await nothingIsLeft(gateway)
  })

  test('ends at the gateway when the service has responded', async () => {
    const { url } = await startUpstream((_request, response) => void response.writeHead(413).end('too much'))
    const gateway = await openGateway([PERMITS], { upstream: url, ...secure() })
    expect(await answerTo(gateway, '/')).toBe(413)
    await nothingIsLeft(gateway)
  })
})
