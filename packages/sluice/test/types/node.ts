// Compiled, never run: listeners get the request and response of their server without an annotation.

import { createServer } from 'node:http'
import { createSecureServer, type Http2ServerRequest, createServer as http2Server } from 'node:http2'
import { createServer as httpsServer } from 'node:https'
import { createLimiter } from 'sluice'
import { rateLimit } from 'sluice/node'

const limit = { limit: 100, window: '1m' }
const limiter = createLimiter({ rules: [] })
const limited = rateLimit({ ...limit, key: (req) => req.headers.authorization, skip: (req) => req.complete })

createServer(
  rateLimit({ ...limit, key: (req) => req.headers['x-api-key']?.toString() })((req, res) => {
    res.writeHead(200, { 'content-type': 'text/plain' })
    res.write('hello')
    if (req.method === 'POST') req.pipe(res)
    else res.end()
  }),
)
createServer(
  rateLimit({ limiter, subject: async (req) => ({ user: req.headers.authorization }) })((_, res) => res.end()),
)
createServer(
  { keepAlive: true },
  limited((req, res) => req.resume().pipe(res.writeHead(200))),
)
createServer().on(
  'request',
  limited((req, res) => req.pipe(res)),
)
httpsServer(
  {},
  limited((req, res) => req.pipe(res)),
)
http2Server(limited(({ stream }, res) => res.stream.respond({ ':status': stream.closed ? 500 : 200 })))
http2Server(rateLimit({ ...limit, key: (req: Http2ServerRequest) => req.authority })((_, res) => res.end('hello')))
createSecureServer(
  {},
  limited((_, res) => res.writeHead(200).end()),
)

const listener = limited((req, res) => req.pipe(res))
createServer(listener).on('request', listener)

// @ts-expect-error: requests have no such property
rateLimit({ ...limit, key: (req) => req.nothing })
// @ts-expect-error: responses have no such method
createServer(limited((_, res) => res.nothing()))
