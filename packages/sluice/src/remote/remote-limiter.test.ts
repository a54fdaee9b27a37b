import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { createServer, type Socket } from 'node:net'
import { describe, expect, onTestFinished, test } from 'vitest'
import { LimiterError } from '../errors.ts'
import { runSync } from '../slices.ts'
import { Http2Transport } from './http2-transport.ts'
import { NodeRules } from './node-rules.ts'
import { RemoteNode } from './remote-limiter.ts'
import { type Exchange, RemoteStore } from './remote-store.ts'
import { decodeRequests } from './requests.ts'
import type { NodeState } from './state-message.ts'

const NONE = { seeds: [1, 2] as const, facts: [], hashes: new Uint8Array() }

function stateOf(version: number, ids: readonly string[], rest: Partial<NodeState> = {}): NodeRules {
  const rules = JSON.stringify(ids.map((rule_id) => ({ rule_id, limit: 5, window: '1h', scope: 'per_user' })))
  const state = { version, rules, ipv6Prefix: 64, layer: '', disabled: [], decidesAll: false, excepted: NONE }
  return new NodeRules({ ...state, ...rest })
}

const down: Exchange = () => Promise.reject(new LimiterError('STORE_UNAVAILABLE', 'down'))

function nodeOn(exchange: Exchange, rules: NodeRules): RemoteNode {
  const node = new RemoteNode(rules, { exchange, deadlineMs: 5, nodes: 1, onTransition: () => {}, close: () => {} })
  onTestFinished(() => node.close())
  return node
}

describe('a remote node', () => {
  test('enforces the newest state, also if it arrives while an older one is prepared', async () => {
    const node = nodeOn(down, stateOf(1, ['first']))
    const large = stateOf(
      2,
      Array.from({ length: 3000 }, (_, index) => `r${index}`),
    )
    const older = node.follow(large)
    const newer = node.follow(stateOf(3, ['newest']))
    await Promise.all([older, newer])
    expect([node.version, node.rules.map(({ rule_id }) => rule_id)]).toEqual([3, ['newest']])
  })

  test('skips states that were replaced before their turn', async () => {
    const node = nodeOn(down, stateOf(1, ['first']))
    const states = [stateOf(2, ['second']), stateOf(3, ['third']), stateOf(4, ['fourth'])]
    await Promise.all(states.map((state) => node.follow(state)))
    expect(node.version).toBe(4)
  })

  test('does not wait for decisions of the service while the circuit breaker is open', async () => {
    let decides = 0
    const silent: Exchange = (message) => {
      decides += runSync(decodeRequests(message)).filter(({ type }) => type === 'decide').length
      return new Promise(() => {})
    }
    const node = nodeOn(silent, stateOf(1, ['one'], { decidesAll: true }))
    for (let sent = 0; sent < 5; sent += 1) expect((await node.check({ user: 'a' })).source).toBe('policy')
    const before = decides
    for (let sent = 0; sent < 20; sent += 1) expect((await node.check({ user: 'a' })).source).toBe('policy')
    expect(decides).toBe(before)
  })
})

test('requests that wait for a service that does not reply are capped and counted', async () => {
  const store = new RemoteStore({ exchange: () => new Promise(() => {}), nameOf: () => undefined })
  const peek = { type: 'peek', charges: [] } as const
  const first = store.send(peek)
  first.catch(() => {})
  await new Promise((resolve) => setImmediate(resolve))
  let rejected = 0
  for (let sent = 0; sent < 30_000; sent += 1) {
    store.send(peek).catch(() => {
      rejected += 1
    })
  }
  await expect(store.send(peek)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
  expect(rejected).toBeGreaterThan(5000)
  expect(store.stats().dropped).toBe(rejected + 1)
})

test('a connection that is never established is given up', async () => {
  const sockets: Socket[] = []
  const server = createServer((socket) => sockets.push(socket.on('error', () => {}))).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const { port } = server.address() as { port: number }
  const transport = new Http2Transport({
    ...{ url: `https://127.0.0.1:${port}`, token: undefined, tls: undefined },
    pingMs: 20,
  })
  onTestFinished(() => transport.destroy())
  await expect(transport.call('/x', new Uint8Array())).rejects.toMatchObject({
    code: 'STORE_UNAVAILABLE',
    message: expect.stringContaining('no connection within 20 ms'),
  })
})

test('a port of another protocol is named, instead of a raw error', async () => {
  const server = createHttpServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const { port } = server.address() as { port: number }
  const messageFrom = async (protocol: string) => {
    const transport = new Http2Transport({ url: `${protocol}://127.0.0.1:${port}`, token: undefined, tls: undefined })
    onTestFinished(() => transport.destroy())
    return transport.call('/x', new Uint8Array()).catch(String)
  }
  expect(await messageFrom('http')).toContain('does not speak HTTP/2: use the port of --grpc-port')
  expect(await messageFrom('https')).toContain('the port has no TLS: use http://')
})
