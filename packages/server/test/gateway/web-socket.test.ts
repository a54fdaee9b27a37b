import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { echo, exchange, openGateway, startUpstream, statusesIn } from './setup.ts'

/** A server that sends back every message, on the same port as one for plain requests. */
async function startEcho() {
  const upstream = await startUpstream(echo)
  const sockets = new WebSocketServer({ server: upstream.server })
  sockets.on('connection', (socket) => {
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }))
  })
  onTestFinished(() => {
    for (const client of sockets.clients) client.terminate()
  })
  return { ...upstream, sockets }
}

function open(address: string, headers: Record<string, string> = {}): WebSocket {
  const socket = new WebSocket(address.replace('http', 'ws'), ['chat', 'other'], { headers })
  socket.on('error', () => {}) // reported by `unexpected-response` and `close`
  onTestFinished(() => socket.terminate())
  return socket
}

async function refusedWith(socket: WebSocket): Promise<number> {
  const [, answer] = (await once(socket, 'unexpected-response')) as [unknown, { statusCode: number }]
  return answer.statusCode
}

describe('a WebSocket', () => {
  test('carries every byte both ways, with the protocol that the service chose', async () => {
    const { url, sockets } = await startEcho()
    const { address } = await openGateway([], { upstream: url })
    const socket = open(address)
    const [[, request]] = (await Promise.all([once(sockets, 'connection'), once(socket, 'open')])) as [
      [unknown, { headers: Record<string, string> }],
      unknown,
    ]
    expect(socket.protocol).toBe('chat')
    expect(request.headers['x-forwarded-for']).toBe('127.0.0.1')
    for (const size of [0, 1, 126, 65_536, 3_000_000]) {
      const sent = Buffer.alloc(size, size % 251)
      socket.send(sent)
      const [got] = (await once(socket, 'message')) as [Buffer]
      expect(got.equals(sent)).toBe(true)
    }
    socket.close(4001, 'enough')
    const [code, reason] = (await once(socket, 'close')) as [number, Buffer]
    expect([code, reason.toString()]).toEqual([4001, 'enough'])
  })

  test('counts as one request, and holds its permit until either side closes it', async () => {
    const { url, sockets } = await startEcho()
    const rule = { rule_id: 'one', algorithm: 'concurrency', limit: 1, window: '1d', scope: 'per_ip' }
    const { address } = await openGateway([rule], { upstream: url })
    const first = open(address)
    await once(first, 'open')
    expect(await refusedWith(open(address))).toBe(429)
    first.terminate()
    const second = await vi.waitFor(async () => {
      const socket = open(address)
      await Promise.race([
        once(socket, 'open'),
        refusedWith(socket).then((status) => Promise.reject(new Error(`${status}`))),
      ])
      return socket
    })
    for (const client of sockets.clients) client.terminate()
    await once(second, 'close')
    await vi.waitFor(async () => expect((await fetch(address)).status).toBe(200))
  })

  test('that the service rejects gets its response', async () => {
    const { url } = await startUpstream((_request, response) => void response.writeHead(403).end('members only'))
    const { address } = await openGateway([], { upstream: url })
    expect(await refusedWith(open(address))).toBe(403)
  })

  test('to a service that is down is a 502', async () => {
    const upstream = await startUpstream(echo)
    await upstream.stop()
    const { address } = await openGateway([], { upstream: upstream.url })
    expect(await refusedWith(open(address))).toBe(502)
  })

  test('does not delay the shutdown', async () => {
    const { url } = await startEcho()
    const gateway = await openGateway([], { upstream: url })
    const socket = open(gateway.address)
    await once(socket, 'open')
    const closed = once(socket, 'close')
    await gateway.close()
    await closed
  })

  test('data that a client sends before the response is not lost', async () => {
    const { url, sockets } = await startEcho()
    const { address } = await openGateway([], { upstream: url })
    const { hostname, port } = new URL(address)
    const socket = connect(Number(port), hostname)
    onTestFinished(() => void socket.destroy())
    const connected = once(sockets, 'connection') as Promise<[WebSocket]>
    const key = Buffer.alloc(16).toString('base64')
    const head = `GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: ${key}`
    const hi = Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69]) // a frame with the text "hi", masked with zeros
    socket.write(Buffer.concat([Buffer.from(`${head}\r\nSec-WebSocket-Version: 13\r\n\r\n`), hi]))
    const [behind] = await connected
    const [message] = (await once(behind, 'message')) as [Buffer]
    expect(message.toString()).toBe('hi')
  })
})

/** A service that accepts every upgrade, never closes by itself, and reads only with `reads`. */
async function startDeaf(reads: boolean): Promise<{ url: URL; joined: Socket[] }> {
  const [joined, all] = [[] as Socket[], new Set<Socket>()]
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    all.add(socket.on('error', () => {}))
    socket.once('data', (head: Buffer) => {
      if (!/upgrade/i.test(head.toString())) return void socket.end('HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n')
      joined.push(socket)
      if (reads) socket.resume()
      else socket.pause()
      socket.write('HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n')
    })
  }).listen(0, '127.0.0.1')
  onTestFinished(() => {
    server.close()
    for (const socket of all) socket.destroy()
  })
  await once(server, 'listening')
  return { url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`), joined }
}

/** Resolves after the upgrade response with a paused client. */
async function upgradedClient(address: string): Promise<Socket> {
  const { hostname, port } = new URL(address)
  const client = connect({ port: Number(port), host: hostname, allowHalfOpen: true })
  onTestFinished(() => void client.destroy())
  client.on('error', () => {}).write(UPGRADE)
  await once(client, 'data')
  return client.pause()
}

const MORE_THAN_FITS = Buffer.alloc(20_000_000)

describe('once one side of a WebSocket has disconnected, its permit is released', () => {
  type Leaving = [what: string, serviceReads: boolean, leave: (client: Socket, service: Socket) => void]
  test.each<Leaving>([
    ['the client closes, the service ignores it', true, (client) => client.resume().end()],
    ['the client resets, the service ignores it', true, (client) => client.resetAndDestroy()],
    ['the client closes, the service does not read', false, (client) => client.resume().end(MORE_THAN_FITS)],
    ['the service closes, the client ignores it', true, (client, service) => client.resume() && service.end()],
    ['the service closes, the client does not read', true, (_client, service) => service.end(MORE_THAN_FITS)],
    ['the service sends, the client does not read', true, (_client, service) => service.write(MORE_THAN_FITS)],
  ])('%s', async (_what, serviceReads, leave) => {
    const { url, joined } = await startDeaf(serviceReads)
    const gateway = await openGateway([PERMIT], { upstream: url, clientTimeoutMs: 300, upstreamTimeoutMs: 300 })
    const client = await upgradedClient(gateway.address)
    expect((await fetch(gateway.address)).status).toBe(429)
    for (const service of joined) leave(client, service)
    await vi.waitFor(async () => expect((await fetch(gateway.address)).status).toBe(404), 10_000)
  })

  test('a WebSocket that is silent on both sides outlives an idle HTTP connection', async () => {
    const { url } = await startDeaf(true)
    const gateway = await openGateway([PERMIT], { upstream: url, clientTimeoutMs: 50, upstreamTimeoutMs: 50 })
    const client = await upgradedClient(gateway.address)
    client.resume()
    await exchange(gateway.address, 'GET / HTTP/1.1\r\nHost: x\r\n\r\n') // until it is closed
    expect([client.readyState, (await fetch(gateway.address)).status]).toEqual(['open', 429])
  })
})

const PERMIT = { rule_id: 'one', algorithm: 'concurrency', limit: 1, window: '1d', scope: 'per_ip' }

const UPGRADE = 'GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n'

test('one that is pipelined behind another request ends only its connection', async () => {
  const { url } = await startUpstream(() => {}) // never answers
  const { address } = await openGateway([], { upstream: url })
  const ahead = 'GET /waits HTTP/1.1\r\nHost: x\r\n\r\n'
  expect(await exchange(address, `${ahead}${UPGRADE}`)).toBe('')
  expect(await exchange(address, `GET x HTTP/1.1\r\nHost: x\r\n\r\n${ahead}${UPGRADE}`)).not.toContain('101')
})

test('other upgrades are not supported: the request is treated as any other', async () => {
  const { url } = await startUpstream(echo)
  const { address } = await openGateway([], { upstream: url })
  const head =
    'GET /plain HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA'
  const answer = await exchange(address, `${head}\r\n\r\n`)
  expect(statusesIn(answer)).toEqual([200])
  expect(answer).toContain('"url":"/plain"')
  expect(answer).not.toMatch(/upgrade|http2-settings/i)
})
