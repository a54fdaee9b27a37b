// Spans of the gateway, and the trace context that its upstream gets.

import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { startReceiver } from '../otlp-receiver.ts'
import { type Echoed, echo, exchange, linesOf, openGateway, startUpstream } from './setup.ts'

const ONE = [{ rule_id: 'one', limit: 1, window_seconds: 3600, scope: 'per_ip', algorithm: 'fixed_window' }]
const TRACE = '0af7651916cd43dd8448eb211c80319c'
const CALLER = 'b7ad6b7169203331'
const SAMPLED = `00-${TRACE}-${CALLER}-01`

async function openTraced(traceSample = 1, rules: unknown = ONE) {
  const receiver = await startReceiver()
  const { url: upstream } = await startUpstream(echo)
  const route = { host: undefined, prefix: '/api', upstream }
  const telemetry = { otlpEndpoint: receiver.url, traceSample, otlpMetricsSeconds: 0 }
  const gateway = await openGateway(rules, { upstream, routes: [route], ...telemetry })
  const get = async (path: string, headers: Record<string, string> = {}) => {
    const response = await fetch(gateway.address + path, { headers })
    return { status: response.status, echoed: (await response.json()) as Echoed }
  }
  return { receiver, gateway, get }
}

test('a request is a span with rule, result and route, and the upstream gets it as its parent', async () => {
  const { receiver, gateway, get } = await openTraced()
  const { echoed } = await get('/api/x?secret=1', { traceparent: SAMPLED, tracestate: 'vendor=1' })
  const { status } = await get('/other')
  await gateway.close()
  const [passed, refused] = receiver.spans
  expect(passed).toMatchObject({ name: 'GET /api', kind: 2, traceId: TRACE, parentSpanId: CALLER })
  expect(passed?.attributes).toEqual({
    ...{ 'http.request.method': 'GET', 'http.route': '/api', 'http.response.status_code': 200 },
    ...{ 'sluice.rule': 'one', 'sluice.allowed': true, 'sluice.source': 'store', 'sluice.version': 1 },
  })
  expect(linesOf(echoed.rawHeaders, 'traceparent')).toEqual([`00-${TRACE}-${passed?.spanId}-01`])
  expect(linesOf(echoed.rawHeaders, 'tracestate')).toEqual(['vendor=1'])
  expect(status).toBe(429)
  expect(refused).toMatchObject({
    name: 'GET /',
    attributes: { 'sluice.allowed': false, 'http.response.status_code': 429 },
  })
  expect(refused?.traceId).not.toBe(TRACE)
})

test('an unsampled request is no span; the upstream gets the trace of the caller, or an unsampled one', async () => {
  const { receiver, gateway, get } = await openTraced(0, [])
  const { echoed: alone } = await get('/')
  const { echoed: continued } = await get('/', { traceparent: `00-${TRACE}-${CALLER}-00`, tracestate: 'vendor=1' })
  await gateway.close()
  expect(receiver.spans).toEqual([])
  expect(linesOf(alone.rawHeaders, 'traceparent')).toEqual([expect.stringMatching(/^00-[\da-f]{32}-[\da-f]{16}-00$/)])
  expect(linesOf(continued.rawHeaders, 'traceparent')).toEqual([`00-${TRACE}-${CALLER}-00`])
  expect(linesOf(continued.rawHeaders, 'tracestate')).toEqual(['vendor=1'])
})

test('two traceparent headers start a new trace, of which the upstream gets exactly one header', async () => {
  const { receiver, gateway } = await openTraced(1, [])
  const head = `GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\ntraceparent: ${SAMPLED}\r\nTraceparent: ${SAMPLED}`
  const answer = await exchange(gateway.address, `${head}\r\ntracestate: vendor=1\r\n\r\n`)
  await gateway.close()
  const { rawHeaders } = JSON.parse(answer.slice(answer.indexOf('{'), answer.lastIndexOf('}') + 1)) as Echoed
  const [span] = receiver.spans
  expect(span?.traceId).not.toBe(TRACE)
  expect(linesOf(rawHeaders, 'traceparent')).toEqual([`00-${span?.traceId}-${span?.spanId}-01`])
  expect(linesOf(rawHeaders, 'tracestate')).toEqual([])
})

test('without telemetry, the trace headers of a client pass unchanged', async () => {
  const { url: upstream } = await startUpstream(echo)
  const gateway = await openGateway([], { upstream })
  const response = await fetch(gateway.address, { headers: { traceparent: 'odd', tracestate: 'vendor=1' } })
  const { rawHeaders } = (await response.json()) as Echoed
  expect(linesOf(rawHeaders, 'traceparent')).toEqual(['odd'])
  expect(linesOf(rawHeaders, 'tracestate')).toEqual(['vendor=1'])
})

test('a client that disconnects before the response ends its span', async () => {
  const receiver = await startReceiver()
  const { url: upstream, server } = await startUpstream(() => {})
  const arrived = once(server, 'request') as Promise<[unknown, ServerResponse]>
  const gateway = await openGateway([], { upstream, otlpEndpoint: receiver.url, traceSample: 1, otlpMetricsSeconds: 0 })
  const { hostname, port } = new URL(gateway.address)
  const socket = connect(Number(port), hostname)
  socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
  const [, response] = await arrived
  socket.destroy()
  await once(response, 'close') // the gateway has cancelled its own request
  await gateway.close()
  expect(receiver.spans[0]?.attributes).toMatchObject({ 'error.type': 'client_disconnected' })
})

test('the span of a WebSocket ends when it opens', async () => {
  const receiver = await startReceiver()
  const { url: upstream, server } = await startUpstream(echo)
  const sockets = new WebSocketServer({ server })
  onTestFinished(() => sockets.close())
  const gateway = await openGateway([], { upstream, otlpEndpoint: receiver.url, traceSample: 1, otlpMetricsSeconds: 0 })
  const socket = new WebSocket(gateway.address.replace('http', 'ws'))
  await once(socket, 'open')
  socket.terminate()
  await gateway.close()
  expect(receiver.spans).toHaveLength(1)
  expect(receiver.spans[0]?.attributes).toMatchObject({ 'http.response.status_code': 101 })
})
