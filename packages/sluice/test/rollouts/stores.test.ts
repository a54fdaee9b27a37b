// Rollouts on Redis with all wrappers, and on a Cluster: pairs are decisions of the store, other keys keep their
// leases, and every store agrees with the memory store.

import { Cluster, Redis } from 'ioredis'
import { createLimiter, type Decision, type Limiter, memoryStore, pairsOf, type Store } from 'sluice'
import { redisStore } from 'sluice/redis'
import {
  fakeClock,
  type RedisCluster,
  type RedisProcess,
  seededRandom,
  startRedis,
  startRedisCluster,
} from 'sluice/testing'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import type { Fields } from '../limiter-fixture.ts'
import { BARE } from '../support/bare.ts'
import { ALICE, denials, staged, times, USER } from './fixture.ts'

const HOUR = { ...USER, window_seconds: 3600 }

let redis: RedisProcess
let cluster: RedisCluster
let prefixes = 0
beforeAll(async () => {
  ;[redis, cluster] = await Promise.all([startRedis(), startRedisCluster()])
})
afterAll(() => Promise.all([redis.stop(), cluster.stop()]))

function onRedis(rules: readonly Fields[], prefix = `rollouts-${prefixes++}`) {
  const store = redisStore(new Redis(redis.url, { lazyConnect: true }), { prefix, deadlineMs: 5000 })
  const limiter = createLimiter({ rules, store })
  onTestFinished(() => limiter.close())
  return { store, limiter, prefix }
}

async function checked(limiter: Limiter, subject: object, count: number): Promise<Decision[]> {
  const decisions: Decision[] = []
  for (const _ of times(count, () => 0)) decisions.push(await limiter.check(subject))
  return decisions
}

test.each(['leased', 'approximate'])('%s: paired keys ask the store, the others do not', async (consistency) => {
  const rule = { ...HOUR, consistency, limit: 2000 }
  const { limiter } = onRedis([rule])
  await limiter.setRollouts([staged({ candidate: { ...rule, limit: 1000 }, share: 0.5, pairShare: 0.2 })])
  const sources = { paired: new Set<string>(), unpaired: new Set<string>() }
  for (const user of times(30, (index) => `user-${index}`)) {
    for (const decision of await checked(limiter, { user }, 20)) {
      sources[pairsOf(decision).length === 1 ? 'paired' : 'unpaired'].add(decision.source)
    }
  }
  expect([...sources.paired]).toEqual(['store'])
  expect([...sources.unpaired]).toContain(consistency === 'leased' ? 'lease' : 'local')
})

test('a known refusal does not end pairs: the other version is charged on every request', async () => {
  const { limiter } = onRedis([{ ...HOUR, limit: 20 }])
  await limiter.setRollouts([staged({ candidate: { ...HOUR, limit: 5 }, share: 1 })])
  const decisions = await checked(limiter, ALICE, 25)
  expect(decisions.map(({ allowed }) => allowed)).toEqual(times(25, (index) => index < 5))
  expect(decisions.map(denials)).toEqual(times(25, (index) => [index >= 20, index >= 5]))
  expect(new Set(decisions.map(({ source }) => source))).toEqual(new Set(['store']))
})

test('units of a lease are not lost when a key becomes paired', async () => {
  const rule = { ...HOUR, algorithm: 'fixed_window', consistency: 'leased', limit: 1000 }
  const { limiter, prefix } = onRedis([rule])
  await checked(limiter, ALICE, 50)
  await limiter.setRollouts([staged({ candidate: { ...rule, limit: 900 }, share: 0 })])
  const decisions = await checked(limiter, ALICE, 50)
  expect(decisions.every((decision) => decision.allowed && pairsOf(decision).length === 1)).toBe(true)
  await limiter.close() // returns leased units
  const { limiter: reader } = onRedis([{ ...rule, consistency: 'strict' }], prefix)
  expect((await reader.peek(ALICE)).remaining).toBe(900)
})

test('a rule with a lease goes on using it next to a pair', async () => {
  const other = { rule_id: 'b', scope: 'per_ip', limit: 1000, window_seconds: 3600, consistency: 'leased' }
  const { limiter, store } = onRedis([{ ...HOUR, limit: 1000 }, other])
  await limiter.setRollouts([staged({ candidate: { ...HOUR, limit: 900 }, share: 0 })])
  const decisions = await checked(limiter, { ...ALICE, ip: '192.0.2.1' }, 50)
  expect(decisions.every((decision) => decision.allowed && pairsOf(decision).length === 1)).toBe(true)
  expect(store.stats?.().leases).toBe(1)
})

test('answers by policy are not pairs', async () => {
  for (const on_fail of ['open', 'closed', 'local']) {
    const { limiter, store } = onRedis([{ ...HOUR, limit: 20, on_fail }])
    await limiter.setRollouts([staged({ candidate: { ...HOUR, limit: 5, on_fail }, share: 0 })])
    expect(denials(await limiter.check(ALICE))).toEqual([false, false])
    store.drill(60_000)
    const decision = await limiter.check(ALICE)
    expect([on_fail, decision.allowed, pairsOf(decision)]).toEqual([on_fail, on_fail !== 'closed', []])
  }
})

test('a Cluster, Redis and the memory store agree about every pair', async () => {
  const rules = [
    { ...HOUR, limit: 12 },
    { ...HOUR, rule_id: 'log', algorithm: 'sliding_window_log', limit: 30 },
    { ...HOUR, rule_id: 'shared', scope: 'per_tenant', limit: 60 },
  ]
  const rollouts = [
    staged({ candidate: { ...HOUR, limit: 9, algorithm: 'sliding_window' }, share: 0.5, pairShare: 0.8 }),
    staged({ candidate: { ...HOUR, rule_id: 'log', algorithm: 'sliding_window_log', limit: 8 }, share: 0.3 }, 'log'),
  ]
  const clock = fakeClock()
  const client = new Cluster([...cluster.addresses], { lazyConnect: true })
  const stores: Store[] = [
    memoryStore({ clock }),
    redisStore(new Redis(redis.url, { lazyConnect: true }), { ...BARE, clock, prefix: 'agree' }),
    redisStore(client, { ...BARE, clock, prefix: 'agree' }),
  ]
  const results: unknown[] = []
  for (const store of stores) {
    const limiter = createLimiter({ rules, store, clock })
    await limiter.setRollouts(rollouts)
    const random = seededRandom(4)
    const answers: unknown[] = []
    for (const _ of times(300, () => 0)) {
      const decision = await limiter.check({
        user: `user-${random.between(0, 9)}`,
        tenant: `t-${random.between(0, 1)}`,
      })
      // Other slots are not queried after a refusal, so those pairs are unknown there.
      answers.push(
        decision.allowed,
        pairsOf(decision).filter(() => decision.allowed),
      )
    }
    await limiter.close()
    results.push(answers)
  }
  expect(results[1]).toEqual(results[0])
  expect(results[2]).toEqual(results[0])
})

test('over two slots, a counterfactual charge is rolled back only if another rule refused', async () => {
  const client = new Cluster([...cluster.addresses], { lazyConnect: true })
  const store = redisStore(client, { prefix: `rollouts-${prefixes++}`, leases: false, deadlineMs: 5000 })
  const shared = { rule_id: 'shared', scope: 'per_tenant', limit: 3, window_seconds: 3600, consistency: 'strict' }
  const limiter = createLimiter({ rules: [{ ...HOUR, limit: 2, consistency: 'strict' }, shared], store })
  onTestFinished(() => limiter.close())
  await limiter.setRollouts([staged({ candidate: { ...HOUR, limit: 7, consistency: 'strict' }, share: 0 })])
  const subject = { ...ALICE, tenant: 'acme' }
  expect((await checked(limiter, subject, 4)).map(denials)).toEqual([
    [false, false],
    [false, false],
    [true, false], // refused by its own rule: the candidate counts it
    [true, false],
  ])
  await limiter.check({ user: 'bob', tenant: 'acme' }) // the last unit of the tenant
  const carol = { user: 'carol', tenant: 'acme' }
  expect((await checked(limiter, carol, 9)).map(denials)).toEqual(times(9, () => [true, true]))
  await expect.poll(async () => (await limiter.peek({ user: 'carol' })).remaining).toBe(2)
  expect((await checked(limiter, { user: 'carol' }, 3)).map(denials)).toEqual([
    [false, false],
    [false, false],
    [true, false],
  ])
})
