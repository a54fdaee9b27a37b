// One client address cannot use up the connections or calls of a port: HTTP, gRPC and gateway, with and without TLS.

import { once } from 'node:events'
import { connect as connectHttp2 } from 'node:http2'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import { fileURLToPath } from 'node:url'
import { parseCidr } from 'sluice/http'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { temporaryFolder } from './databases.ts'
import { dripping, echo, openGateway, startUpstream } from './gateway/setup.ts'
import { grpcClient } from './grpc/client.ts'
import { CheckRequest, CheckStreamRequest, RATE_LIMITER } from './grpc/messages.ts'
import { STACK_NAMES, serveGrpc } from './grpc/stacks.ts'
import { serveFile } from './service.ts'

const OTHER = '127.0.0.2'
const pem = (name: string) => fileURLToPath(new URL(`./fixtures/tls/${name}`, import.meta.url))
const TLS = { tlsCert: pem('server.pem'), tlsKey: pem('server.key') }

type Port = { readonly port: number; metrics(): Promise<string>; readonly logged: readonly object[] }

async function grpcPort(stack: (typeof STACK_NAMES)[number], settings: object): Promise<Port> {
  const { grpcUrl, metrics, logged, client } = await serveGrpc(stack, '[]', settings)
  client.close()
  await vi.waitFor(async () => expect(await metrics.scrape()).toMatch(/sluice_grpc_connections 0\n/))
  return { port: Number(new URL(grpcUrl).port), metrics: () => metrics.scrape(), logged }
}

async function httpPort(settings: object): Promise<Port> {
  const { address, metrics, logged } = await serveGrpc('lean', '[]', settings)
  return { port: Number(new URL(address).port), metrics: () => metrics.scrape(), logged }
}

async function gatewayPort(settings: object): Promise<Port> {
  const { url } = await startUpstream(echo)
  const { address, apiAddress, logged } = await openGateway([], { upstream: url, ...settings })
  const metrics = async () => (await fetch(`${apiAddress}/metrics`)).text()
  return { port: Number(new URL(address).port), metrics, logged }
}

const LISTEN = { listenCert: TLS.tlsCert, listenKey: TLS.tlsKey }
const PORTS: readonly (readonly [string, string, (settings: object) => Promise<Port>])[] = [
  ['the HTTP port', 'http', httpPort],
  ['the HTTP port with TLS', 'http', (settings) => httpPort({ ...TLS, ...settings })],
  ['the gateway', 'gateway', gatewayPort],
  ['the gateway with TLS', 'gateway', (settings) => gatewayPort({ ...LISTEN, ...settings })],
  ...STACK_NAMES.flatMap((stack) => [
    [`gRPC on the ${stack} stack`, 'grpc', (settings: object) => grpcPort(stack, settings)] as const,
    [
      `gRPC with TLS on the ${stack} stack`,
      'grpc',
      (settings: object) => grpcPort(stack, { ...TLS, ...settings }),
    ] as const,
  ]),
]

async function idle(port: number, localAddress = '127.0.0.1'): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', localAddress })
  socket.on('error', () => {})
  onTestFinished(() => void socket.destroy())
  await once(socket, 'connect')
  return socket
}

/** Whether the server keeps the connection: it closes refused ones before it accepts the next. */
async function isKept(socket: Socket, port: number): Promise<boolean> {
  socket.resume()
  const next = await idle(port, '127.0.0.9')
  next.destroy()
  await new Promise((done) => setImmediate(done))
  await vi.waitFor(() => expect(next.destroyed).toBe(true))
  return !socket.destroyed && !socket.readableEnded
}

describe.each(PORTS)('%s', (_name, label, open) => {
  test('closes, counts and logs connections beyond the cap of their address, and serves other addresses', async () => {
    const { port, metrics, logged } = await open({ maxConnectionsPerAddress: 3 })
    const held = [await idle(port), await idle(port), await idle(port)]
    const refused = [await idle(port), await idle(port)]
    for (const socket of refused) {
      socket.resume()
      if (!socket.closed) await once(socket, 'close')
    }
    for (const socket of held) expect(await isKept(socket, port)).toBe(true)
    expect(await isKept(await idle(port, OTHER), port)).toBe(true)
    expect(await metrics()).toContain(`sluice_refused_connections_total{port="${label}",cap="address"} 2\n`)
    expect(logged.filter((line) => 'event' in line && line.event === 'connections_refused')).toMatchObject([
      { port: label, cap: 'address', refused: 1, fix: expect.stringContaining('--max-connections-per-address') },
    ])
    held[0]?.destroy()
    await vi.waitFor(async () => expect(await isKept(await idle(port), port)).toBe(true))
  })

  test('has no cap for trusted proxies, which carry many clients', async () => {
    const trustedProxies = [parseCidr('127.0.0.1')]
    const { port } = await open({ maxConnectionsPerAddress: 1, trustedProxies })
    const held = [await idle(port), await idle(port), await idle(port)]
    for (const socket of held) expect(await isKept(socket, port)).toBe(true)
  })
})

/** Begin of a ClientHello of 4096 bytes. */
const HELLO = Buffer.from([22, 3, 1, 16, 0, 1, 0, 15, 252, 3, 3])

/** A complete ClientHello, whose sender then says no more. */
async function clientHello(): Promise<Buffer> {
  const server = createServer().listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const client = connectTls({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', ALPNProtocols: ['h2'] })
  client.on('error', () => {})
  const [accepted] = (await once(server, 'connection')) as [Socket]
  const [hello] = (await once(accepted, 'data')) as [Buffer]
  client.destroy()
  return hello
}

test('unfinished TLS handshakes end after 10 s at every port, without an answer in HTTP', async () => {
  const hello = await clientHello()
  const open = PORTS.filter(([name]) => name.includes('TLS')).map(async ([name, , openPort]) => {
    const { port } = await openPort({})
    const starts = [Buffer.alloc(0), HELLO, hello]
    const ends = starts.map(async (bytes) => {
      const socket = connect(port, '127.0.0.1')
      onTestFinished(() => void socket.destroy())
      if (bytes.length > 0) socket.write(bytes)
      const chunks: Buffer[] = []
      socket.on('error', () => {}).on('data', (chunk: Buffer) => chunks.push(chunk))
      if (bytes === HELLO) dripping(() => void (socket.writable && socket.write(Buffer.of(0)))) // extends nothing
      return closed(socket, chunks)
    })
    return [name, (await Promise.all(ends)).some((text) => text.includes('HTTP/1.1'))]
  })
  const expected = PORTS.filter(([name]) => name.includes('TLS')).map(([name]) => [name, false])
  expect(await Promise.all(open)).toEqual(expected)
}, 40_000)

/** Waits until the other end has closed. Returns what it sent. */
async function closed(socket: Socket, chunks: readonly Buffer[]): Promise<string> {
  await new Promise((resolve) => socket.once('close', resolve))
  return Buffer.concat(chunks).toString('latin1')
}

test('a socket file has no cap: permissions of the file decide who may connect', async () => {
  const path = join(temporaryFolder(), 'sluice.sock')
  await serveFile('[]', { socket: path, maxConnectionsPerAddress: 1 })
  const sockets = [1, 2, 3].map(() => connect(path))
  for (const socket of sockets) {
    onTestFinished(() => void socket.destroy())
    if (socket.connecting) await once(socket, 'connect')
    socket.write('GET /livez HTTP/1.1\r\nhost: x\r\n\r\n')
    const [answer] = (await once(socket, 'data')) as [Buffer]
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 200/)
  }
})

const CHECK = `${RATE_LIMITER}/Check`
const STREAM = `${RATE_LIMITER}/CheckStream`
const REQUEST = CheckRequest.encode({ client_id: 'alice' })

describe.each(STACK_NAMES)('calls of a process on the %s stack', (stack) => {
  const from = (url: string, localAddress: string) => grpcClient(url, { localAddress } as object)

  test('beyond the cap get REFUSED_STREAM, and calls in progress go on', async () => {
    const { grpcUrl, metrics, logged } = await serveGrpc(stack, '[]', { grpcMaxCalls: 20 })
    const many = from(grpcUrl, '127.0.0.1')
    const few = from(grpcUrl, OTHER)
    const streams = await Promise.all(
      Array.from({ length: 20 }, async (_, index) => {
        const stream = (index < 18 ? many : few).open(STREAM)
        stream.send(CheckStreamRequest.encode({ id: 1, check: { client_id: 'alice' } }))
        await stream.count(1)
        return stream
      }),
    )
    const refused = from(grpcUrl, '127.0.0.3').session.request({
      ...{ ':method': 'POST', ':path': CHECK, 'content-type': 'application/grpc', te: 'trailers' },
    })
    await expect(once(refused, 'close')).rejects.toThrow('NGHTTP2_REFUSED_STREAM')
    expect(await metrics.scrape()).toContain('sluice_grpc_refused_calls_total{cap="process"} 1\n')
    expect(logged).toContainEqual(expect.objectContaining({ event: 'grpc_calls_refused', cap: 'process', refused: 1 }))
    for (const stream of streams) stream.send(CheckStreamRequest.encode({ id: 2, check: { client_id: 'bob' } }))
    for (const stream of streams) await stream.count(2)
    streams[0]?.end()
    await streams[0]?.done
    expect(await from(grpcUrl, '127.0.0.3').call(CHECK, REQUEST)).toMatchObject({ status: 0 })
  })

  test('of one address leave a tenth for other addresses', async () => {
    const { grpcUrl } = await serveGrpc(stack, '[]', { grpcMaxCalls: 20 })
    const greedy = from(grpcUrl, '127.0.0.1')
    const opened = Array.from({ length: 30 }, () => greedy.open(STREAM))
    const outcomes = opened.map(async (stream) => {
      stream.send(CheckStreamRequest.encode({ id: 1, check: { client_id: 'alice' } }))
      return stream.count(1).then(
        () => 'open',
        () => 'refused',
      )
    })
    const counted = await Promise.all(outcomes)
    expect(counted.filter((outcome) => outcome === 'open')).toHaveLength(18)
    expect(await from(grpcUrl, OTHER).call(CHECK, REQUEST)).toMatchObject({ status: 0 })
  })

  test('of a trusted proxy may use all of them', async () => {
    const trustedProxies = [parseCidr('127.0.0.1')]
    const { grpcUrl } = await serveGrpc(stack, '[]', { grpcMaxCalls: 20, trustedProxies } as object)
    const proxy = from(grpcUrl, '127.0.0.1')
    for (let count = 0; count < 20; count += 1) {
      const stream = proxy.open(STREAM)
      stream.send(CheckStreamRequest.encode({ id: 1, check: { client_id: 'alice' } }))
      await stream.count(1)
    }
    await expect(proxy.call(CHECK, REQUEST)).rejects.toThrow('NGHTTP2_REFUSED_STREAM')
  })
})

test('the node stack closes a connection without a call after 20 seconds, and keeps one with a call', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
  const { grpcUrl, metrics, client } = await serveGrpc('node', '[]')
  expect(await client.call(CHECK, REQUEST)).toMatchObject({ status: 0 })
  const silent = connectHttp2(grpcUrl)
  onTestFinished(() => silent.destroy())
  await once(silent, 'remoteSettings')
  vi.advanceTimersByTime(25_000)
  await once(silent, 'close')
  expect(await metrics.scrape()).toContain('sluice_grpc_timed_out_connections_total{limit="no_call"} 1\n')
  expect(await client.call(CHECK, REQUEST)).toMatchObject({ status: 0 })
})
