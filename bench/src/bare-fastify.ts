// Baseline of the HTTP scenario: a Fastify route with the schemas of the service (passed as JSON) and no limiter.

import { fastify } from 'fastify'

const [, , schemas = '{}'] = process.argv
const { path, body, answer } = JSON.parse(schemas) as { path: string; body: object; answer: object }

// The schemas use a custom keyword and union types; otherwise Fastify has its default settings.
const app = fastify({ ajv: { customOptions: { keywords: ['x-fix'], allowUnionTypes: true } } })
app.post(path, { schema: { body, response: { 200: answer } } }, async () => {
  return { allowed: true, remaining: 9999, limit: 10_000, reset_at: 1_681_200_060 }
})
process.stdout.write(`${await app.listen({ host: '127.0.0.1', port: 0 })}\n`)
process.on('SIGTERM', () => process.exit(0))
