// A Koa application with a limit of 5 requests per minute and client address.

import Koa from 'koa'
import { rateLimit } from 'sluice/koa'

const app = new Koa()
app.use(rateLimit({ limit: 5, window: '1m' }))
app.use((ctx) => {
  ctx.body = `hello, ${ctx.state.rateLimit.remaining} left\n`
})

const server = app.listen(Number(process.env.PORT ?? 3000), '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${server.address().port}`)
})
