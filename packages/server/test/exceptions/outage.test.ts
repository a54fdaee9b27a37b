// Bypass tokens while Redis is down: their own limit cannot be counted, so the rules apply, by their `on_fail`.

import { startRedis } from 'sluice/testing'
import { expect, onTestFinished, test, vi } from 'vitest'
import { BYPASS_PATH } from '../../src/http/routes/bypass-tokens.ts'
import { usePostgres } from '../databases.ts'
import { startNode } from '../rollouts/fleet.ts'
import { RULE_SET } from '../service.ts'

const postgres = usePostgres()

test('a bypass token has no effect while Redis is down: each rule follows its on_fail', async () => {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  const node = await startNode({ database: postgres().createDatabase(), redis: redis.url, storeDeadlineMs: 500 })
  const ruleOf = (on_fail: string) => ({
    ...{ rule_id: on_fail, endpoint_pattern: `/${on_fail}`, scope: 'per_user', limit: 1, window: '1d', on_fail },
    consistency: 'strict',
  })
  await node.send(RULE_SET, 'PUT', { rules: ['open', 'closed', 'local'].map(ruleOf) })
  const { body } = await node.post(BYPASS_PATH, { name: 'x', expires_in: '1h', limit_per_minute: 1000 })
  const bypassToken = String(body.token)
  const admitted = async (path: string, more: object) => {
    let count = 0
    for (let sent = 0; sent < 3; sent += 1) if ((await node.check({ user: 'ann', path, ...more })).allowed) count += 1
    return count
  }
  for (const path of ['/open', '/closed', '/local']) expect(await admitted(path, { bypassToken })).toBe(3)
  await redis.stop()
  await vi.waitFor(async () => expect(await admitted('/closed', {})).toBe(0), 10_000)
  expect(await admitted('/closed', { bypassToken })).toBe(0)
  expect(await admitted('/open', { bypassToken })).toBe(3)
  expect(await admitted('/local', { bypassToken })).toBe(1) // the limit, on the only node
})
