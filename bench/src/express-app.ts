// Application of the middleware scenarios: one Express route behind the middleware named by the argument, configured as
// documented, with clients identified by a header. `*-redis` takes the port of a Redis as second argument.

import type { AddressInfo } from 'node:net'
import express, { type Request, type RequestHandler } from 'express'
import { rateLimit as expressRateLimit, type Options } from 'express-rate-limit'
import { Redis } from 'ioredis'
import { type RedisReply, RedisStore } from 'rate-limit-redis'
import { rateLimit } from 'sluice/express'
import { redisStore } from 'sluice/redis'

/** Never reached, for every contender alike. */
const LIMIT = 1_000_000
const WINDOW_MS = 86_400_000 // one day, as in `ours`

const key = (req: Request) => String(req.headers['x-user'])
const ours = { limit: LIMIT, window: '1d', key }
const legacy = { style: 'legacy' } as const
const theirs: Partial<Options> = { limit: LIMIT, windowMs: WINDOW_MS, keyGenerator: key }

const MIDDLEWARES: Readonly<Record<string, (redis: () => Redis) => RequestHandler[] | Promise<RequestHandler[]>>> = {
  bare: () => [],
  sluice: () => [rateLimit<Request>(ours)],
  'sluice-legacy': () => [rateLimit<Request>({ ...ours, headers: legacy })],
  'express-rate-limit': () => [expressRateLimit(theirs)],
  'sluice-redis': async (redis) => {
    const store = redisStore(redis(), { deadlineMs: 1000 })
    await store.ready()
    return [rateLimit<Request>({ ...ours, headers: legacy, store })]
  },
  'express-rate-limit-redis': (redis) => {
    const client = redis()
    const sendCommand = (...[command = '', ...args]: string[]) => client.call(command, ...args) as Promise<RedisReply>
    return [expressRateLimit({ ...theirs, store: new RedisStore({ sendCommand }) })]
  },
}

const [, , name = '', redisPort] = process.argv
const make = MIDDLEWARES[name]
if (make === undefined) throw new Error(`unknown middleware "${name}": use ${Object.keys(MIDDLEWARES).join(', ')}`)
const middlewares = await make(() => new Redis(Number(redisPort), { lazyConnect: name === 'sluice-redis' }))

const app = express()
app.use(...middlewares, (_req, _res, next) => next())
app.get('/api/v1/messages', (_req, res) => void res.send('hello'))
const server = app.listen(0, '127.0.0.1', () => {
  process.stdout.write(`http://127.0.0.1:${(server.address() as AddressInfo).port}\n`)
})
process.on('SIGTERM', () => process.exit(0))
