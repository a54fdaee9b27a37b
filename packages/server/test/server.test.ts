import { once } from 'node:events'
import { connect } from 'node:net'
import { expect, test } from 'vitest'
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
