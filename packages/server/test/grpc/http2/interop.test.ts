// The lean server with clients that others wrote: grpc-js, and the HTTP/2 client of Node.js.

import { once } from 'node:events'
import { type ClientHttp2Session, connect } from 'node:http2'
import { connect as connectTls } from 'node:tls'
import { compressionAlgorithms, credentials, Client as GrpcClient, Metadata, type ServiceError } from '@grpc/grpc-js'
import { seededRandom } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { makeCertificate } from '../../gateway/certificate.ts'
import { type EchoServer, echoForTest, startEcho } from './echo-server.ts'

const CA = makeCertificate('Test CA')
const SERVER = makeCertificate('localhost', CA)
const CLIENT = makeCertificate('gateway-7', CA)
const STRANGER = makeCertificate('stranger', makeCertificate('Other CA'))
const TLS = { key: SERVER.keyPem, cert: SERVER.pem }

let echo: EchoServer
let client: GrpcClient

beforeAll(async () => {
  echo = await startEcho()
  client = new GrpcClient(`127.0.0.1:${echo.port}`, credentials.createInsecure())
})

afterAll(async () => {
  client.close()
  await echo.server.close(1000)
})

type Answer = { readonly code: number; readonly details: string; readonly body: string }

const ALPHABET = Array.from({ length: 94 }, (_, index) => String.fromCharCode(33 + index))

const identity = (bytes: Buffer) => bytes

function call(
  method: string,
  body: Buffer | string,
  { to = client, metadata = new Metadata(), timeoutMs = 20_000 } = {},
): Promise<Answer> {
  const deadline = new Date(performance.timeOrigin + performance.now() + timeoutMs)
  return new Promise((resolve) => {
    const done = (error: ServiceError | null, answer?: Buffer) => {
      resolve({ code: error?.code ?? 0, details: error?.details ?? '', body: answer?.toString() ?? '' })
    }
    to.makeUnaryRequest(`/echo.Echo/${method}`, identity, identity, Buffer.from(body), metadata, { deadline }, done)
  })
}

describe('grpc-js', () => {
  test.each(['Now', 'Later'])('a unary call of %s is answered', async (method) => {
    expect(await call(method, 'hello')).toEqual({ code: 0, details: '', body: 'hello' })
  })

  test('an empty message is a message', async () => {
    expect(await call('Now', '')).toMatchObject({ code: 0, body: '' })
  })

  test('messages beyond the windows and frame size pass in both directions', async () => {
    const body = Array.from({ length: 100_000 }, (_, index) => String(index)).join(' ')
    expect((await call('Later', body)).body === body).toBe(true)
    expect((await call('Large', Buffer.from([0, 0x10, 0, 0]))).body).toHaveLength(0x100000)
  })

  test('compressed messages, short and long, are read', async () => {
    const options = { 'grpc.default_compression_algorithm': compressionAlgorithms.gzip }
    const to = new GrpcClient(`127.0.0.1:${echo.port}`, credentials.createInsecure(), options)
    onTestFinished(() => to.close())
    const long = Array.from({ length: 100_000 }, (_, index) => String(index)).join(' ')
    for (const body of ['hello', long]) expect((await call('Later', body, { to })).body === body).toBe(true)
  })

  test('a thousand concurrent calls are answered, each with its own message', async () => {
    const bodies = Array.from({ length: 1000 }, (_, index) => `message ${index}`)
    const answers = await Promise.all(bodies.map((body, index) => call(index % 2 === 0 ? 'Now' : 'Later', body)))
    expect(answers.map(({ body }) => body)).toEqual(bodies)
  })

  test.each([
    { method: 'Refuse', body: 'no: 100 %, größer\n', code: 9, details: 'no: 100 %, größer\n' },
    { method: 'RefuseLater', body: '', code: 14, details: 'the store does not answer' },
    {
      method: 'Missing',
      body: '',
      code: 12,
      details: 'unknown method /echo.Echo/Missing: reflection lists all methods',
    },
    { method: 'Now', body: 'x'.repeat(1024 * 1024 + 1), code: 8, details: /^message of 1048577 bytes/ },
  ])('$method fails with status $code and its message', async ({ method, body, code, details }) => {
    const answer = await call(method, body)
    expect(answer.code).toBe(code)
    expect(answer.details).toMatch(details)
  })

  test('a defect of a handler is reported, and its text stays on the server', async () => {
    expect(await call('Defect', '')).toEqual({ code: 13, details: 'internal error', body: '' })
    expect(echo.errors).toEqual([new TypeError('secret detail')])
  })

  test('the handler sees metadata, the deadline and the address of the client', async () => {
    echo.calls.length = 0
    const metadata = new Metadata()
    metadata.add('x-tenant', 'a')
    metadata.add('x-tenant', 'b')
    await call('Now', '', { metadata })
    const [seen] = echo.calls
    expect(seen?.path).toBe('/echo.Echo/Now')
    expect(seen?.metadata('x-tenant')?.replaceAll(' ', '')).toBe('a,b')
    expect(seen?.metadata('x-missing')).toBeUndefined()
    expect(seen?.timeoutMs).toBeGreaterThan(1000)
    expect(seen?.timeoutMs).toBeLessThanOrEqual(20_000)
    expect(seen?.peer).toMatchObject({ address: '127.0.0.1', certificateSubject: undefined })
  })

  test('messages of a bidirectional stream are echoed in order, and the stream ends', async () => {
    const stream = client.makeBidiStreamRequest('/echo.Echo/Stream', identity, identity)
    const received: string[] = []
    stream.on('data', (bytes: Buffer) => received.push(bytes.toString('latin1', 0, 10)))
    const sent = Array.from({ length: 500 }, (_, index) => `${index}`.padStart(10, '0'))
    for (const text of sent) stream.write(Buffer.from(text + 'x'.repeat(1000)))
    stream.end()
    await once(stream, 'end')
    expect(received).toEqual(sent)
  })

  test('a client that cancels its stream is noticed', async () => {
    const stream = client.makeBidiStreamRequest('/echo.Echo/Watch', identity, identity)
    stream.on('error', () => {})
    await once(stream, 'data')
    const before = echo.cancelled
    stream.cancel()
    await expect.poll(() => echo.cancelled, { timeout: 20_000 }).toBe(before + 1)
  })

  test('the server waits for its calls when it closes, and refuses new connections', async () => {
    const other = await startEcho()
    const to = new GrpcClient(`127.0.0.1:${other.port}`, credentials.createInsecure())
    onTestFinished(() => to.close())
    await call('Now', '', { to })
    const stream = to.makeBidiStreamRequest('/echo.Echo/Stream', identity, identity)
    stream.write(Buffer.from('first'))
    await once(stream, 'data')
    const closed = other.server.close(20_000)
    stream.write(Buffer.from('second'))
    const [second] = (await once(stream, 'data')) as [Buffer]
    expect(second.toString()).toBe('second')
    stream.end()
    await closed
    expect(other.server.stats()).toMatchObject({ connections: 0, calls: 0, protocolErrors: 0 })
    expect((await call('Now', '', { to, timeoutMs: 1000 })).code).not.toBe(0)
  })
})

describe('the HTTP/2 client of Node.js', () => {
  function session(port: number): ClientHttp2Session {
    const opened = connect(`http://127.0.0.1:${port}`)
    onTestFinished(() => opened.destroy())
    return opened
  }

  async function request(headers: Record<string, string>, body: Buffer) {
    const stream = session(echo.port).request({ ':method': 'POST', ...headers })
    const seen: Record<string, unknown> = {}
    stream.on('response', (head) => Object.assign(seen, head)).on('trailers', (tail) => Object.assign(seen, tail))
    const chunks: Buffer[] = []
    stream.on('data', (chunk: Buffer) => chunks.push(chunk))
    if (body.length > 0) stream.write(body)
    stream.end()
    await once(stream, 'close')
    return { seen, body: Buffer.concat(chunks).toString('latin1') }
  }

  const hello = Buffer.from('\0\0\0\0\x05hello', 'latin1')
  const grpc = { ':path': '/echo.Echo/Now', 'content-type': 'application/grpc' }

  test.each(['application/grpc', 'application/grpc+proto', 'application/grpc;charset=utf-8'])(
    'content-type %s is gRPC',
    async (type) => {
      const { seen, body } = await request({ ...grpc, 'content-type': type }, hello)
      expect(seen).toMatchObject({ ':status': 200, 'content-type': 'application/grpc', 'grpc-status': '0' })
      expect(body).toBe('\0\0\0\0\x05hello')
    },
  )

  test.each(['application/json', 'application/grpc-web', 'application/grpc+json'])(
    'content-type %s gets a 415',
    async (type) => {
      const { seen, body } = await request({ ...grpc, 'content-type': type }, hello)
      expect(seen).toMatchObject({ ':status': 415 })
      expect(body).toMatch(/^415: this port serves gRPC/)
    },
  )

  test('a GET gets a 405', async () => {
    expect((await request({ ':method': 'GET', ':path': '/' }, Buffer.alloc(0))).seen).toMatchObject({ ':status': 405 })
  })

  test.each([
    { name: 'an encoding that is not supported', body: Buffer.from('\x01\0\0\0\x05hello', 'latin1'), status: '12' },
    { name: 'two messages', body: Buffer.concat([hello, hello]), status: '12' },
    { name: 'half a message', body: hello.subarray(0, 7), status: '12' },
    { name: 'no message', body: Buffer.alloc(0), status: '12' },
  ])('$name for a unary method fails with status $status', async ({ body, status }) => {
    const { seen } = await request({ ...grpc, 'grpc-encoding': 'br' }, body)
    expect(seen).toMatchObject({ ':status': 200, 'grpc-status': status, 'grpc-accept-encoding': 'identity,gzip' })
  })

  test.each([
    { timeout: '20m', path: '/echo.Echo/Never', status: '4' },
    { timeout: '30000u', path: '/echo.Echo/Never', status: '4' },
    { timeout: '0n', path: '/echo.Echo/Watch', status: '4' },
    { timeout: '99999999H', path: '/echo.Echo/Later', status: '0' },
    { timeout: '5 m', path: '/echo.Echo/Now', status: '13' },
    { timeout: '123456789m', path: '/echo.Echo/Now', status: '13' },
  ])('grpc-timeout $timeout of $path ends in status $status', async ({ timeout, path, status }) => {
    const { seen } = await request({ ...grpc, ':path': path, 'grpc-timeout': timeout }, hello)
    expect(seen).toMatchObject({ 'grpc-status': status })
  })

  test('headers arrive unchanged, whatever the client indexes, compresses or evicts', async () => {
    const random = seededRandom(22)
    const opened = session(echo.port)
    for (let round = 0; round < 150; round += 1) {
      const entries = Array.from({ length: random.between(0, 7) }, () => {
        const value = Array.from({ length: random.between(0, 300) }, () => random.pick(ALPHABET))
        return [`x-${random.between(0, 39)}`, value.join('')] as const
      })
      const headers = Object.fromEntries(entries)
      echo.calls.length = 0
      const isRepeated = round % 3 === 0 // the second time from the cache
      for (let call = 0; call < (isRepeated ? 3 : 1); call += 1) {
        const stream = opened.request({ ':method': 'POST', ...grpc, ...headers })
        stream.resume().end(hello)
        await once(stream, 'close')
      }
      for (const seen of echo.calls) {
        expect(Object.fromEntries(Object.keys(headers).map((name) => [name, seen.metadata(name)]))).toEqual(headers)
      }
      expect(echo.calls).toHaveLength(isRepeated ? 3 : 1)
    }
  })

  test('a header list above 16 KiB gets a 431, and the connection goes on', async () => {
    const opened = session(echo.port)
    const big = opened.request({ ':method': 'POST', ...grpc, 'x-large': 'x'.repeat(17_000) })
    const [head] = (await once(big, 'response')) as [Record<string, unknown>]
    expect(head[':status']).toBe(431)
    const next = opened.request({ ':method': 'POST', ...grpc })
    next.end(hello)
    const [answer] = (await once(next, 'response')) as [Record<string, unknown>]
    expect(answer[':status']).toBe(200)
  })
})

describe('TLS', () => {
  test('a client that trusts the certificate is served, and its certificate can be replaced', async () => {
    const secure = await echoForTest({ tls: TLS })
    const to = new GrpcClient(`localhost:${secure.port}`, credentials.createSsl(Buffer.from(CA.pem)))
    onTestFinished(() => to.close())
    expect(await call('Later', 'hello', { to })).toMatchObject({ code: 0, body: 'hello' })
    const renewed = makeCertificate('renewed', CA)
    secure.server.replaceTls({ key: renewed.keyPem, cert: renewed.pem })
    expect(await commonName(secure.port)).toBe('renewed')
    expect(await call('Now', 'again', { to })).toMatchObject({ code: 0, body: 'again' })
  })

  async function commonName(port: number): Promise<string | undefined> {
    const socket = connectTls({ port, host: 'localhost', ca: CA.pem, ALPNProtocols: ['h2'] })
    await once(socket, 'secureConnect')
    const { CN } = socket.getPeerCertificate().subject
    socket.destroy()
    return String(CN)
  }

  test.each([{ ALPNProtocols: ['http/1.1'] }, { ALPNProtocols: undefined }])(
    'a client that does not negotiate h2 is refused: $ALPNProtocols',
    async ({ ALPNProtocols }) => {
      const secure = await echoForTest({ tls: TLS })
      const options = { port: secure.port, host: 'localhost', ca: CA.pem }
      const socket = connectTls(ALPNProtocols === undefined ? options : { ...options, ALPNProtocols })
      const received: Buffer[] = []
      socket.on('data', (chunk: Buffer) => received.push(chunk)).on('error', () => {})
      await new Promise((closed) => socket.once('close', closed))
      expect(received).toEqual([])
      expect(secure.server.stats().connections).toBe(0)
    },
  )

  test('the subject of a client certificate reaches the handler; other clients are refused', async () => {
    const secure = await echoForTest({ tls: { ...TLS, clientCa: CA.pem } })
    const clientWith = (certificate?: typeof CLIENT) => {
      const { keyPem, pem } = certificate ?? {}
      const key = keyPem === undefined ? null : Buffer.from(keyPem)
      const to = new GrpcClient(
        `localhost:${secure.port}`,
        credentials.createSsl(Buffer.from(CA.pem), key, pem === undefined ? null : Buffer.from(pem)),
      )
      onTestFinished(() => to.close())
      return to
    }
    expect(await call('Now', 'hello', { to: clientWith(CLIENT) })).toMatchObject({ code: 0, body: 'hello' })
    expect(secure.calls[0]?.peer.certificateSubject).toBe('gateway-7')
    for (const to of [clientWith(STRANGER), clientWith()]) {
      expect(await call('Now', 'hello', { to, timeoutMs: 3000 })).toMatchObject({ code: 14 })
    }
    expect(secure.calls).toHaveLength(1)
  })
})
