// Requests that only the service can decide, through the limiter of a remote node: overrides, bypass tokens, rules that
// cannot be leased, their refunds and permits, and an outage. A token that ends.

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Limiter } from 'sluice'
import { createRemoteLimiter } from 'sluice/remote'
import { startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { BYPASS_PATH } from '../../src/http/routes/bypass-tokens.ts'
import { OVERRIDES_PATH } from '../../src/http/routes/overrides.ts'
import { sharedDataDir, temporaryFolder } from '../databases.ts'
import { type GrpcService, STACK_NAMES, serveGrpc } from '../grpc/stacks.ts'
import { ADMIN_TOKEN, clientOf, RULE_SET } from '../service.ts'

const RULES = `
- { rule_id: daily, limit: 500, window: 1d, scope: per_user, algorithm: fixed_window, endpoint_pattern: /daily }
- { rule_id: strict, endpoint_pattern: /strict, limit: 10, window: 1h, scope: per_user, consistency: strict,
    on_fail: closed }
- { rule_id: exports, limit: 1, window: 5m, scope: per_user, algorithm: concurrency, endpoint_pattern: /exports }
- { rule_id: hot, endpoint_pattern: /hot, limit: 1000, window: 1d, scope: global, algorithm: fixed_window, shards: 4,
    on_fail: closed }
`
const PATIENT = { storeDeadlineMs: 5000 }

async function remoteNode({ grpcUrl }: GrpcService, token?: string): Promise<Limiter> {
  const limiter = await createRemoteLimiter({ url: grpcUrl, deadlineMs: 5000, ...(token ? { token } : {}) })
  onTestFinished(() => limiter.close())
  return limiter
}

// One stack: the embedded database costs more than the rest.
test('overrides and bypass tokens apply, and their refunds and permits are those of the service', async () => {
  const service = await serveGrpc('lean', RULES, { ...PATIENT, rules: undefined, dataDir: await sharedDataDir() })
  const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/yaml' }
  const put = await clientOf(service.address).send(RULE_SET, { method: 'PUT', headers, body: `rules:${RULES}` })
  expect(put.status, JSON.stringify(put.body)).toBe(200)
  const node = await remoteNode(service)
  const { post, check } = clientOf(service.address)
  const override = { rule_id: 'daily', key: 'vip', limit: 3, expires_in: '1h', reason: 'test' }
  expect((await post(OVERRIDES_PATH, override, ADMIN_TOKEN)).status).toBe(201)
  const vip = { user: 'vip', path: '/daily' }
  await vi.waitFor(async () => expect(await node.peek(vip)).toMatchObject({ limit: 3, remaining: 3 }), 5000)
  expect(node.checkSync(vip)).toBeUndefined()
  const first = await node.check(vip)
  expect(first).toMatchObject({ allowed: true, limit: 3, remaining: 2 })
  for (const allowed of [true, true, false]) expect((await node.check(vip)).allowed).toBe(allowed)
  await node.give(first)
  expect(await node.peek(vip)).toMatchObject({ allowed: true, remaining: 1 })
  expect(await check({ client_id: 'vip', endpoint: '/daily', dry_run: true })).toMatchObject({ remaining: 1 })
  expect(() => node.receipt(first)).toThrow('OPTION_INVALID')
  await expect(node.renew(first)).rejects.toMatchObject({ code: 'OPTION_INVALID' })
  expect(() => node.decideAll([vip])).toThrow('OPTION_INVALID')
  expect((await node.explain(vip)).decision).toMatchObject({ limit: 3 })

  const exports = { user: 'vip', path: '/exports' }
  const permit = await node.check(exports)
  expect([permit.allowed, (await node.check(exports)).allowed]).toEqual([true, false])
  await node.release(permit)
  expect((await node.check(exports)).allowed).toBe(true)

  const bypass = { name: 'load test', expires_in: '1h', limit_per_minute: 100 }
  const { body } = await post(BYPASS_PATH, bypass, ADMIN_TOKEN)
  const exempt = { user: 'ann', path: '/strict', bypassToken: String(body.token) }
  for (let sent = 0; sent < 12; sent += 1) expect((await node.check(exempt)).allowed).toBe(true)
  expect(await node.check({ user: 'ann', path: '/strict' })).toMatchObject({ allowed: true, remaining: 9 })
})

describe.each(STACK_NAMES)('decisions of the service on the %s stack', (stack) => {
  test('a rule that cannot be leased is counted at the service; in an outage on_fail decides', async () => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const service = await serveGrpc(stack, RULES, { ...PATIENT, redis: redis.url })
    const node = await remoteNode(service)
    const { check } = clientOf(service.address)
    const hot = await node.check({ path: '/hot' })
    expect(hot).toMatchObject({ allowed: true, ruleId: 'hot', limit: 1000 })
    const read = async () => (await check({ endpoint: '/hot', dry_run: true })).remaining
    expect(await read()).toBe(999)
    await node.give(hot)
    expect(await read()).toBe(1000)
    for (let sent = 0; sent < 10; sent += 1) await node.check({ user: 'a', path: '/daily' })
    await service.close()
    expect(await node.check({ user: 'a', path: '/daily' })).toMatchObject({ allowed: true, source: 'lease' })
    // More than it takes to open the circuit breaker.
    for (let sent = 0; sent < 5; sent += 1) {
      expect(await node.check({ path: '/hot' })).toMatchObject({ allowed: false, source: 'policy' })
      expect(await node.peek({ path: '/hot' })).toMatchObject({ allowed: false, source: 'policy' })
      expect(await node.check({ user: 'new', path: '/daily' })).toMatchObject({ allowed: true, source: 'policy' })
    }
    await expect(node.give(hot)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
  })

  test('a token that is revoked ends the stream of rules, and on_fail decides', async () => {
    const tokensFile = join(temporaryFolder(), 'tokens.yaml')
    const tokens = (...names: string[]) =>
      writeFileSync(
        tokensFile,
        names.map((name) => `- { name: ${name}, role: check, token: ${name}-0123456789abcdef }\n`).join(''),
      )
    tokens('gateway', 'other')
    const service = await serveGrpc(stack, RULES, { ...PATIENT, tokensFile })
    const warnings: string[] = []
    const listen = (warning: Error & { code?: string }) => warnings.push(warning.code ?? '')
    process.on('warning', listen)
    onTestFinished(() => void process.off('warning', listen))
    const node = await remoteNode(service, 'gateway-0123456789abcdef')
    expect(await node.check({ user: 'a', path: '/strict' })).toMatchObject({ allowed: true, source: 'store' })
    tokens('other')
    const isRefused = async () => {
      const decision = await node.check({ user: 'a', path: '/strict' })
      expect(decision).toMatchObject({ allowed: false, source: 'policy' })
    }
    await vi.waitFor(isRefused, 5000)
    await vi.waitFor(() => expect(warnings).toContain('SLUICE_REMOTE_TOKEN'), 5000)
    const ended = /sluice_grpc_calls_total\{method="sluice.v1.Leases\/Watch",status="unauthenticated"\} \d/
    await vi.waitFor(async () => expect(await service.metrics.scrape()).toMatch(ended), 5000)
    tokens('gateway')
    await vi.waitFor(
      async () => expect((await node.check({ user: 'b', path: '/strict' })).source).toBe('store'),
      10_000,
    )
  })
})
