// A fetch handler with a limit of 5 requests per minute and client address. Bun, Deno and Workers run it directly
// (`export default { fetch: handler }`); Node.js needs a server around it.

import { serve } from '@hono/node-server'
import { rateLimit } from 'sluice/fetch'

const handler = rateLimit({ limit: 5, window: '1m' })(() => new Response('hello\n'))

serve({ fetch: handler, port: Number(process.env.PORT ?? 3000), hostname: '127.0.0.1' }, ({ port }) => {
  console.log(`http://127.0.0.1:${port}`)
})
