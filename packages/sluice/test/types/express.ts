// Compiled, never run: functions of the options get the request of Express 4 and 5 without an annotation, and handlers
// after the middleware keep theirs.

import express, { type Request, Router } from 'express'
import { createLimiter } from 'sluice'
import { rateLimit } from 'sluice/express'

const limit = { limit: 100, window: '1m' }
const limiter = createLimiter({ rules: [] })
const app = express()
const router = Router()

app.use(rateLimit(limit))
app.use('/api', rateLimit({ ...limit, key: (req) => req.get('x-api-key'), skip: (req) => req.path === '/health' }))
app.use(rateLimit({ limiter, subject: async (req) => ({ user: req.get('x-user'), tenant: req.hostname }) }))
app.use(
  rateLimit({ ...limit, cost: ({ query }) => (query.all ? 10 : 1), refusal: (_decision, req) => ({ ip: req.ip }) }),
)
app.get('/:id', rateLimit({ ...limit, key: (req) => req.params.id }), (req, res) => {
  const id: string = req.params.id
  res.send(`${id} ${req.rateLimit?.remaining}`)
})
router.route('/:id').get(rateLimit({ ...limit, key: ({ params }) => params.id?.toUpperCase() }))
app.get('/*path', rateLimit({ ...limit, key: (req: Request<{ path: string[] }>) => req.params.path.join('/') }))

const stored = rateLimit({ ...limit, key: (req) => req.get('x-api-key') })
app.use(stored, router.use(stored))
app.get('/:id', stored, (req, res) => {
  const id: string = req.params.id
  res.send(id)
})

// @ts-expect-error: requests have no such property
app.use(rateLimit({ ...limit, key: (req) => req.nothing }))
// @ts-expect-error: parameters are strings
app.get('/:id', rateLimit({ ...limit, key: (req) => req.params.id?.nothing }))
// @ts-expect-error: the route has no such parameter
app.get('/:id', stored, (req, res) => res.send(req.params.other))
