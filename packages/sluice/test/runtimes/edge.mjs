// A program for runtimes without modules of Node.js: it loads every entry for them, creates middlewares and limiters
// while the module loads, as applications do, and uses them in `test`, which throws unless each of them limits.

import { Hono } from 'hono'
import { rateLimiter } from 'hono-rate-limiter'
import { createLimiter, memoryStore } from 'sluice'
import * as algorithms from 'sluice/algorithms'
import { createBypassToken, hashBypassToken, verifyBypass } from 'sluice/bypass'
import { politeFetch } from 'sluice/client'
import { rateLimit } from 'sluice/fetch'
import { rateLimit as honoLimit } from 'sluice/hono'
import { SluiceStore } from 'sluice/hono-rate-limiter'
import * as http from 'sluice/http'
import { redisStore } from 'sluice/redis'
import * as replay from 'sluice/replay'

const LIMIT = { limit: 2, window: '1h' }
const ALGORITHMS = ['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log', 'concurrency']
const HASH = '2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b' // of "secret"

const ip = (request) => request.headers.get('cf-connecting-ip')
const short = rateLimit({ ...LIMIT, ip })(() => new Response('hello'))
const app = new Hono().use(honoLimit({ ...LIMIT, ip: (c) => ip(c.req.raw) })).get('/', (c) => c.text('hello'))
const dropIn = { windowMs: 3_600_000, limit: 2, keyGenerator: (c) => ip(c.req.raw), store: new SluiceStore() }
const other = new Hono().use(rateLimiter(dropIn)).get('/', (c) => c.text('hello'))
const rules = ALGORITHMS.map((algorithm) => ({ rule_id: algorithm, algorithm, scope: 'per_ip', ...LIMIT }))
const bypass = verifyBypass([{ id: 'ci', hash: HASH, expiresAtMs: null, limitPerMinute: 1000 }])
const limiter = createLimiter({ rules, store: memoryStore({ nodes: 2 }), bypass })
const withRules = rateLimit({ limiter, ip })(() => new Response('hello'))
const untrusted = rateLimit(LIMIT)(() => new Response('hello'))
limiter.changeOverrides({
  set: [{ id: 'o', ruleId: null, fact: 'ip', owner: '192.0.2.9', effect: { ban: 429 }, expiresAtMs: null }],
})
const loaded = [algorithms, http, politeFetch(), replay, redisStore]

export async function test() {
  for (const handler of [short, app.fetch, other.fetch, withRules, untrusted]) {
    const statuses = []
    for (let request = 0; request < 3; request += 1) {
      const response = await handler(requestWith({ 'cf-connecting-ip': '192.0.2.1', 'x-forwarded-for': '192.0.2.2' }))
      await response.text()
      statuses.push(response.status)
    }
    expectEqual(statuses, [200, 200, 429])
  }
  expectEqual(hashBypassToken(createBypassToken().token).length, HASH.length)
  for (let request = 0; request < 3; request += 1) {
    expectEqual((await withRules(requestWith({ 'x-sluice-bypass': 'secret' }))).status, 200)
  }
  expectEqual(loaded.includes(undefined), false)
}

function requestWith(headers) {
  return new Request('https://example.org/', { headers })
}

function expectEqual(found, wanted) {
  if (String(found) !== String(wanted)) throw new Error(`${found} instead of ${wanted}`)
}
