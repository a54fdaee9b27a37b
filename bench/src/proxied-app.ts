// Upstream of the gateway scenario: responds immediately and keeps connections alive.

import { createServer } from 'node:http'

const BODY = Buffer.alloc(1024, 'x')

const server = createServer((_request, response) => {
  response.writeHead(200, { 'content-type': 'text/plain', 'content-length': BODY.length })
  response.end(BODY)
})
server.keepAliveTimeout = 600_000
server.listen(0, '127.0.0.1', () => {
  const address = server.address()
  if (typeof address === 'object') process.stdout.write(`http://127.0.0.1:${address?.port}\n`)
})
process.on('SIGTERM', () => process.exit(0))
