import { once } from 'node:events'
import { connect, createServer, type Http2ServerRequest, type Http2ServerResponse } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { createLimiter } from '../limiter.ts'
import { rateLimit } from './node.ts'

// HTTP/2 only; tests for all frameworks are in test/middleware.

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
