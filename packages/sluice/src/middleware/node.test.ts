import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { connect, createServer, type Http2ServerRequest, type Http2ServerResponse } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createLimiter } from '../limiter.ts'
import { rateLimit } from './node.ts'

// HTTP/2, and errors, which no framework handles here; tests for all frameworks are in test/middleware.

test('a permit is released if the client disconnects while its subject is looked up', async () => {
  const rule = { rule_id: 'one', algorithm: 'concurrency', limit: 1, window: '1d', scope: 'global' }
  const limiter = createLimiter({ rules: [rule] })
  const known: (() => void)[] = []
  const gone: Promise<unknown>[] = []
  const subject = ({ stream }: Http2ServerRequest) => {
    gone.push(once(stream, 'close'))
    return new Promise<object>((go) => known.push(() => go({})))
  }
  const limited = rateLimit({ limiter, subject })
  const server = createServer(limited((_req, res: Http2ServerResponse) => void res.end('hello'))).listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  onTestFinished(() => session.destroy())
  const stream = session.request({ ':path': '/' }).on('error', () => {})
  await expect.poll(() => known.length).toBe(1)
  stream.close()
  await gone[0]
  known[0]?.()
  await new Promise((decided) => setImmediate(decided))
  expect((await limiter.peek({})).allowed).toBe(true)
})

test('an invalid result is a problem document without details, and one warning with field, value and fix', async () => {
  const emitWarning = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  onTestFinished(() => emitWarning.mockRestore())
  const ok = { limit: 5, window: '1d', trustProxy: [] }
  const tooLong = rateLimit({ ...ok, key: () => 'x'.repeat(1025) })
  const free = rateLimit({ ...ok, cost: () => 0 })
  const limiter = createLimiter({ rules: [] })
  const unknownFact = rateLimit({ limiter, trustProxy: [], subject: () => ({ client_id: 'a' }) as object })
  const statuses: unknown[] = []
  for (const limited of [tooLong, free, free, unknownFact]) {
    const server = createHttpServer(limited((_req, res) => void res.end('hello'))).listen(0, '127.0.0.1')
    onTestFinished(() => void server.close().closeAllConnections())
    await once(server, 'listening')
    const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    expect(response.headers.get('content-type')).toBe('application/problem+json')
    statuses.push(await response.json())
  }
  const failed = { type: 'about:blank', title: 'Internal Server Error', status: 500 }
  expect(statuses).toEqual([{ type: 'about:blank', title: 'Bad Request', status: 400 }, failed, failed, failed])
  expect(emitWarning).toHaveBeenCalledExactlyOnceWith(
    expect.stringContaining('cost: must be a whole number from 1 to 1000000000 (got 0)'),
    { code: 'SLUICE_CHECK_FAILED' },
  )
})
