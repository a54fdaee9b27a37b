import { once } from 'node:events'
import { type ClientHttp2Session, connect, type IncomingHttpHeaders, type SecureClientSessionOptions } from 'node:http2'
import { createServer, request as httpsRequest } from 'node:https'
import type { AddressInfo } from 'node:net'
import { text as readText } from 'node:stream/consumers'
import { describe, expect, onTestFinished, test } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { filesOf, makeCertificate } from './certificate.ts'
import { type Echoed, echo, linesOf, openGateway, startUpstream, type TestGateway } from './setup.ts'

const authority = makeCertificate('Test Authority')
const own = makeCertificate('localhost', authority)

function tlsFiles() {
  const { listenCert, listenKey, listenClientCa } = filesOf({
    listenCert: own.pem,
    listenKey: own.keyPem,
    listenClientCa: authority.pem,
  })
  return { secure: { listenCert, listenKey }, listenClientCa }
}

function openSession({ address }: TestGateway, options: SecureClientSessionOptions = {}): ClientHttp2Session {
  const session = connect(address.replace('127.0.0.1', 'localhost'), { ca: authority.pem, ...options })
  session.on('error', () => {}) // each stream reports its own error
  onTestFinished(() => session.destroy())
  return session
}

type Answer = { readonly headers: IncomingHttpHeaders & { ':status'?: number }; readonly body: string }

async function ask(
  session: ClientHttp2Session,
  headers: Record<string, string | string[]>,
  body?: string,
): Promise<Answer> {
  const stream = session.request(headers, { endStream: body === undefined })
  if (body !== undefined) stream.end(body)
  const [answered] = (await once(stream, 'response')) as [Answer['headers']]
  return { headers: answered, body: await readText(stream) }
}

describe('HTTP/2', () => {
  test('is forwarded as HTTP/1.1, with the authority as Host and the cookie crumbs joined', async () => {
    const { url } = await startUpstream(echo)
    const rule = { rule_id: 'three', limit: 3, window: '1d', scope: 'per_ip' }
    const gateway = await openGateway([rule], { upstream: url, ...tlsFiles().secure })
    const session = openSession(gateway)
    const headers = { ':path': '/a?b', ':method': 'POST', cookie: ['a=1', 'b=2'], 'x-one': '1', te: 'trailers' }
    const { headers: answered, body } = await ask(session, headers, 'hello')
    expect(answered).toMatchObject({ ':status': 200, 'x-ratelimit-remaining': '2', ratelimit: '"three";r=2;t=28800' })
    const got = JSON.parse(body) as Echoed
    expect(got).toMatchObject({ method: 'POST', url: '/a?b', body: 'hello' })
    expect(linesOf(got.rawHeaders, 'host')).toEqual([new URL(gateway.address).host.replace('127.0.0.1', 'localhost')])
    expect(linesOf(got.rawHeaders, 'cookie')).toEqual(['a=1; b=2'])
    expect(linesOf(got.rawHeaders, 'x-forwarded-proto')).toEqual(['https'])
    expect(linesOf(got.rawHeaders, 'transfer-encoding')).toEqual(['chunked'])
    expect(got.rawHeaders.filter((name) => name.startsWith(':'))).toEqual([])
    const many = await Promise.all(Array.from({ length: 4 }, () => ask(session, { ':path': '/' })))
    expect(many.map(({ headers: { ':status': status } }) => status).sort()).toEqual([200, 200, 429, 429])
  })

  test('a body with DELETE or GET is framed, so that it is never parsed as the next request', async () => {
    const seen: string[] = []
    const { url } = await startUpstream((request, response) => {
      seen.push(`${request.method} ${request.url}`)
      echo(request, response)
    })
    const session = openSession(await openGateway([], { upstream: url, ...tlsFiles().secure }))
    const smuggled = 'GET /admin HTTP/1.1\r\nHost: x\r\n\r\n'
    for (const method of ['DELETE', 'GET', 'OPTIONS']) {
      const { body } = await ask(session, { ':path': '/', ':method': method }, smuggled)
      expect((JSON.parse(body) as Echoed).body).toBe(smuggled)
    }
    await ask(session, { ':path': '/last' })
    expect(seen).toEqual(['DELETE /', 'GET /', 'OPTIONS /', 'GET /last'])
  })

  test.each([
    ['a line break in the path', { ':path': '/ HTTP/1.1\r\nX-Evil: 1\r\n\r\n' }],
    ['a space in the path', { ':path': '/a b' }],
    ['no slash before the path', { ':path': 'admin' }],
    ['a path with a fragment', { ':path': '/free#/../admin' }],
  ])('%s never reaches the service', async (_what, headers) => {
    let seen = 0
    const { url } = await startUpstream((_request, response) => {
      seen += 1
      response.end()
    })
    const session = openSession(await openGateway([], { upstream: url, ...tlsFiles().secure }))
    const status = await ask(session, headers).then(
      ({ headers: answered }) => answered[':status'],
      () => 'reset',
    )
    expect([400, 'reset']).toContain(status)
    expect(seen).toBe(0)
  })

  test('a session closes gracefully: requests in flight finish', async () => {
    let finish = () => {}
    const { url } = await startUpstream((_request, response) => {
      response.write('first ')
      finish = () => response.end('last')
    })
    const gateway = await openGateway([], { upstream: url, ...tlsFiles().secure })
    const session = openSession(gateway)
    const stream = session.request({ ':path': '/' })
    await once(stream, 'response')
    const text = readText(stream)
    const closed = gateway.close()
    await once(session, 'goaway')
    finish()
    expect(await text).toBe('first last')
    await closed
  })
})

test('HTTP/1.1 over TLS works as well, WebSockets too', async () => {
  const upstream = await startUpstream(echo)
  const sockets = new WebSocketServer({ server: upstream.server })
  sockets.on('connection', (socket) =>
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary })),
  )
  const gateway = await openGateway([], { upstream: upstream.url, ...tlsFiles().secure })
  const socket = new WebSocket(gateway.address.replace('https', 'wss'), { ca: authority.pem })
  await once(socket, 'open')
  socket.send('over TLS')
  const [data] = (await once(socket, 'message')) as [Buffer]
  expect(data.toString()).toBe('over TLS')
  socket.terminate()
})

describe('client certificates', () => {
  const PER_USER = { rule_id: 'user', limit: 1, window: '1d', scope: 'per_user' }
  const userFrom = { kind: 'cert', name: 'cn' } as const

  test('identify the client, over HTTP/2 and HTTP/1.1', async () => {
    const { url } = await startUpstream(echo)
    const { secure, listenClientCa } = tlsFiles()
    const gateway = await openGateway([PER_USER], { upstream: url, ...secure, listenClientCa, userFrom })
    const showing = (name: string) => {
      const { pem, keyPem } = makeCertificate(name, authority)
      return { cert: pem, key: keyPem }
    }
    const [alice, bob] = [showing('alice'), showing('bob')]
    const session = openSession(gateway, alice)
    expect((await ask(session, { ':path': '/' })).headers[':status']).toBe(200)
    expect((await ask(session, { ':path': '/' })).headers[':status']).toBe(429)
    expect((await ask(openSession(gateway, bob), { ':path': '/' })).headers[':status']).toBe(200)
    const overHttp1 = httpsRequest(gateway.address, { ...alice, ca: authority.pem })
    overHttp1.end()
    const [answer] = (await once(overHttp1, 'response')) as [{ statusCode: number; resume(): void }]
    answer.resume()
    expect(answer.statusCode, 'the same client').toBe(429)
  })

  test('are required', async () => {
    const { url } = await startUpstream(echo)
    const { secure, listenClientCa } = tlsFiles()
    const gateway = await openGateway([PER_USER], { upstream: url, ...secure, listenClientCa, userFrom })
    const stranger = makeCertificate('mallory')
    for (const shown of [{}, { cert: stranger.pem, key: stranger.keyPem }]) {
      const sent = httpsRequest(gateway.address, { ...shown, ca: authority.pem }).end()
      await expect(once(sent, 'response')).rejects.toThrow()
    }
  })
})

test('the certificate of a TLS upstream is verified', async () => {
  const server = createServer({ cert: own.pem, key: own.keyPem }, echo).listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const upstream = new URL(`https://localhost:${(server.address() as AddressInfo).port}`)
  const { address } = await openGateway([], { upstream })
  expect((await fetch(address)).status, 'its authority is unknown here').toBe(502)
})

test('a key that does not match the certificate is reported', async () => {
  const files = filesOf({ listenCert: own.pem, listenKey: 'no key' })
  await expect(openGateway([], { upstream: new URL('http://127.0.0.1:9'), ...files })).rejects.toThrow(
    /--listen-cert: give/,
  )
})
