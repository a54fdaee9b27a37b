import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import type { TLSSocket } from 'node:tls'
import { fileURLToPath } from 'node:url'
import { startFaultProxy, startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { type Call, type Peer, roundTripMeasured, type UnaryMethod } from '../../src/grpc/method.ts'
import { expiresMsOf } from '../../src/grpc/rate-limiter/rate-limiter.ts'
import { STACKS } from '../../src/grpc/stacks.ts'
import { temporaryFolder } from '../databases.ts'
import { ADMIN_TOKEN, RULES as RULES_PATH } from '../service.ts'
import { grpcClient } from './client.ts'
import { echoForTest } from './http2/echo-server.ts'
import { CheckRequest, CheckStreamRequest, RATE_LIMITER } from './messages.ts'
import { STACK_NAMES, serveGrpc } from './stacks.ts'

const RULE = '- { rule_id: one, limit: 5, window: 1d, scope: per_user }\n'
const CHECK = `${RATE_LIMITER}/Check`
const STREAM = `${RATE_LIMITER}/CheckStream`
const REQUEST = CheckRequest.encode({ client_id: 'alice' })
const [OK, DEADLINE, DENIED, UNAVAILABLE, UNAUTHENTICATED] = [0, 4, 7, 14, 16]
const EXPLAIN = `${RATE_LIMITER}/Explain`
const pem = (name: string) => fileURLToPath(new URL(`../fixtures/tls/${name}`, import.meta.url))
const read = (name: string) => readFileSync(pem(name))
const TLS = { tlsCert: pem('server.pem'), tlsKey: pem('server.key') }
const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

describe.each(STACK_NAMES)('access on the %s stack', (stack) => {
  test('loopback is open for checks; an invalid token is refused even there', async () => {
    const { client } = await serveGrpc(stack, RULE)
    expect(await client.call(CHECK, REQUEST)).toMatchObject({ status: OK })
    expect(await client.call(CHECK, REQUEST, bearer('wrong-token-0123'))).toMatchObject({
      status: UNAUTHENTICATED,
      detail: 'UNAUTHORIZED: Unknown token.',
    })
    expect(await client.call(CHECK, REQUEST, bearer(ADMIN_TOKEN))).toMatchObject({ status: OK })
  })

  test('other addresses need a token with the role check, and tokens apply and end at once', async () => {
    const tokensFile = join(temporaryFolder(), 'tokens.yaml')
    const token = (name: string, role: string) =>
      `- { name: ${name}, role: ${role}, token: ${name}-0123456789abcdef }\n`
    writeFileSync(tokensFile, token('proxy', 'check') + token('reader', 'viewer'))
    const { client, metrics } = await serveGrpc(stack, RULE, { grpcHost: '0.0.0.0', tokensFile })
    expect(await client.call(CHECK, REQUEST)).toMatchObject({
      status: UNAUTHENTICATED,
      detail: expect.stringContaining('authorization: Bearer <token>'),
    })
    const proxy = bearer('proxy-0123456789abcdef')
    expect(await client.call(CHECK, REQUEST, proxy)).toMatchObject({ status: OK })
    expect(await client.call(CHECK, REQUEST, bearer('reader-0123456789abcdef'))).toMatchObject({ status: DENIED })
    expect(await client.call(EXPLAIN, REQUEST, proxy)).toMatchObject({ status: DENIED })
    expect(await client.call(EXPLAIN, REQUEST, bearer('reader-0123456789abcdef'))).toMatchObject({ status: OK })
    expect(await client.open(STREAM).done).toMatchObject({ status: UNAUTHENTICATED })
    writeFileSync(tokensFile, token('reader', 'viewer'))
    const revoked = async () => expect((await client.call(CHECK, REQUEST, proxy)).status).toBe(UNAUTHENTICATED)
    await vi.waitFor(revoked, { timeout: 5000 })
    expect(await metrics.scrape()).toMatch(
      /sluice_grpc_calls_total\{method="sluice.v1.RateLimiter\/Check",status="permission_denied"\} 1\n/,
    )
  })

  test('the start fails if no call could be made', async () => {
    const settings = { grpcHost: '0.0.0.0', adminToken: undefined }
    await expect(serveGrpc(stack, RULE, settings)).rejects.toThrow(
      /--grpc-host: every call would get UNAUTHENTICATED: add a token .* --tls-client-ca, or give --checks open/,
    )
    const { client } = await serveGrpc(stack, RULE, { ...settings, checks: 'open' })
    expect(await client.call(CHECK, REQUEST)).toMatchObject({ status: OK })
  })
})

describe.each(STACK_NAMES)('TLS on the %s stack', (stack) => {
  test('is used with --tls-cert, and renewed certificates apply to new connections', async () => {
    const folder = temporaryFolder()
    const [tlsCert, tlsKey] = [join(folder, 'cert.pem'), join(folder, 'key.pem')]
    const install = (name: string) => {
      writeFileSync(tlsKey, read(`${name}.key`))
      writeFileSync(tlsCert, read(`${name}.pem`))
    }
    install('server')
    const { grpcUrl, client } = await serveGrpc(stack, RULE, { tlsCert, tlsKey })
    client.close()
    const subject = async () => {
      const { session, call, close } = grpcClient(grpcUrl, { ca: read('ca.pem') })
      const { status } = await call(CHECK, REQUEST)
      const { subject: name } = (session.socket as TLSSocket).getPeerCertificate()
      close()
      return `${status} ${name.CN}`
    }
    expect(await subject()).toBe('0 server')
    install('renewed')
    await vi.waitFor(async () => expect(await subject()).toBe('0 renewed'), 5000)
    await expect(grpcClient(grpcUrl.replace('https', 'http')).call(CHECK, REQUEST)).rejects.toThrow()
  })

  test('a client certificate signed by --tls-client-ca replaces the token for checks only', async () => {
    const settings = { ...TLS, tlsClientCa: pem('ca.pem'), grpcHost: '0.0.0.0', adminToken: undefined }
    const { grpcUrl, client } = await serveGrpc(stack, RULE, settings)
    client.close()
    const as = (name: string) =>
      grpcClient(grpcUrl, { ca: read('ca.pem'), cert: read(`${name}.pem`), key: read(`${name}.key`) })
    const known = as('client')
    expect(await known.call(CHECK, REQUEST)).toMatchObject({ status: OK })
    expect(await known.call(EXPLAIN, REQUEST)).toMatchObject({
      status: DENIED,
      detail: 'this requires the role viewer; a client certificate has the role check',
    })
    await expect(as('stranger').call(CHECK, REQUEST)).rejects.toThrow()
    await expect(grpcClient(grpcUrl, { ca: read('ca.pem') }).call(CHECK, REQUEST)).rejects.toThrow()
  })
})

describe('the time that the store gets of a deadline', () => {
  test.each([
    { timeoutMs: 2, roundTripMs: 0.2, storeMs: 1.3 },
    { timeoutMs: 3, roundTripMs: 0.2, storeMs: 2.3 },
    { timeoutMs: 5, roundTripMs: 0.2, storeMs: 4.3 },
    { timeoutMs: 20, roundTripMs: 0.2, storeMs: 19.3 },
    { timeoutMs: 20, roundTripMs: 6, storeMs: 13.5 },
    { timeoutMs: 20, roundTripMs: 80, storeMs: 10 },
    { timeoutMs: 2, roundTripMs: undefined, storeMs: 1 },
    { timeoutMs: 20, roundTripMs: undefined, storeMs: 17 },
  ])('of $timeoutMs ms with a client $roundTripMs ms away: $storeMs ms', ({ timeoutMs, roundTripMs, storeMs }) => {
    const peer: Peer = { address: '', certificateSubject: undefined }
    if (roundTripMs !== undefined) roundTripMeasured(peer, roundTripMs)
    const call: Call = { path: '', metadata: () => undefined, timeoutMs, peer }
    expect(expiresMsOf(call, 1000)).toBeCloseTo(1000 + storeMs, 6)
    expect(expiresMsOf({ ...call, timeoutMs: undefined }), 'no deadline').toBeUndefined()
  })

  test('one stall of a client changes little, and a client that moves away is followed', () => {
    const peer: Peer = { address: '', certificateSubject: undefined }
    roundTripMeasured(peer, 500)
    roundTripMeasured(peer, 0.4)
    expect(peer.roundTripMs).toBe(0.4)
    roundTripMeasured(peer, 500)
    expect(peer.roundTripMs).toBeCloseTo(0.6)
    for (let time = 0; time < 10; time += 1) roundTripMeasured(peer, 20)
    expect(peer.roundTripMs).toBe(20)
  })
})

describe.each(STACK_NAMES)('deadlines on the %s stack', (stack) => {
  test('a check with grpc-timeout gets DEADLINE_EXCEEDED, not on_fail, if Redis takes longer', async () => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const proxy = await startFaultProxy(redis.port)
    onTestFinished(() => proxy.stop())
    const rules = '- { rule_id: strict, limit: 5, window: 1d, consistency: strict, on_fail: closed }\n'
    const settings = { redis: `redis://127.0.0.1:${proxy.port}`, storeDeadlineMs: 10_000 }
    const { client, metrics } = await serveGrpc(stack, rules, settings)
    expect(await client.call(CHECK, REQUEST, { 'grpc-timeout': '5S' })).toMatchObject({ status: OK })
    proxy.delayReplies(60_000)
    const { status, detail } = await client.call(CHECK, REQUEST, { 'grpc-timeout': '1S' })
    expect([status, detail]).toEqual([DEADLINE, expect.stringMatching(/^DEADLINE_EXCEEDED: .*nothing was decided/)])
    proxy.shut() // ends the connections that wait for the replies
    const text = await metrics.scrape()
    expect(text, 'an impatient caller is no failure of the store').toMatch(/sluice_breaker_open\S* 0\n/)
    expect(text).toMatch(/sluice_decisions_total\{source="policy"\} 0\n/)
  })

  test('2 ms are enough if Redis answers in time; the round trip to the client is measured', async () => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const rules = '- { rule_id: strict, limit: 100000, window: 1d, consistency: strict, on_fail: closed }\n'
    const { client } = await serveGrpc(stack, rules, { redis: redis.url, storeDeadlineMs: 10_000 })
    expect(await client.call(CHECK, REQUEST)).toMatchObject({ status: OK })
    // The machine may be busy: one of many calls meets a Redis that is not.
    const call = async () => (await client.call(CHECK, REQUEST, { 'grpc-timeout': '2m' })).status
    await vi.waitFor(async () => expect(await call()).toBe(OK), { timeout: 30_000, interval: 0 })
    const peers = new Set<Peer>()
    const seen: UnaryMethod = {
      kind: 'unary',
      path: '/seen',
      handle: (message, { peer }) => {
        peers.add(peer)
        return message
      },
    }
    const echo = await echoForTest({ create: STACKS[stack], methods: [seen] })
    const other = grpcClient(`http://127.0.0.1:${echo.port}`)
    await other.call('/seen', Buffer.alloc(1))
    expect([...peers], 'without deadlines it costs nothing').toEqual([{ address: '127.0.0.1' }])
    await other.call('/seen', Buffer.alloc(1), { 'grpc-timeout': '1S' })
    await vi.waitFor(() => expect([...peers][0]?.roundTripMs).toBeGreaterThan(0), { timeout: 10_000 })
    expect(peers.size).toBe(1)
  })

  test('a malformed grpc-timeout is INTERNAL, and a stream ends at its deadline', async () => {
    const { client } = await serveGrpc(stack, RULE)
    expect((await client.call(CHECK, REQUEST, { 'grpc-timeout': 'soon' })).status).toBe(13)
    expect(await client.open(STREAM, { 'grpc-timeout': '50m' }).done).toMatchObject({ status: DEADLINE })
  })
})

describe.each(STACK_NAMES)('the end of the %s stack', (stack) => {
  test('streams are answered, then end with UNAVAILABLE; new connections are refused', async () => {
    const { client, grpcUrl, close } = await serveGrpc(stack, RULE)
    const stream = client.open(STREAM)
    stream.send(CheckStreamRequest.encode({ id: 1, check: { client_id: 'alice' } }))
    await stream.count(1)
    await close()
    expect(await stream.done).toMatchObject({ status: UNAVAILABLE, detail: expect.stringContaining('reconnect') })
    const socket = connect(Number(new URL(grpcUrl).port), '127.0.0.1')
    const [error] = await once(socket, 'error')
    expect(error).toMatchObject({ code: 'ECONNREFUSED' })
  })

  test('a connection of the maximum age gets a GOAWAY, and its client connects again', async () => {
    const { client, grpcUrl, metrics } = await serveGrpc(stack, RULE, { grpcMaxConnectionAgeMs: 1000 })
    const ended = once(client.session, 'goaway')
    expect(await client.call(CHECK, REQUEST)).toMatchObject({ status: OK })
    const [code] = await ended
    expect(code).toBe(0)
    expect(await grpcClient(grpcUrl).call(CHECK, REQUEST)).toMatchObject({ status: OK })
    expect(await metrics.scrape()).toMatch(/timed_out_connections_total\{limit="age"\} [1-9]/)
  })

  test('connections beyond the cap are closed on arrival', async () => {
    const { grpcUrl, client } = await serveGrpc(stack, RULE, { grpcMaxConnections: 1 })
    expect(await client.call(CHECK, REQUEST)).toMatchObject({ status: OK })
    await expect(grpcClient(grpcUrl).call(CHECK, REQUEST)).rejects.toThrow()
    expect(await client.call(CHECK, REQUEST)).toMatchObject({ status: OK })
  })

  test('the HTTP API still serves, and logs where gRPC listens', async () => {
    const { address, logged, grpcUrl } = await serveGrpc(stack, RULE)
    expect((await fetch(address + RULES_PATH)).status).toBe(401)
    const entry = logged.find(({ event }) => event === 'grpc_listening')
    expect(entry).toMatchObject({ address: grpcUrl.replace('http://', ''), stack, tls: false })
  })
})
