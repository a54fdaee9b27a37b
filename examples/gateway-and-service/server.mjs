// One rule set at two layers: the gateway enforces the rules for the edge, the application behind it those for the
// service. Each rule is counted once.

import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { createLog, GATEWAY_SETTINGS, startGateway } from '@sluice/server'
import express from 'express'
import { createLimiter } from 'sluice'
import { rateLimit } from 'sluice/express'

const rules = fileURLToPath(new URL('rules.json', import.meta.url))

const limiter = createLimiter({ rules: JSON.parse(readFileSync(rules, 'utf8')), layer: 'service' })
const app = express()
app.use(rateLimit({ limiter, subject: (req) => ({ user: req.get('x-user') }), trustProxy: ['127.0.0.1'] }))
app.get('/', (req, res) => res.send(`hello ${req.get('x-user')}\n`))
const service = app.listen(0, '127.0.0.1')
await once(service, 'listening')

// The same as: sluice gateway --upstream http://127.0.0.1:… --listen 127.0.0.1:3000 --rules rules.json
const defaults = Object.entries(GATEWAY_SETTINGS).map(([name, { fallback }]) => [name, fallback()])
const gateway = await startGateway(
  {
    ...Object.fromEntries(defaults),
    upstream: new URL(`http://127.0.0.1:${service.address().port}`),
    listen: { host: '127.0.0.1', port: Number(process.env.PORT ?? 3000) },
    port: 0,
    rules,
  },
  createLog('warn'),
)
console.log(gateway.address)
