// A Fastify application with a limit of 5 requests per minute and client address, and one sign-in per minute and user.

import { fastify } from 'fastify'
import { rateLimit, rateLimitPlugin } from 'sluice/fastify'

const app = fastify()
await app.register(rateLimitPlugin, { limit: 5, window: '1m' })

app.get('/', () => 'hello\n')

const oneSignIn = rateLimit({ name: 'sign-in', limit: 1, window: '1m', key: (request) => request.headers['x-user'] })
app.post('/sign-in', { onRequest: oneSignIn }, () => 'welcome\n')

console.log(await app.listen({ port: Number(process.env.PORT ?? 3000), host: '127.0.0.1' }))
