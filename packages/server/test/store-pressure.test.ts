// A store without room degrades the node and is logged with the fix; checks continue.

import { Redis } from 'ioredis'
import { startRedis } from 'sluice/testing'
import { expect, onTestFinished, test } from 'vitest'
import { REFUND, serveFile } from './service.ts'

const RULES = '- { rule_id: r, limit: 5, window: 1h, scope: per_user, algorithm: fixed_window, consistency: strict }'
const PATIENTLY = { timeout: 20_000, interval: 200 }

async function serveOn(redisArgs: readonly string[]) {
  const redis = await startRedis(redisArgs)
  const admin = new Redis(redis.port, '127.0.0.1')
  onTestFinished(async () => {
    admin.disconnect()
    await redis.stop()
  })
  return { admin, ...(await serveFile(RULES, { redis: redis.url, storeDeadlineMs: 5000 })) }
}

test('Redis is full: known clients stay limited, on_fail applies to new ones, and the node is degraded', async () => {
  const { admin, check, get, post, logged } = await serveOn(['--maxmemory-policy', 'noeviction'])
  for (let times = 0; times < 5; times += 1) await check({ client_id: 'old', request_id: `request-${times}` })
  await admin.config('SET', 'maxmemory', '1')
  expect(await check({ client_id: 'new' })).toMatchObject({ allowed: true })
  expect(await check({ client_id: 'old' })).toMatchObject({ allowed: false })
  expect((await get('/readyz')).body).toMatchObject({ status: 'degraded' })
  expect(JSON.stringify((await get('/readyz')).body)).toContain('STORE_FULL')
  expect(logged.filter(({ event }) => event === 'store_full')).toHaveLength(1)
  const { status, body } = await post(REFUND, { request_id: 'request-4' })
  expect([status, body.code]).toEqual([503, 'STORE_FULL'])
  expect(body.detail).toContain('cannot remember the refund: no units were given back. Retry')
  await admin.config('SET', 'maxmemory', '0')
  await expect.poll(async () => (await get('/readyz')).body.status, PATIENTLY).toBe('ready')
  await expect.poll(() => logged.some(({ event }) => event === 'store_full_ended'), PATIENTLY).toBe(true)
  expect(await post(REFUND, { request_id: 'request-4' })).toMatchObject({ status: 200 })
})

test('Redis evicts live buckets: the node is degraded, and the log names the fix', async () => {
  const { admin, check, get, logged } = await serveOn(['--maxmemory-policy', 'allkeys-lru'])
  await check({ client_id: 'old' })
  await admin.config('SET', 'maxmemory', '3mb')
  let filler = 0
  const evict = async () => {
    const fillers = Array.from({ length: 2000 }, () => admin.set(`filler ${filler++}`, 'x'.repeat(1000)))
    await Promise.all(fillers)
    return (await get('/readyz')).body
  }
  await expect.poll(evict, PATIENTLY).toMatchObject({ status: 'degraded' })
  expect(logged.find(({ event }) => event === 'store_evicting')?.msg).toContain('maxmemory-policy noeviction')
})

test('the key cap of the memory store is reached: the node is degraded', async () => {
  const { check, get, logged } = await serveFile(RULES, { maxKeys: 1024 })
  let client = 0
  const flood = async () => {
    for (let times = 0; times < 2000; times += 1) await check({ client_id: `invented ${client++}` })
    return (await get('/readyz')).body
  }
  await expect.poll(flood, PATIENTLY).toMatchObject({ status: 'degraded' })
  expect(logged.map(({ event }) => event)).toContain('store_capped')
})
