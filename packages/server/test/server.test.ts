import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { echo, openGateway, startUpstream } from './gateway/setup.ts'
import { CHECK, clientOf, serveFile } from './service.ts'

const ONE = '- { rule_id: one, limit: 1, window: 1d, scope: per_ip }\n'

test('a request that never ends is aborted when the server closes', async () => {
  const { address, close } = await serveFile(ONE, {}, 100)
  const socket = connect(Number(new URL(address).port), '127.0.0.1')
  socket.on('error', () => {})
  socket.write(`POST ${CHECK} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{`)
  await once(socket, 'connect')
  expect((await clientOf(address).get('/livez')).status).toBe(200) // by now the head has arrived too
  const closed = once(socket, 'close')
  await close()
  await closed
})

describe.each([
  ['the service', (settings: object) => serveFile(ONE, settings)],
  [
    'the gateway',
    async (settings: object) => {
      const { url } = await startUpstream(echo)
      return openGateway([], { upstream: url, ...settings })
    },
  ],
])('the last answers of %s', (_name, open) => {
  const HEAD = 'GET /livez HTTP/1.1\r\nhost: x\r\n'

  async function connected(address: string): Promise<{ socket: Socket; answer: Promise<string> }> {
    const socket = connect(Number(new URL(address).port), '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    await once(socket, 'connect')
    return { socket, answer: text(socket) }
  }

  test('are those of requests, also on connections that were opened during the drain', async () => {
    const { address, drain, close } = await open({})
    const early = await connected(address)
    early.socket.write(HEAD)
    expect((await fetch(`${address}/livez`)).status).toBe(200) // by now the half of a head has arrived
    drain()
    const late = await connected(address)
    expect((await fetch(`${address}/livez`)).headers.get('connection')).toBe('close')
    const closing = close()
    await vi.waitFor(() => expect(fetch(`${address}/livez`)).rejects.toThrow())
    early.socket.write('\r\n')
    late.socket.write(`${HEAD}\r\n`)
    for (const { answer } of [early, late]) {
      expect(await answer).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
      expect(await answer).toMatch(/\r\nconnection: close\r\n/i)
    }
    await closing
  })

  test('do not wait for connections that were idle before the drain', async () => {
    const { address, close } = await open({})
    const { socket, answer } = await connected(address)
    socket.write(`${HEAD}\r\n`)
    await once(socket, 'data')
    await close()
    expect(await answer).not.toMatch(/connection: close/i)
  })
})

test('an unavailable address is an error, and leaves nothing running', async () => {
  const { address } = await serveFile(ONE)
  const { port } = new URL(address)
  await expect(serveFile(ONE, { host: '192.0.2.1' })).rejects.toMatchObject({ code: 'EADDRNOTAVAIL' })
  expect(port).not.toBe('')
})

test('layer and ipv6Prefix reach the limiter', async () => {
  const rules = '- { rule_id: edge, limit: 1, window: 1d, scope: per_ip, enforce_at: edge }\n'
  const service = await serveFile(rules, { layer: 'service' })
  expect(await service.check({ ip_address: '2001:db8::1' })).toMatchObject({ limit: null })
  const edge = await serveFile(rules, { layer: 'edge', ipv6Prefix: 128 })
  expect(await edge.check({ ip_address: '2001:db8::1' })).toMatchObject({ allowed: true, limit: 1 })
  expect(await edge.check({ ip_address: '2001:db8::2' })).toMatchObject({ allowed: true, limit: 1 })
})
