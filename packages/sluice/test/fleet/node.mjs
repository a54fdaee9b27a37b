// A node of a fleet as a process: for each rule it receives, checks one key as fast as it can and sends the number of
// admissions. Runs on the built package. Its clock is skewed by SKEW_MS, which must have no effect.

import { createLimiter } from 'sluice'
import { redisStore } from 'sluice/redis'

/** Small enough that Redis answers within 2 s on a busy machine: it scans all permits of the key for each check. */
const IN_FLIGHT = 30

const { REDIS_URL, CLIENT, SKEW_MS } = process.env
const realNow = Date.now
Date.now = () => realNow() + Number(SKEW_MS)

const client =
  CLIENT === 'ioredis'
    ? new (await import('ioredis')).Redis(REDIS_URL, { lazyConnect: true })
    : (await import('redis')).createClient({ url: REDIS_URL })
// Every check is a request to Redis, without a deadline.
const store = redisStore(client, { leases: false, deadlineMs: 0 })
await store.ready()

process.on('message', async ({ rule, checks }) => {
  if (rule === undefined) return store.close().then(() => process.disconnect())
  const limiter = createLimiter({ rules: [rule], store })
  let admitted = 0
  for (let left = checks; left > 0; left -= IN_FLIGHT) {
    const count = Math.min(IN_FLIGHT, left)
    const decisions = await Promise.all(Array.from({ length: count }, () => limiter.check({ user: 'alice' })))
    admitted += decisions.filter(({ allowed }) => allowed).length
  }
  process.send(admitted)
})
process.send('ready')
