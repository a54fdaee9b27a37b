// A handler from Request to Response in which each address may send 5 requests a minute: what Bun, Deno and Workers run
// as it is (`export default { fetch: handler }`). Node needs a server around it.

import { serve } from '@hono/node-server'
import { rateLimit } from 'sluice/fetch'

const handler = rateLimit({ limit: 5, window: '1m' })(() => new Response('hello\n'))

serve({ fetch: handler, port: Number(process.env.PORT ?? 3000), hostname: '127.0.0.1' }, ({ port }) => {
  console.log(`http://127.0.0.1:${port}`)
})
