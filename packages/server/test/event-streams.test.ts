// Back-pressure of the event stream: a client that does not read costs bounded memory, and learns what it missed.

import { once } from 'node:events'
import { type AddressInfo, connect } from 'node:net'
import Fastify from 'fastify'
import { expect, onTestFinished, test, vi } from 'vitest'
import { ANONYMOUS_CALLER, type Authenticator } from '../src/access/authenticator.ts'
import type { SendTail } from '../src/events/event-tail.ts'
import { EventStreams } from '../src/http/event-streams.ts'
import { sendTail } from '../src/http/routes/event-stream.ts'
import { eventRow } from './event-rows.ts'

async function serveStreams() {
  const app = Fastify()
  const streams = new EventStreams(app, { isStillValid: () => true } as Partial<Authenticator> as Authenticator)
  app.decorateRequest('caller')
  app.addHook('onRequest', async (request) => {
    request.caller = ANONYMOUS_CALLER
  })
  onTestFinished(() => app.close())
  return { app, streams }
}

/** A stream on a real connection whose client does not read yet. */
async function openStream() {
  const { app, streams } = await serveStreams()
  let send: SendTail = () => {}
  const tail = {
    subscribe: (_filter: object, _last: number, to: SendTail) => {
      send = to
      return () => {}
    },
  }
  app.get('/', (request, reply) => {
    sendTail(streams.open(request, reply), tail, {}, 0)
    return reply
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  const client = connect((app.server.address() as AddressInfo).port, '127.0.0.1')
  onTestFinished(() => void client.destroy())
  client.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n')
  await once(client, 'readable') // the headers: nothing is read before `reading`
  const reading = () => {
    const chunks: string[] = []
    client.setEncoding('utf8').on('data', (chunk: string) => chunks.push(chunk))
    return () => chunks.join('')
  }
  return { send: (fields: object) => send(eventRow(fields)), client, reading }
}

const LARGE = { endpoint: 'x'.repeat(100_000) }

test('a client that does not read misses events, and learns how many once it reads', async () => {
  const { send, reading } = await openStream()
  for (let sent = 0; sent < 200; sent += 1) send(LARGE)
  const received = reading()
  // The stream accepts events again when the client has read some of those that wait.
  await vi.waitFor(() => {
    send({ endpoint: '/last' })
    expect(received()).toContain('/last')
  })
  const text = received()
  expect(text).toContain(': connected')
  const decisions = text.match(/x{100000}/g)?.length ?? 0
  const skipped = Number(/event: skipped\ndata: \{"count":(\d+)\}/.exec(text)?.[1])
  expect(decisions).toBeGreaterThan(9) // a megabyte
  expect(decisions).toBeLessThan(200)
  expect(skipped).toBeGreaterThanOrEqual(200 - decisions)
})

test('a client that does not read for 30 seconds is disconnected', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  onTestFinished(() => void vi.useRealTimers())
  const { send, client } = await openStream()
  const closed = once(client, 'close')
  for (let sent = 0; sent < 200; sent += 1) send(LARGE)
  vi.advanceTimersByTime(30_000)
  send(LARGE)
  expect(client.destroyed).toBe(false)
  vi.advanceTimersByTime(1)
  send(LARGE)
  client.on('error', () => {}).resume()
  await closed
})

test('a client that disconnects before its stream opens leaves no place taken and no work running', async () => {
  const { app, streams } = await serveStreams()
  let closed = 0
  app.get('/', async (request, reply) => {
    if (!reply.raw.destroyed) await once(reply.raw, 'close') // such as during a query
    streams.open(request, reply).onClose(() => {
      closed += 1
    })
    return reply
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = app.server.address() as AddressInfo
  const more = 10 // than one token may have
  for (let opened = 1; opened <= more; opened += 1) {
    const received = once(app.server, 'request')
    const client = connect(port, '127.0.0.1').on('error', () => {})
    client.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n')
    await received
    client.destroy()
    await vi.waitFor(() => expect(closed).toBe(opened))
  }
})
