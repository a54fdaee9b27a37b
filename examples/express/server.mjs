// An Express application with a limit of 5 requests per minute and client address.

import express from 'express'
import { rateLimit } from 'sluice/express'

const app = express()
app.use(rateLimit({ limit: 5, window: '1m' }))
app.get('/', (_req, res) => res.send('hello\n'))

const server = app.listen(Number(process.env.PORT ?? 3000), '127.0.0.1', (error) => {
  if (error) throw error
  console.log(`http://127.0.0.1:${server.address().port}`)
})
