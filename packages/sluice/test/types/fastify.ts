// Compiled, never run: functions of the options get the request of Fastify without an annotation, with the types of
// their route if it has any.

import { fastify } from 'fastify'
import { createLimiter } from 'sluice'
import { rateLimit, rateLimitPlugin } from 'sluice/fastify'

type Route = { Params: { id: string }; Body: { user: string } }

const limit = { limit: 100, window: '1m' }
const limiter = createLimiter({ rules: [] })
const app = fastify()
const secure = fastify({ http2: true, https: {} })

app.register(rateLimitPlugin, { ...limit, key: (request) => request.ip })
app.register(rateLimitPlugin, { limiter, subject: async ({ hostname }) => ({ tenant: hostname }) })
app.addHook('onRequest', rateLimit({ ...limit, key: (request) => request.routeOptions.url }))
app.get('/', { onRequest: rateLimit({ ...limit, key: (request) => request.ip }) }, (request) => {
  return `${request.rateLimit?.remaining} left`
})
app.get<Route>('/:id', { preHandler: rateLimit({ ...limit, key: (request) => request.params.id }) }, (request) => {
  return request.params.id
})
app.post<Route>('/:id', { preHandler: [rateLimit({ ...limit, key: (request) => request.body.user })] }, () => 'ok')

const stored = rateLimit({ ...limit, key: (request) => request.headers.authorization })
app.get<Route>('/stored/:id', { onRequest: stored, preHandler: [stored] }, (request) => request.params.id)
secure.register(rateLimitPlugin, limit)
secure.addHook('onRequest', stored)

// @ts-expect-error: requests have no such property
app.addHook('onRequest', rateLimit({ ...limit, key: (request) => request.nothing }))
// @ts-expect-error: the route has no such parameter
app.get<Route>('/:id', { preHandler: rateLimit({ ...limit, key: (request) => request.params.other }) }, () => 'ok')
