import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import express, { type Request } from 'express'
import { Redis } from 'ioredis'
import { createLimiter } from 'sluice'
import { rateLimit } from 'sluice/express'
import { redisStore } from 'sluice/redis'
import { startRedis } from 'sluice/testing'
import { expect, onTestFinished, test } from 'vitest'
import { openGateway } from './setup.ts'

const RULES = [
  { rule_id: 'address', enforce_at: 'edge', limit: 10, window: '1d', scope: 'per_ip', algorithm: 'fixed_window' },
  { rule_id: 'user', enforce_at: 'service', limit: 5, window: '1d', scope: 'per_user', algorithm: 'fixed_window' },
]

/** `"user";r=2;t=3, "address";r=7;t=3` → what remains of each. */
function remainingIn(header: string | null): Record<string, number> {
  const items = [...(header ?? '').matchAll(/"(\w+)";r=(\d+)/g)]
  return Object.fromEntries(items.map(([, rule, remaining]) => [rule, Number(remaining)]))
}

test('one rule set at both layers, on one Redis: each rule is counted once, where it belongs', async () => {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  const store = redisStore(new Redis(redis.url, { lazyConnect: true }), { deadlineMs: 5000 })
  await store.ready()
  const limiter = createLimiter({ rules: RULES, store, layer: 'service' })
  onTestFinished(() => limiter.close())
  const app = express()
  const subject = (req: Request) => ({ user: req.get('x-user') })
  app.use(rateLimit({ limiter, subject, trustProxy: ['127.0.0.1'] }))
  app.get('/', (_req, res) => void res.send('hello'))
  const service = app.listen(0, '127.0.0.1')
  onTestFinished(() => void service.close())
  await once(service, 'listening')
  const upstream = new URL(`http://127.0.0.1:${(service.address() as AddressInfo).port}`)
  const { address } = await openGateway(RULES, { upstream, redis: redis.url, storeDeadlineMs: 5000 })

  const ask = async (user: string) => {
    const answer = await fetch(address, { headers: { 'x-user': user } })
    const { rule_id: refusedBy } = answer.ok ? {} : ((await answer.json()) as { rule_id?: string })
    return { status: answer.status, left: remainingIn(answer.headers.get('ratelimit')), refusedBy }
  }
  for (const [address, user] of [[9, 4] as const, [8, 3] as const, [7, 2] as const])
    expect(await ask('alice')).toMatchObject({ status: 200, left: { address, user } })
  expect(await ask('bob')).toMatchObject({ status: 200, left: { address: 6, user: 4 } })
  for (const address of [5, 4]) expect(await ask('alice')).toMatchObject({ status: 200, left: { address } })
  expect(await ask('alice'), 'the edge lets it through').toMatchObject({ status: 429, refusedBy: 'user' })
  for (const _ of [1, 2, 3]) expect((await ask('bob')).status).toBe(200)
  expect(await ask('bob'), 'the service never sees it').toMatchObject({ status: 429, refusedBy: 'address' })
})
