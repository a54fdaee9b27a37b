import { once } from 'node:events'
import { request as httpRequest } from 'node:http'
import type { AddressInfo } from 'node:net'
import express from 'express'
import { parseCidr } from 'sluice/http'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { GatewaySettings } from '../../src/gateway/settings.ts'
import { type Echoed, echo, exchange, openGateway, startUpstream, statusesIn } from './setup.ts'

const RULES = [{ rule_id: 'login', endpoint_pattern: '/login', limit: 1, window: '1d', scope: 'per_ip' }]

/** An Express application with one route behind a gateway whose limit for that route is spent. */
async function spentGateway(settings: Partial<GatewaySettings> = {}, headers: Record<string, string> = {}) {
  const reached: string[] = []
  const app = express()
  app.all('/login', (req: { url: string }, res: { send(text: string): void }) => {
    reached.push(req.url)
    res.send('in')
  })
  const server = app.listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const upstream = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  const gateway = await openGateway(RULES, { upstream, ...settings })
  expect((await fetch(`${gateway.address}/login`, { headers })).status).toBe(200)
  return { ...gateway, reached, behind: upstream.origin }
}

/** Response of Express to the request if the limit were not exhausted. */
const TARGETS: readonly [what: string, target: string, express: 'routes it' | 'does not'][] = [
  ['upper case', '/LOGIN', 'routes it'],
  ['a trailing slash', '/login/', 'routes it'],
  ['a doubled slash', '//login', 'does not'],
  ['a dot segment', '/./login', 'does not'],
  ['a way out and in', '/x/../login', 'does not'],
  ['an escaped letter', '/%6cogin', 'does not'],
  ['an escaped slash', '/%2flogin', 'does not'],
  ['a backslash', '/\\login', 'does not'],
  ['a query', '/login?x=1', 'routes it'],
  ['parameters', '/login;x=1', 'does not'],
  ['absolute form', 'http://other.example/login', 'routes it'],
  ['absolute form in capitals', 'HTTP://other.example/login', 'routes it'],
  ['absolute form with a user', 'http://me@other.example/login', 'routes it'],
  ['absolute form without a path', 'http://other.example?/login', 'does not'],
  ['another scheme', 'ftp://other.example/login', 'routes it'],
  ['an authority', '//other.example/login', 'does not'],
  ['a fragment', '/login#x', 'routes it'],
  ['no slash', 'login', 'does not'],
  ['a star instead of the slash', '*login', 'does not'],
]

describe('no spelling of the target bypasses the limit', () => {
  test.each(TARGETS)('%s', async (_what, target, says) => {
    const { address, reached, behind } = await spentGateway()
    const bytes = `GET ${target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`
    expect([400, 404, 429]).toContain(statusesIn(await exchange(address, bytes))[0])
    expect(reached).toEqual(['/login'])
    const routed = statusesIn(await exchange(behind, bytes))[0] === 200
    expect(routed ? 'routes it' : 'does not').toBe(says)
  })

  test.each(['HEAD', 'POST', 'get'])('nor does the method %s', async (method) => {
    const { address, reached } = await spentGateway()
    const answer = await exchange(address, `${method} /login HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`)
    expect([400, 429]).toContain(statusesIn(answer)[0])
    expect(reached).toEqual(['/login'])
  })
})

describe('nor do headers', () => {
  test.each([
    ['X-Forwarded-For', 'X-Forwarded-For: 198.51.100.1'],
    ['X-Forwarded-For on two lines', 'X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-For: 198.51.100.2'],
    ['Forwarded', 'Forwarded: for=198.51.100.1'],
    ['X-Real-IP', 'X-Real-IP: 198.51.100.1'],
    ['a path to override', 'X-Original-URI: /free\r\nX-Original-URL: /free\r\nX-Rewrite-URL: /free'],
    ['a method to override', 'X-HTTP-Method-Override: PURGE'],
    ['names of others in Connection', 'Connection: x-forwarded-for, host'],
  ])('%s', async (_what, lines) => {
    const { address, reached } = await spentGateway()
    const answer = await exchange(address, `GET /login HTTP/1.1\r\nHost: x\r\n${lines}\r\nConnection: close\r\n\r\n`)
    expect(statusesIn(answer)).toEqual([429])
    expect(reached).toEqual(['/login'])
  })

  test.each([
    ['an address in front', '198.51.100.1, 203.0.113.7'],
    ['a mapped address', '::ffff:203.0.113.7'],
    ['a port', '203.0.113.7:4711'],
  ])('headers forwarded by a trusted proxy: %s', async (_what, forwardedFor) => {
    const trustedProxies = [parseCidr('127.0.0.1')].flatMap((cidr) => cidr ?? [])
    const { address } = await spentGateway({ trustedProxies }, { 'x-forwarded-for': '203.0.113.7' })
    const status = async (header: string) =>
      (await fetch(`${address}/login`, { headers: { 'x-forwarded-for': header } })).status
    expect(await status(forwardedFor)).toBe(429)
    expect(await status('203.0.113.8'), 'another client').toBe(200)
  })

  test('another address of the same /64', async () => {
    const trustedProxies = [parseCidr('127.0.0.1')].flatMap((cidr) => cidr ?? [])
    const { address } = await spentGateway({ trustedProxies }, { 'x-forwarded-for': '2001:db8::1' })
    const headers = { 'x-forwarded-for': '2001:db8::ffff' }
    expect((await fetch(`${address}/login`, { headers })).status).toBe(429)
  })

  test('a repeated identity header is rejected', async () => {
    const { address, reached } = await spentGateway({ userFrom: { kind: 'header', name: 'x-user' } })
    const lines = 'X-User: alice\r\nx-user: bob'
    const answer = await exchange(address, `GET /login HTTP/1.1\r\nHost: x\r\n${lines}\r\nConnection: close\r\n\r\n`)
    expect(statusesIn(answer)).toEqual([400])
    expect(reached).toEqual(['/login'])
  })
})

/** Each hides a second request, or names another host, for a parser with different rules. */
const AMBIGUOUS: readonly [what: string, head: string, body?: string][] = [
  ['two hosts', 'GET / HTTP/1.1\r\nHost: a\r\nHost: b'],
  ['no host', 'GET / HTTP/1.1\r\nX: y'],
  ['two lengths', 'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 30', 'abc'],
  ['a list of lengths', 'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 30', 'abc'],
  ['a length with a sign', 'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +3', 'abc'],
  ['length and chunks', 'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked', '0\r\n\r\n'],
  ['chunks that are not last', 'POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity', '0\r\n\r\n'],
  ['a coding before the chunks', 'POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked', '0\r\n\r\n'],
  ['an unknown coding', 'POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked', '0\r\n\r\n'],
  ['a space before the colon', 'POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked', '0\r\n\r\n'],
  [
    'a folded line',
    'POST / HTTP/1.1\r\nHost: x\r\nX: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 5',
    '0\r\n\r\n',
  ],
  ['a bare line feed', 'GET / HTTP/1.1\r\nHost: x\r\nX: a\nContent-Length: 5'],
  [
    'an upgrade with a body',
    'GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 3',
    'abc',
  ],
]

describe('no request hides another one', () => {
  test.each(AMBIGUOUS)('%s: no part of it is treated as a second request', async (_what, head, body = '') => {
    const { address, reached } = await spentGateway()
    const smuggled = 'GET /login HTTP/1.1\r\nHost: smuggled\r\nConnection: close\r\n\r\n'
    const answer = await exchange(address, `${head}\r\n\r\n${body}${smuggled}`)
    expect([400, 404, 501]).toContain(statusesIn(answer)[0])
    expect(reached, 'and what is a request is limited like any other').toEqual(['/login'])
  })

  test('a wrong length closes the upstream connection, so the rest reaches no other request', async () => {
    const { address, reached } = await spentGateway()
    const upload = httpRequest(`${address}/other`, { method: 'POST', headers: { 'content-length': 100 } })
    upload.on('error', () => {})
    upload.write('GET /login HTTP/1.1\r\nHost: x\r\n\r\n', () => upload.destroy())
    await new Promise((closed) => upload.once('close', closed))
    for (const _ of [1, 2, 3]) expect((await fetch(`${address}/other`)).status).toBe(404)
    expect(reached).toEqual(['/login'])
  })
})

describe('requests that services may parse differently from the limiter never reach them', () => {
  async function openEcho(settings: Partial<GatewaySettings> = {}, rules: unknown = []) {
    let seen = 0
    const { url } = await startUpstream((request, response) => {
      seen += 1
      echo(request, response)
    })
    const { address } = await openGateway(rules, { upstream: url, ...settings })
    const send = async (line: string, headers: readonly string[], body = '') => {
      const answer = await exchange(address, `${[line, 'Connection: close', ...headers].join('\r\n')}\r\n\r\n${body}`)
      const [status] = statusesIn(answer)
      const echoed = status === 200 ? (JSON.parse(answer.slice(answer.indexOf('{'))) as Echoed) : undefined
      return { status, names: echoed?.rawHeaders.filter((_, at) => at % 2 === 0).map((name) => name.toLowerCase()) }
    }
    return { address, send, seen: () => seen }
  }

  test.each([
    ['a user before the host', 'GET / HTTP/1.1', 'Host: a@b'],
    ['a list of hosts', 'GET / HTTP/1.1', 'Host: x, y'],
    ['a path behind the host', 'GET / HTTP/1.1', 'Host: a/b'],
    ['a query behind the host', 'GET / HTTP/1.1', 'Host: a?b'],
    ['a port that is none', 'GET / HTTP/1.1', 'Host: a:b'],
    ['an empty host', 'GET / HTTP/1.1', 'Host:'],
    ['an empty host in HTTP/1.0', 'GET / HTTP/1.0', 'Host:'],
    ['no host in HTTP/1.0', 'GET / HTTP/1.0', 'X: y'],
    ['an empty host in HTTP/0.9', 'GET / HTTP/0.9', 'Host:'],
    ['no version at all', 'GET /', 'Host:'],
    ['a list in absolute form', 'GET http://a,b/ HTTP/1.1', 'Host: x'],
  ])('%s', async (_what, line, host) => {
    const { send, seen } = await openEcho()
    expect(await send(line, [host])).toMatchObject({ status: 400 })
    expect(seen()).toBe(0)
  })

  test.each(['x', 'example.org', 'example.org:8000', 'a_b.internal', '127.0.0.1:80', '[::1]:8000', 'host:'])(
    'but the host %s does',
    async (host) => {
      const { send } = await openEcho()
      expect(await send('GET / HTTP/1.1', [`Host: ${host}`])).toMatchObject({ status: 200 })
      expect(await send('GET / HTTP/1.0', [`Host: ${host}`])).toMatchObject({ status: 200 })
    },
  )

  test('headers with underscores, where CGI reads dashes', async () => {
    const { send } = await openEcho({ userFrom: { kind: 'header', name: 'x-user' } })
    const lengths = ['Content_Length: 7', 'content-length_: 1', 'Transfer_Encoding: chunked', 'Content-Length: 2']
    const others = ['X_User: alice', 'X_Http_Method-Override: PUT', 'HOST_: z', 'Authorization_: a', 'AUTHORIZATION: b']
    const twins = ['X-Team: 1', 'X_Team: 2', 'x_mine: 3', 'Coo_kie: 4']
    const { names } = await send('POST / HTTP/1.1', ['Host: x', ...lengths, ...others, ...twins], 'hi')
    const left = names?.filter((name) => name.includes('_'))
    expect(left, 'these are nothing else with a dash').toEqual([
      'content-length_',
      'host_',
      'authorization_',
      'x_mine',
      'coo_kie',
    ])
  })

  test('a repeated identity cookie', async () => {
    const { send, seen } = await openEcho({ userFrom: { kind: 'cookie', name: 'session' } })
    const status = async (...lines: string[]) => (await send('GET / HTTP/1.1', ['Host: x', ...lines])).status
    expect(await status('Cookie: session=junk; session=alice')).toBe(400)
    expect(await status('Cookie: session=junk', 'Cookie: session=alice')).toBe(400)
    for (const separator of [' ', ',', ', ', '\t', ' ; ']) {
      expect(await status(`Cookie: session=junk${separator}session=alice`)).toBe(400)
      expect(await status(`Cookie: other=1${separator}session=junk${separator}session=alice`)).toBe(400)
    }
    expect(await status('Cookie: other=1 session=alice')).toBe(400)
    expect(await status('Cookie: session=junk alice')).toBe(400)
    expect(await status('Cookie: session="al\\151ce"')).toBe(400)
    expect(seen()).toBe(0)
    expect(await status('Cookie: session=alice; other=1; other=2')).toBe(200)
  })

  describe('a method in a header', () => {
    const RULE = { rule_id: 'delete', method: 'DELETE', limit: 1, window: '1d', scope: 'per_ip' }
    const NAMES = ['X-HTTP-Method-Override', 'X-HTTP-Method', 'X-Method-Override']

    test('is dropped', async () => {
      const { send } = await openEcho()
      for (const name of NAMES) {
        const { names } = await send('POST / HTTP/1.1', ['Host: x', `${name}: DELETE`, 'Content-Length: 0'])
        expect(names).not.toContain(name.toLowerCase())
      }
    })

    test('is honoured if the settings allow it', async () => {
      const { send } = await openEcho({ methodOverride: 'honour' }, [RULE])
      const post = (...lines: string[]) => send('POST / HTTP/1.1', ['Host: x', 'Content-Length: 0', ...lines])
      const [first, ...others] = NAMES
      const passed = await post(`${first}: delete`)
      expect(passed).toMatchObject({ status: 200 })
      expect(passed.names).toContain(first?.toLowerCase())
      for (const name of others) expect(await post(`${name}: DELETE`)).toMatchObject({ status: 429 })
      expect(await post(), 'a POST by itself').toMatchObject({ status: 200 })
      expect(await post(`${first}: GET`, `${others[0]}: PUT`)).toMatchObject({ status: 400 })
      expect(await post(`${first}: NONE`)).toMatchObject({ status: 400 })
      const { names } = await send('GET / HTTP/1.1', ['Host: x', `${first}: DELETE`])
      expect(names, 'services look at it in a POST only').not.toContain(first?.toLowerCase())
    })
  })
})
