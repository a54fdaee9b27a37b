// End of responses over HTTP/2. RFC 9113, 8.1: END_STREAM ends a response; strict clients treat an earlier RST_STREAM
// as a failure, whatever its code.

import { describe, expect, test, vi } from 'vitest'
import { filesOf, makeCertificate } from './certificate.ts'
import { FrameClient } from './frames.ts'
import { echo, openGateway, startUpstream, type TestGateway } from './setup.ts'

const certificate = makeCertificate('localhost')
const secure = () => filesOf({ listenCert: certificate.pem, listenKey: certificate.keyPem })
const PERMITS = { rule_id: 'held', algorithm: 'concurrency', limit: 3, window: '1d', scope: 'per_ip' }
const BAN = { rule_id: 'ban', endpoint_pattern: '/banned', limit: 0, window: '1d', scope: 'global' }

async function nothingIsLeft({ apiAddress }: TestGateway): Promise<void> {
  await vi.waitFor(async () => {
    const metrics = await (await fetch(`${apiAddress}/metrics`)).text()
    expect(metrics).toContain('sluice_gateway_in_flight_requests 0')
  }, 5000)
}

async function openService(window?: number) {
  const { url } = await startUpstream((request, response) => {
    const size = Number(/^\/body\/(\d+)/.exec(request.url ?? '')?.[1])
    const status = Number(/^\/status\/(\d+)/.exec(request.url ?? '')?.[1])
    if (size > 0) return void response.end(Buffer.alloc(size))
    if (status > 0) return void response.writeHead(status).end(status === 413 ? 'too much' : undefined)
    if (request.url === '/trailers') {
      response.writeHead(200, { trailer: 'grpc-status, grpc-message' })
      response.write('data')
      response.addTrailers({ 'grpc-status': '0', 'grpc-message': 'fine' })
      return void response.end()
    }
    echo(request, response)
  })
  const gateway = await openGateway([PERMITS, BAN], { upstream: url, ...secure() })
  return { gateway, client: await FrameClient.connect(gateway.address, window) }
}

describe('a response ends with END_STREAM and no RST_STREAM', () => {
  test.each([
    ['a body', {}, ['HEADERS', 'DATA+END_STREAM']],
    ['a body of 30,000 bytes', { path: '/body/30000' }, ['HEADERS', 'DATA+END_STREAM']],
    ['a body after an upload', { method: 'POST', body: 'hello' }, ['HEADERS', 'DATA+END_STREAM']],
    ['HEAD', { method: 'HEAD' }, ['HEADERS+END_STREAM']],
    ['204', { path: '/status/204' }, ['HEADERS+END_STREAM']],
    ['304', { path: '/status/304' }, ['HEADERS+END_STREAM']],
    ['trailers', { path: '/trailers' }, ['HEADERS', 'DATA', 'HEADERS+END_STREAM']],
    ['a refusal', { path: '/banned' }, ['HEADERS', 'DATA+END_STREAM']],
    ['a refusal of HEAD', { path: '/banned', method: 'HEAD' }, ['HEADERS+END_STREAM']],
  ])('%s', async (_what, request, frames) => {
    const { gateway, client } = await openService()
    const stream = client.send(request)
    await client.until(stream)
    await nothingIsLeft(gateway)
    expect(client.framesOf(stream)).toEqual(frames)
  })
})

describe('a client that is still sending gets the complete response, then RST_STREAM(NO_ERROR)', () => {
  const upload = { method: 'POST', body: 'the first of many', isUnfinished: true }

  test.each([
    ['the service has answered', '/status/413', ['HEADERS', 'DATA+END_STREAM']],
    ['the service has answered without a body', '/status/204', ['HEADERS+END_STREAM']],
    ['the service has answered with trailers', '/trailers', ['HEADERS', 'DATA', 'HEADERS+END_STREAM']],
    ['it is refused', '/banned', ['HEADERS', 'DATA+END_STREAM']],
  ])('when %s', async (_when, path, frames) => {
    const { gateway, client } = await openService()
    const stream = client.send({ ...upload, path })
    expect(await client.until(stream, /RST_STREAM/)).toEqual([...frames, 'RST_STREAM(0)'])
    await nothingIsLeft(gateway)
  })

  test('also when the response fills its flow-control window', async () => {
    const { gateway, client } = await openService(1000)
    const stream = client.send({ ...upload, path: '/body/1000' })
    await client.until(stream, /DATA/)
    expect((await fetch(`${gateway.apiAddress}/metrics`)).status, 'some time has passed').toBe(200)
    expect(client.framesOf(stream)).toEqual(['HEADERS', 'DATA'])
    client.grow(stream, 1)
    expect(await client.until(stream, /RST_STREAM/)).toEqual(['HEADERS', 'DATA+END_STREAM', 'RST_STREAM(0)'])
    await nothingIsLeft(gateway)
  })
})

test('the gateway drops an aborted upload, and a response that the client cancelled', async () => {
  const { gateway, client } = await openService(1000)
  const uploaded = client.send({ method: 'POST', path: '/', body: 'some', isUnfinished: true })
  const unread = client.send({ path: '/body/100000' })
  await client.until(unread, /DATA/)
  for (const stream of [uploaded, unread]) client.cancel(stream)
  await nothingIsLeft(gateway)
})
