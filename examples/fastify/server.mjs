// A Fastify application in which each address may send 5 requests a minute, and each user may sign in once a minute.

import { fastify } from 'fastify'
import { rateLimit, rateLimitPlugin } from 'sluice/fastify'

const app = fastify()
await app.register(rateLimitPlugin, { limit: 5, window: '1m' })

app.get('/', () => 'hello\n')

const oneSignIn = rateLimit({ name: 'sign-in', limit: 1, window: '1m', key: (request) => request.headers['x-user'] })
app.post('/sign-in', { onRequest: oneSignIn }, () => 'welcome\n')

console.log(await app.listen({ port: Number(process.env.PORT ?? 3000), host: '127.0.0.1' }))
