// A Hono application with a limit of 5 requests per minute and client address. Bun and Deno run `app.fetch` directly;
// on Workers, pass `ip: (c) => c.req.header('cf-connecting-ip')`.

import { serve } from '@hono/node-server'
import { Hono } from 'hono'
import { rateLimit } from 'sluice/hono'

const app = new Hono()
app.use(rateLimit({ limit: 5, window: '1m' }))
app.get('/', (c) => c.text('hello\n'))

serve({ fetch: app.fetch, port: Number(process.env.PORT ?? 3000), hostname: '127.0.0.1' }, ({ port }) => {
  console.log(`http://127.0.0.1:${port}`)
})
