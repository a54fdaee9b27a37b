// Headers of responses with two limiters: express-rate-limit in each of its formats and our middleware in each style,
// in both orders. Two parsers check that clients can read all of them.

import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import express, { type RequestHandler } from 'express'
import { rateLimit as otherLimit } from 'express-rate-limit'
import { rateLimit } from 'sluice/express'
import { parseDictionary, parseList } from 'structured-headers'
import { describe, expect, test } from 'vitest'
import { readLimits } from '../../src/client/limit-headers.ts'
import { wallClock } from '../../src/clock.ts'
import type { HeaderStyle } from '../../src/http/headers.ts'

const OTHERS = ['draft-6', 'draft-7', 'draft-8', false] as const
const STYLES: readonly (readonly HeaderStyle[])[] = [['draft-11'], ['draft-6'], ['legacy'], ['legacy', 'draft-11']]

const PAIRS = OTHERS.flatMap((standardHeaders) =>
  [true, false].flatMap((legacyHeaders) => STYLES.map((style) => ({ standardHeaders, legacyHeaders, style }))),
).filter(({ standardHeaders, legacyHeaders }) => standardHeaders !== false || legacyHeaders)

type Pair = (typeof PAIRS)[number]

function theirs(limit: number, { standardHeaders, legacyHeaders }: Omit<Pair, 'style'>): RequestHandler {
  return otherLimit({ windowMs: 60_000, limit, standardHeaders, legacyHeaders, validate: false })
}

function ours(limit: number, style: Pair['style']): RequestHandler {
  return rateLimit({ limit, window: '12s', headers: { style } })
}

/** Headers of the last response. */
async function headersBehind(limiters: readonly RequestHandler[], requests = 1): Promise<Headers> {
  const app = express()
  app.use(...limiters)
  app.get('/', (_req, res) => void res.end())
  const server = createServer(app).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const send = () => fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`)
  let { headers } = await send()
  for (let sent = 1; sent < requests; sent += 1) headers = (await send()).headers
  server.closeAllConnections()
  await new Promise((closed) => server.close(closed))
  return headers
}

/** The numbers that a client reads from the headers; another parser checks the syntax. */
function limitsIn(headers: Headers) {
  for (const name of ['ratelimit', 'ratelimit-policy']) {
    const field = headers.get(name)
    if (field !== null)
      expect(() => (field.includes('limit=') ? parseDictionary(field) : parseList(field))).not.toThrow()
  }
  const { limits } = readLimits(headers, wallClock.nowUs() / 1000)
  return limits.map(({ quota, remaining, windowMs }) => ({ quota, remaining, windowMs }))
}

describe.each(PAIRS)('after $standardHeaders, legacy $legacyHeaders, in the style $style', (pair) => {
  test('a client can read the numbers of a limit', async () => {
    const limits = limitsIn(await headersBehind([theirs(9, pair), ours(5, pair.style)]))
    expect(limits.length).toBeGreaterThan(0)
    for (const { quota, remaining } of limits) expect([9, 5]).toContain(quota ?? remaining + 1)
  })

  test('a client can read them if the other limiter comes last', async () => {
    const limits = limitsIn(await headersBehind([ours(5, pair.style), theirs(9, pair)]))
    expect(limits.length).toBeGreaterThan(0)
    for (const { remaining } of limits) expect([8, 4]).toContain(remaining)
  })

  test('a client can read a refusal', async () => {
    const headers = await headersBehind([theirs(9, pair), ours(1, pair.style)], 2)
    const limits = limitsIn(headers)
    expect(limits.length).toBeGreaterThan(0)
    if (pair.style.includes('draft-11')) expect(limits).toContainEqual({ quota: 1, remaining: 0, windowMs: 12_000 })
    expect(headers.get('retry-after')).not.toBeNull()
  })
})

describe('after draft-7, whose dictionary cannot be joined with a list', () => {
  const draft7 = { standardHeaders: 'draft-7', legacyHeaders: false } as const

  test.each([
    ['theirs', 3, 100, { quota: 3, remaining: 2, windowMs: 60_000 }],
    ['ours', 100, 3, { quota: 3, remaining: 2, windowMs: 12_000 }],
  ])('the scarcer limit is reported: %s', async (_whose, their, our, expected) => {
    expect(limitsIn(await headersBehind([theirs(their, draft7), ours(our, ['draft-11'])]))).toEqual([expected])
  })
})

test('lists of named limits are joined: draft-8 and draft-11', async () => {
  const draft8 = { standardHeaders: 'draft-8', legacyHeaders: false } as const
  const headers = await headersBehind([theirs(9, draft8), ours(5, ['draft-11'])])
  expect(limitsIn(headers)).toEqual([
    { quota: 9, remaining: 8, windowMs: 60_000 },
    { quota: 5, remaining: 4, windowMs: 12_000 },
  ])
})
