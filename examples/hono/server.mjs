// A Hono application in which each address may send 5 requests a minute. On Bun and Deno, `app.fetch` is all it takes;
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
