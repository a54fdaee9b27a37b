// A node:http server with two rules: 5 requests per minute and client address, at most 2 of them to /search.

import { createServer } from 'node:http'
import { createLimiter } from 'sluice'
import { rateLimit } from 'sluice/node'

const limiter = createLimiter({
  rules: [
    { rule_id: 'address', scope: 'per_ip', limit: 5, window: '1m' },
    { rule_id: 'search', endpoint_pattern: '/search', scope: 'per_ip', limit: 2, window: '1m' },
  ],
})

const server = createServer(rateLimit({ limiter })((_req, res) => res.end('hello\n')))
server.listen(Number(process.env.PORT ?? 3000), '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${server.address().port}`)
})
