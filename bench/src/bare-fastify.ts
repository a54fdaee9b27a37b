// The floor of the HTTP scenario: a Fastify route with the service's own schemas (handed in as JSON), deciding nothing.

import { fastify } from 'fastify'

const [, , schemas = '{}'] = process.argv
const { path, body, answer } = JSON.parse(schemas) as { path: string; body: object; answer: object }

// The schemas have one keyword of our own and types that are unions; everything else is as Fastify comes.
const app = fastify({ ajv: { customOptions: { keywords: ['x-fix'], allowUnionTypes: true } } })
app.post(path, { schema: { body, response: { 200: answer } } }, async () => {
  return { allowed: true, remaining: 9999, limit: 10_000, reset_at: 1_681_200_060 }
})
process.stdout.write(`${await app.listen({ host: '127.0.0.1', port: 0 })}\n`)
process.on('SIGTERM', () => process.exit(0))
