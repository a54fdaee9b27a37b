// One node of a fleet, as a process of its own: for each rule it is sent, it checks one key as fast as it can and tells
// how often it was admitted. Runs on the built package, as a user's process would. Its clock is off by SKEW_MS, which
// must make no difference.

import { createLimiter } from 'sluice'
import { redisStore } from 'sluice/redis'

const { REDIS_URL, CLIENT, SKEW_MS } = process.env
const realNow = Date.now
Date.now = () => realNow() + Number(SKEW_MS)

const client =
  CLIENT === 'ioredis'
    ? new (await import('ioredis')).Redis(REDIS_URL, { lazyConnect: true })
    : (await import('redis')).createClient({ url: REDIS_URL })
// Strict: every check asks Redis, however long that takes.
const store = redisStore(client, { leases: false, deadlineMs: 0 })
await store.ready()

process.on('message', async ({ rule, checks }) => {
  if (rule === undefined) return store.close().then(() => process.disconnect())
  const limiter = createLimiter({ rules: [rule], store })
  const decisions = await Promise.all(Array.from({ length: checks }, () => limiter.check({ user: 'alice' })))
  process.send(decisions.filter(({ allowed }) => allowed).length)
})
process.send('ready')
