import { once } from 'node:events'
import { createServer, request as httpRequest, type IncomingMessage } from 'node:http'
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from 'node:net'
import { SignJWT } from 'jose'
import { parseCidr } from 'sluice/http'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { type Echoed, echo, exchange, linesOf, openGateway, startUpstream, statusesIn } from './setup.ts'

const TWO = { rule_id: 'two', limit: 2, window: '1d', scope: 'per_ip' }
const LOOPBACK = [parseCidr('127.0.0.1')].flatMap((cidr) => cidr ?? [])

async function echoed(response: Response): Promise<Echoed> {
  return (await response.json()) as Echoed
}

describe('an admitted request', () => {
  test('reaches the service unchanged: method, target, headers with case and repetition, body', async () => {
    const { url } = await startUpstream(echo)
    const { address } = await openGateway([TWO], { upstream: url })
    const head = 'PATCH /a//b/../%7Ec?x=%20&y#HASH HTTP/1.1'.replace('#HASH', '')
    const headers = 'Host: shop.example\r\nX-CaSe: 1\r\nX-Twice: a\r\nx-twice: b\r\nCookie: a=1; b=2\r\n'
    const answer = await exchange(address, `${head}\r\n${headers}Connection: close\r\nContent-Length: 4\r\n\r\nbody`)
    const got = JSON.parse(answer.slice(answer.indexOf('{'))) as Echoed
    expect(got).toMatchObject({ method: 'PATCH', url: '/a//b/../%7Ec?x=%20&y', body: 'body' })
    const ours = ['x-forwarded-for', '127.0.0.1', 'x-forwarded-proto', 'http', 'x-forwarded-host', 'shop.example']
    expect(got.rawHeaders).toEqual([
      ...['host', 'shop.example', 'connection', 'keep-alive', 'X-CaSe', '1', 'X-Twice', 'a', 'x-twice', 'b'],
      ...['Cookie', 'a=1; b=2', ...ours, 'content-length', '4'],
    ])
  })

  test('gets the response unchanged, plus the rate limit headers', async () => {
    const { url } = await startUpstream((_request, response) => {
      const list = ['X-CaSe', '1', 'Set-Cookie', 'a=1', 'Set-Cookie', 'b=2', 'Connection', 'x-hop', 'X-Hop', 'gone']
      response.writeHead(418, 'Short and stout', list)
      response.end('tea')
    })
    const { address } = await openGateway([TWO], { upstream: url })
    const answer = await exchange(address, 'GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
    expect(answer).toMatch(/^HTTP\/1\.1 418 Short and stout\r\nx-case: 1\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n/)
    expect(answer).toContain('\r\nX-RateLimit-Limit: 2\r\nX-RateLimit-Remaining: 1\r\n')
    expect(answer).toContain('\r\nRateLimit: "two";r=1;t=43200\r\n')
    expect(answer).not.toMatch(/x-hop/i)
    expect(answer).toMatch(/tea/)
  })

  test('HEAD, 204 and 304 have no body; trailers arrive', async () => {
    const { url } = await startUpstream(({ url: path }, response) => {
      if (path === '/trailers') {
        response.writeHead(200, { trailer: 'x-sum' })
        response.write('data')
        response.addTrailers({ 'x-sum': '7' })
        return response.end()
      }
      response.writeHead(Number(path?.slice(1)), path === '/200' ? { 'content-length': 5 } : {}).end()
    })
    const { address } = await openGateway([], { upstream: url })
    const head = await fetch(`${address}/200`, { method: 'HEAD' })
    expect([head.status, head.headers.get('content-length')]).toEqual([200, '5'])
    expect((await fetch(`${address}/204`)).status).toBe(204)
    expect((await fetch(`${address}/304`)).status).toBe(304)
    const answer = await exchange(address, 'GET /trailers HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
    expect(answer).toContain('\r\n0\r\nx-sum: 7\r\n\r\n')
  })

  test('Expect: 100-continue is answered only after admission', async () => {
    const { url } = await startUpstream(echo)
    const { address } = await openGateway([{ ...TWO, limit: 1 }], { upstream: url })
    const head =
      'POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi'
    expect(statusesIn(await exchange(address, head))).toEqual([100, 200])
    expect(statusesIn(await exchange(address, head))).toEqual([429])
  })
})

describe('a refused request', () => {
  test('gets a 429 with a problem document and headers, and never reaches the service', async () => {
    let seen = 0
    const { url } = await startUpstream((_request, response) => {
      seen += 1
      response.end()
    })
    const { address, apiAddress } = await openGateway([TWO], { upstream: url })
    for (const status of [200, 200]) expect((await fetch(address)).status).toBe(status)
    const refused = await fetch(address, { method: 'POST', body: 'x'.repeat(1_000_000) })
    expect(refused.status).toBe(429)
    expect(refused.headers.get('content-type')).toBe('application/problem+json')
    expect(refused.headers.get('retry-after')).toBe('43200')
    expect(await refused.json()).toMatchObject({
      ...{ status: 429, 'violated-policies': ['two'], retry_after_ms: expect.any(Number) },
      ...{ rule_id: 'two', violated_rule: 'two', violated_tier: 'per_ip', violated_limit: 'default' },
    })
    expect(seen).toBe(2)
    const metrics = await (await fetch(`${apiAddress}/metrics`)).text()
    expect(metrics).toContain('sluice_gateway_requests_total{outcome="passed"} 2')
    expect(metrics).toContain('sluice_checks_total{rule="two",result="refused"} 1')
  })

  test('can be explained afterwards, by the id that its client received', async () => {
    const { url } = await startUpstream(echo)
    const adminToken = 'token-of-the-admins'
    const { address, apiAddress } = await openGateway([{ ...TWO, limit: 0 }], { upstream: url, adminToken })
    const { request_id } = (await (await fetch(`${address}/secret`)).json()) as { request_id: string }
    const headers = { authorization: `Bearer ${adminToken}` }
    const explained = await fetch(`${apiAddress}/api/v1/rate-limit/decisions/${request_id}`, { headers })
    expect(await explained.json()).toMatchObject({ request_id, allowed: false, endpoint: '/secret', method: 'GET' })
  })

  test('a leaky bucket delays, and a client that disconnects meanwhile does not reach the service', async () => {
    const seen: string[] = []
    const { url } = await startUpstream(({ url: path = '' }, response) => {
      seen.push(path)
      response.end()
    })
    const rule = { rule_id: 'leak', algorithm: 'leaky_bucket', limit: 5, burst: 3, window: '1s', scope: 'per_ip' }
    const { address } = await openGateway([rule], { upstream: url })
    const startedMs = performance.now()
    const leaving = new AbortController()
    const first = fetch(`${address}/1`)
    await first
    const left = fetch(`${address}/2`, { signal: leaving.signal })
    const third = fetch(`${address}/3`)
    leaving.abort()
    await expect(left).rejects.toThrow()
    await third
    expect(performance.now() - startedMs).toBeGreaterThan(150)
    expect(seen).toEqual(['/1', '/3'])
  })
})

describe('permits', () => {
  const ONE_AT_ONCE = { rule_id: 'one', algorithm: 'concurrency', limit: 1, window: '300ms', scope: 'per_ip' }

  test('are held and renewed while a response streams, and released when it ends', async () => {
    let finish = () => {}
    const { url } = await startUpstream((_request, response) => {
      response.write('first ')
      finish = () => response.end('last')
    })
    const { address } = await openGateway([ONE_AT_ONCE], { upstream: url })
    const streaming = await fetch(address)
    // Longer than the lifetime of a permit: checks in the meantime must all be refused.
    const endMs = performance.now() + 700
    while (performance.now() < endMs) expect((await fetch(address)).status).toBe(429)
    finish()
    expect(await streaming.text()).toBe('first last')
    await vi.waitFor(async () => expect((await fetch(address)).status).toBe(200), { timeout: 250 })
    finish()
  })

  test('are released when the client disconnects', async () => {
    const { url } = await startUpstream(({ url: path }, response) => {
      response.write('first ')
      if (path !== '/endless') response.end()
    })
    const { address } = await openGateway([{ ...ONE_AT_ONCE, window: '1d' }], { upstream: url })
    const leaving = new AbortController()
    const streaming = await fetch(`${address}/endless`, { signal: leaving.signal })
    expect((await fetch(address)).status).toBe(429)
    leaving.abort()
    await expect(streaming.text()).rejects.toThrow()
    await vi.waitFor(async () => expect((await fetch(address)).status).toBe(200))
  })
})

describe('headers about the client', () => {
  const SPOOFED = { 'x-forwarded-for': '1.2.3.4', 'x-forwarded-proto': 'https', 'x-real-ip': '1.2.3.4' }
  const FORWARDED = { forwarded: 'for=1.2.3.4', 'x-forwarded-port': '1', 'x-original-uri': '/free' }

  test('from an untrusted peer are replaced with what the gateway sees', async () => {
    const { url } = await startUpstream(echo)
    const { address } = await openGateway([], { upstream: url })
    const { rawHeaders } = await echoed(await fetch(address, { headers: { ...SPOOFED, ...FORWARDED } }))
    expect(linesOf(rawHeaders, 'x-forwarded-for')).toEqual(['127.0.0.1'])
    expect(linesOf(rawHeaders, 'x-forwarded-proto')).toEqual(['http'])
    expect(linesOf(rawHeaders, 'x-forwarded-host')).toEqual([new URL(address).host])
    for (const gone of ['x-real-ip', 'forwarded', 'x-forwarded-port', 'x-original-uri'])
      expect(linesOf(rawHeaders, gone)).toEqual([])
    // Services that turn headers into variables do not distinguish dashes and underscores.
    const spelled = {
      X_Forwarded_For: '1.2.3.4',
      'x-forwarded_for': '1.2.3.4',
      X_Real_IP: '1',
      x_original_url: '/free',
    }
    const other = await echoed(await fetch(address, { headers: { ...spelled, 'X-Rewrite-URL': '/free', x_mine: '1' } }))
    expect(other.rawHeaders.filter((name) => /_|rewrite/.test(name))).toEqual(['x_mine'])
  })

  test('from a trusted proxy are kept and extended', async () => {
    const { url } = await startUpstream(echo)
    const { address } = await openGateway([], { upstream: url, trustedProxies: LOOPBACK })
    const { rawHeaders } = await echoed(await fetch(address, { headers: { ...SPOOFED, ...FORWARDED } }))
    expect(linesOf(rawHeaders, 'x-forwarded-for')).toEqual(['1.2.3.4, 127.0.0.1'])
    expect(linesOf(rawHeaders, 'x-forwarded-proto')).toEqual(['https'])
    expect(linesOf(rawHeaders, 'forwarded')).toEqual(['for=1.2.3.4, for=127.0.0.1'])
    expect(linesOf(rawHeaders, 'x-forwarded-port')).toEqual(['1'])
  })

  test('cannot be removed with Connection', async () => {
    const { url } = await startUpstream(echo)
    const { address } = await openGateway([], { upstream: url })
    const head =
      'POST / HTTP/1.1\r\nHost: x\r\nX-Mine: 1\r\nConnection: close, host, content-length, x-forwarded-for, x-mine'
    const answer = await exchange(address, `${head}\r\nContent-Length: 2\r\nKeep-Alive: 5\r\nTE: trailers\r\n\r\nhi`)
    const { rawHeaders, body } = JSON.parse(answer.slice(answer.indexOf('{'))) as Echoed
    expect(body).toBe('hi')
    expect(linesOf(rawHeaders, 'x-forwarded-for')).toEqual(['127.0.0.1'])
    for (const gone of ['x-mine', 'keep-alive', 'te']) expect(linesOf(rawHeaders, gone)).toEqual([])
  })
})

describe('identity', () => {
  const PER_USER = { rule_id: 'user', limit: 1, window: '1d', scope: 'per_user' }
  const SECRET = 'a secret that is long enough for HS256'

  test.each([
    [
      'a header',
      { userFrom: { kind: 'header', name: 'x-user' } as const },
      async (user: string) => ({ 'x-user': user }),
    ],
    [
      'a cookie',
      { userFrom: { kind: 'cookie', name: 'session' } as const },
      async (user: string) => ({ cookie: `a=b; session=${user}` }),
    ],
    [
      'a token',
      { userFrom: { kind: 'jwt', name: 'sub' } as const, jwtSecret: SECRET },
      async (user: string) => {
        const token = new SignJWT({ sub: user }).setProtectedHeader({ alg: 'HS256' }).setIssuedAt()
        return { authorization: `Bearer ${await token.sign(new TextEncoder().encode(SECRET))}` }
      },
    ],
  ])('comes from %s', async (_source, settings, headersOf) => {
    const { url } = await startUpstream(echo)
    const { address } = await openGateway([PER_USER], { upstream: url, ...settings })
    const status = async (user: string) => (await fetch(address, { headers: await headersOf(user) })).status
    expect([await status('alice'), await status('alice'), await status('bob')]).toEqual([200, 429, 200])
  })
})

describe('routes', () => {
  test('match by host, then by the longest prefix, then the default upstream', async () => {
    const names = ['rest', 'api', 'deep', 'host']
    const upstreams = await Promise.all(
      names.map((name) => startUpstream((_request, response) => void response.end(name))),
    )
    const [rest, api, deep, host] = upstreams.map(({ url }) => url) as [URL, URL, URL, URL]
    const { address } = await openGateway([], {
      upstream: rest,
      routes: [
        { host: undefined, prefix: '/api', upstream: api },
        { host: undefined, prefix: '/api/deep', upstream: deep },
        { host: 'other.example', prefix: '/', upstream: host },
      ],
    })
    const cases = {
      '/': 'rest',
      '/apix': 'rest',
      '/api': 'api',
      '/api/x': 'api',
      '//api/./x': 'api',
      '/x/../api/y': 'api',
      '/%61pi/x': 'api',
      '/api/deep/x?y': 'deep',
    }
    for (const [path, name] of Object.entries(cases)) {
      const answer = await exchange(address, `GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`)
      expect(answer.split('\r\n\r\n')[1], path).toContain(name)
    }
    const other = await exchange(address, 'GET /api HTTP/1.1\r\nHost: Other.Example:8000\r\nConnection: close\r\n\r\n')
    expect(other).toContain('host')
    const dotted = await exchange(address, 'GET / HTTP/1.1\r\nHost: other.example.:80\r\nConnection: close\r\n\r\n')
    expect(dotted).toContain('host')
  })

  test('without a matching route and a default upstream, a request gets a 404', async () => {
    const { url } = await startUpstream(echo)
    const { address } = await openGateway([], { routes: [{ host: undefined, prefix: '/api', upstream: url }] })
    const answer = await fetch(address)
    expect(answer.status).toBe(404)
    expect(await answer.json()).toMatchObject({ code: 'ROUTE_UNKNOWN' })
  })
})

describe('a failing upstream', () => {
  test('that is down is a 502, logged once, and used again as soon as it is up', async () => {
    const upstream = await startUpstream(echo)
    const { address, logged } = await openGateway([], { upstream: upstream.url })
    expect((await fetch(address)).status).toBe(200)
    await upstream.stop()
    for (let time = 0; time < 3; time += 1) {
      const answer = await fetch(address, { method: 'POST', body: 'x' })
      expect(answer.status).toBe(502)
      expect(await answer.json()).toMatchObject({ status: 502, code: 'UPSTREAM_UNREACHABLE' })
    }
    await startUpstream(echo, Number(upstream.url.port))
    await vi.waitFor(async () => expect((await fetch(address)).status).toBe(200))
    const about = () => logged.map(({ event }) => event).filter((event) => String(event).startsWith('upstream_'))
    await vi.waitFor(() => {
      expect(about()).toEqual(['upstream_unreachable', 'upstream_recovered'])
    })
  })

  test('that is slow to answer is a 504', async () => {
    const { url } = await startUpstream(() => {})
    const { address } = await openGateway([], { upstream: url, upstreamTimeoutMs: 100 })
    const answer = await fetch(address)
    expect(answer.status).toBe(504)
    expect(await answer.json()).toMatchObject({ status: 504, code: 'UPSTREAM_SLOW' })
  })

  test('that fails during its response aborts the response', async () => {
    const { url } = await startUpstream((_request, response) => {
      response.writeHead(200, { 'content-length': 100 })
      response.write('half', () => response.destroy())
    })
    const { address } = await openGateway([], { upstream: url })
    await expect(fetch(address).then((answer) => answer.text())).rejects.toThrow()
  })

  test('that closes a keep-alive connection: reads are retried, writes get a 502', async () => {
    const seen: string[] = []
    const { url } = await startUpstream((request, response) => {
      seen.push(`${request.method} ${request.url}`)
      if (seen.length % 2 === 0)
        request.socket.destroy() // as if it had closed just before
      else response.end('hello')
    })
    const { address } = await openGateway([], { upstream: url })
    expect((await fetch(`${address}/1`)).status).toBe(200)
    expect((await fetch(`${address}/2`)).status).toBe(200)
    expect((await fetch(`${address}/3`, { method: 'POST' })).status).toBe(502)
    expect(seen).toEqual(['GET /1', 'GET /2', 'GET /2', 'POST /3'])
  })

  test('that closes idle connections loses no write: the gateway closes them first', async () => {
    const open = new Set<Socket>()
    const server = createTcpServer((socket) => {
      open.add(socket)
      socket.on('data', () => void socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'))
      socket.on('error', () => {}).on('close', () => open.delete(socket))
    }).listen(0, '127.0.0.1')
    onTestFinished(() => void server.close())
    await once(server, 'listening')
    const upstream = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    const { address } = await openGateway([], { upstream })
    expect((await fetch(address, { method: 'POST' })).status).toBe(200)
    expect((await fetch(address, { method: 'POST' })).status).toBe(200)
    expect(open.size).toBe(1)
    await vi.waitFor(() => expect(open.size).toBe(0), { timeout: 2500 }) // sooner than any service closes it
  })

  test('that does not speak HTTP is a 502', async () => {
    const server = createTcpServer((socket) => socket.end('SSH-2.0-OpenSSH\r\n')).listen(0, '127.0.0.1')
    onTestFinished(() => void server.close())
    await once(server, 'listening')
    const upstream = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    const { address } = await openGateway([], { upstream })
    expect((await fetch(address)).status).toBe(502)
  })
})

describe('limits', () => {
  test('requests beyond --max-in-flight get a 503', async () => {
    const { url } = await startUpstream((_request, response) => void response.write('x'))
    const { address } = await openGateway([], { upstream: url, maxInFlight: 1 })
    const leaving = new AbortController()
    await fetch(address, { signal: leaving.signal })
    const answer = await fetch(address)
    expect(answer.status).toBe(503)
    expect(await answer.json()).toMatchObject({ code: 'GATEWAY_BUSY' })
    leaving.abort()
  })

  test('connections beyond --max-connections, including idle ones, are closed immediately and counted', async () => {
    const { url } = await startUpstream((_request, response) => void response.end('hello'))
    const { address, apiAddress } = await openGateway([], { upstream: url, maxConnections: 1 })
    const { hostname, port } = new URL(address)
    const idle = connect(Number(port), hostname)
    await once(idle, 'connect')
    await expect(fetch(address)).rejects.toThrow('fetch failed')
    expect(await (await fetch(`${apiAddress}/metrics`)).text()).toContain(
      'sluice_refused_connections_total{port="gateway",cap="port"} 1',
    )
    idle.destroy()
    await vi.waitFor(async () => expect((await fetch(address)).status).toBe(200))
  })

  test('an early response to a long upload arrives, and the upload ends', async () => {
    const { url } = await startUpstream((_request, response) => void response.writeHead(413).end('too much'))
    const { address } = await openGateway([], { upstream: url })
    const upload = httpRequest(address, { method: 'POST' })
    upload.on('error', () => {}) // it is aborted once the answer has arrived
    const answered = once(upload, 'response') as Promise<[IncomingMessage]>
    const chunk = Buffer.alloc(65_536)
    const more = () => void (upload.destroyed || upload.write(chunk, more))
    more()
    const [answer] = await answered
    expect(answer.statusCode).toBe(413)
    answer.resume()
    await vi.waitFor(() => expect(upload.destroyed || upload.socket?.destroyed).toBe(true))
  })
})

describe('shutdown', () => {
  test('requests in flight finish, and new connections are refused', async () => {
    let finish = () => {}
    const { url } = await startUpstream((_request, response) => {
      response.write('first ')
      finish = () => response.end('last')
    })
    const gateway = await openGateway([], { upstream: url })
    const streaming = await fetch(gateway.address)
    const closed = gateway.close()
    await vi.waitFor(async () => expect(await fetch(gateway.address).catch(() => 'closed')).toBe('closed'))
    finish()
    expect(await streaming.text()).toBe('first last')
    await closed
  })

  test('pipelined requests finish too', async () => {
    const waiting: (() => void)[] = []
    const { url } = await startUpstream((request, response) => {
      if (request.url === '/first') response.end('1st')
      else waiting.push(() => response.end('2nd'))
    })
    const gateway = await openGateway([], { upstream: url })
    const ahead = ['first', 'second'].map((path) => `GET /${path} HTTP/1.1\r\nHost: x\r\n\r\n`).join('')
    const answers = exchange(gateway.address, ahead)
    const passed = async () => (await fetch(`${gateway.apiAddress}/metrics`)).text()
    await vi.waitFor(async () => expect(await passed()).toContain('requests_total{outcome="passed"} 1'))
    expect(waiting).toHaveLength(1)
    const closed = gateway.close()
    await vi.waitFor(async () => expect(await fetch(gateway.address).catch(() => 'closed')).toBe('closed'))
    waiting[0]?.()
    expect(await answers).toMatch(/1st.*2nd/s)
    await closed
  })

  test('a connection that does not end is closed', async () => {
    const { url } = await startUpstream((_request, response) => void response.write('first '))
    const gateway = await openGateway([], { upstream: url }, 50)
    const streaming = await fetch(gateway.address)
    await gateway.close()
    await expect(streaming.text()).rejects.toThrow()
  })

  test('a port in use is an error, and leaves nothing open', async () => {
    const taken = createServer().listen(0, '127.0.0.1')
    onTestFinished(() => void taken.close())
    await once(taken, 'listening')
    const { port } = taken.address() as AddressInfo
    const upstream = new URL('http://127.0.0.1:9')
    await expect(openGateway([], { upstream, listen: { host: '127.0.0.1', port } })).rejects.toThrow('EADDRINUSE')
  })
})
