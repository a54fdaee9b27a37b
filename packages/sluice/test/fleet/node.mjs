// One node of a fleet, as a process of its own: checks one key as fast as it can and tells how often it was admitted.
// Runs on the built package, as a user's process would. Its clock is off by SKEW_MS, which must make no difference.

import { createLimiter } from 'sluice'
import { redisStore } from 'sluice/redis'

const { REDIS_URL, CLIENT, RULE, CHECKS, SKEW_MS, PREFIX } = process.env
const realNow = Date.now
Date.now = () => realNow() + Number(SKEW_MS)

async function newClient() {
  if (CLIENT === 'ioredis') return new (await import('ioredis')).Redis(REDIS_URL, { lazyConnect: true })
  return (await import('redis')).createClient({ url: REDIS_URL })
}

const store = redisStore(await newClient(), { prefix: PREFIX })
await store.ready()
const limiter = createLimiter({ rules: [JSON.parse(RULE)], store })
process.send('ready')
process.once('message', async () => {
  const checks = Array.from({ length: Number(CHECKS) }, () => limiter.check({ user: 'alice' }))
  const decisions = await Promise.all(checks)
  process.send({ admitted: decisions.filter(({ allowed }) => allowed).length })
  await limiter.close()
  process.disconnect()
})
