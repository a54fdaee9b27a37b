import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { describe, expect, onTestFinished, test } from 'vitest'
import { STACK_NAMES, serveGrpc } from '../grpc/stacks.ts'
import { ADMIN_TOKEN, CHECK } from '../service.ts'
import { sluice } from './terminal.ts'

const RULES = '- { rule_id: two, name: Two, limit: 2, window: 1d, scope: per_user, algorithm: fixed_window }\n'
const pem = (name: string) => fileURLToPath(new URL(`../fixtures/tls/${name}`, import.meta.url))

describe.each(STACK_NAMES)('sluice grpc, on the %s stack', (stack) => {
  test('list shows every service, method and message', async () => {
    const { grpcUrl } = await serveGrpc(stack, RULES)
    const { code, out } = await sluice(['grpc', 'list', '--url', grpcUrl])
    expect(code).toBe(0)
    expect(out.replaceAll(/ +/g, ' ')).toContain(
      ' sluice.v1.RateLimiter/CheckStream stream sluice.v1.CheckStreamRequest stream sluice.v1.CheckStreamResponse\n',
    )
    const listed = JSON.parse((await sluice(['grpc', 'list', '--url', grpcUrl, '--json'])).out)
    expect(listed).toContainEqual({
      service: 'grpc.health.v1.Health',
      methods: [
        { name: 'Check', request: 'grpc.health.v1.HealthCheckRequest', response: 'grpc.health.v1.HealthCheckResponse' },
        {
          name: 'Watch',
          request: 'grpc.health.v1.HealthCheckRequest',
          response: 'stream grpc.health.v1.HealthCheckResponse',
        },
      ],
    })
  })

  test('check counts down, exits with 3 once it is refused, and --json is the answer of the HTTP API', async () => {
    const { grpcUrl, address } = await serveGrpc(stack, RULES)
    const args = ['grpc', 'check', '--user', 'alice', '--attribute', 'a=b', '--url', grpcUrl]
    expect(await sluice(args)).toEqual({
      code: 0,
      out: 'allowed: 1 of 2 left\n  two   1 of 2 left, window 86400 s   per_user\n',
      told: '',
    })
    const second = JSON.parse((await sluice([...args, '--json'])).out)
    const body = JSON.stringify({ client_id: 'bob', cost: 2, detail: true })
    const headers = { 'content-type': 'application/json' }
    const http = (await (await fetch(address + CHECK, { method: 'POST', headers, body })).json()) as object
    expect(Object.keys(second).sort()).toEqual(Object.keys(http).sort())
    expect(second).toMatchObject({ remaining: 0, rules: [{ rule_id: 'two', remaining: 0, window_ms: 86_400_000 }] })
    const third = await sluice(args)
    expect([third.code, third.out]).toEqual([3, expect.stringMatching(/^refused by two: try again in \d+ s$/m)])
  })

  test('the HTTP API and the gRPC API name the other port, and a port without TLS', async () => {
    const { grpcUrl, address } = await serveGrpc(stack, RULES)
    const toldBy = async (...args: string[]) => (await sluice(args)).told
    expect(await toldBy('grpc', 'health', '--url', address)).toMatch(/HTTP\/2\n +Is it the HTTP port\?.*--grpc-port/)
    expect(await toldBy('grpc', 'health', '--url', grpcUrl.replace('http:', 'https:'))).toContain('Use http://')
    expect(await toldBy('rules', 'list', '--url', grpcUrl)).toMatch(/HTTP\/1.1\n +Is it the gRPC port\?/)
    expect(await toldBy('rules', 'list', '--url', address.replace('http:', 'https:'))).toContain('Use http://')
  })

  test('health shows SERVING, and exits with 3 while the node drains', async () => {
    const { grpcUrl, drain } = await serveGrpc(stack, RULES)
    expect(await sluice(['grpc', 'health', 'sluice.v1.RateLimiter', '--url', grpcUrl])).toMatchObject({
      code: 0,
      out: 'SERVING\n',
    })
    expect(await sluice(['grpc', 'health', 'nope', '--url', grpcUrl])).toMatchObject({ code: 2 })
    drain()
    const args = ['grpc', 'health', '--json', '--url', grpcUrl]
    expect(await sluice(args)).toMatchObject({ code: 3, out: '{"service":"","status":"NOT_SERVING"}\n' })
  })

  test('tokens, TLS and client certificates', async () => {
    const files = { tlsCert: pem('server.pem'), tlsKey: pem('server.key'), tlsClientCa: pem('ca.pem') }
    const { grpcUrl } = await serveGrpc(stack, RULES, { ...files, checks: 'token' })
    const certificate = ['--ca', pem('ca.pem'), '--cert', pem('client.pem'), '--key', pem('client.key')]
    const args = ['grpc', 'check', '--user', 'alice', '--url', grpcUrl, ...certificate]
    expect(await sluice(args)).toMatchObject({ code: 0 })
    expect(await sluice([...args, '--token', ADMIN_TOKEN])).toMatchObject({ code: 0 })
    const wrong = await sluice([...args, '--token', 'wrong-token-012345'])
    expect(wrong).toMatchObject({ code: 4, told: expect.stringContaining('UNAUTHENTICATED') })
    expect(wrong.told).not.toContain('wrong-token')
    const missing = await sluice(['grpc', 'check', '--url', grpcUrl, '--ca', '/nowhere.pem'])
    expect(missing).toMatchObject({ code: 2, told: expect.stringContaining('--ca: give the path of a PEM file') })
  })
})

test('a server that is absent, or does not speak gRPC, is an error with advice', async () => {
  const web = createServer((_request, response) => response.end('hello')).listen(0, '127.0.0.1')
  await once(web, 'listening')
  onTestFinished(() => void web.close())
  const { port } = web.address() as AddressInfo
  const advice = {
    [`http://127.0.0.1:${port}`]: 'Is it the HTTP port? Use the port of --grpc-port.',
    'http://127.0.0.1:1': 'Is a node with --grpc-port running there?',
  }
  for (const [url, text] of Object.entries(advice)) {
    const { code, told } = await sluice(['grpc', 'health', '--url', url])
    expect([code, told]).toEqual([1, expect.stringContaining(text)])
  }
})
