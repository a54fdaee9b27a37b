// Receipts, permits and decisions are shared: with `--workers`, with several nodes and after a restart, any process
// that shares the counters can refund, release and explain. Each call uses its own connection.

import { type ClientRequest, request } from 'node:http'
import { Redis } from 'ioredis'
import { startPostgres, startRedis, startRedisCluster } from 'sluice/testing'
import { beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { buildOnce, type Running, start } from './process.ts'
import { CHECK, REFUND, ruleFile } from './service.ts'

beforeAll(buildOnce, 300_000)

const RULES = `
- { rule_id: window, limit: 1000, window: 1h, scope: per_user, algorithm: fixed_window, consistency: strict }
- { rule_id: bucket, limit: 1000, window: 30d, scope: global }
- { rule_id: exports, limit: 2, window: 5m, scope: per_user, algorithm: concurrency, endpoint_pattern: /exports }
`
/** The machine may be busy. */
const PATIENT = ['--store-deadline-ms', '5000', '--drain-ms', '0', '--admin-token', 'token-of-the-admins']

type Answered = { readonly status: number; readonly body: Record<string, unknown> }

/** Uses its own connection: the kernel chooses the worker. */
function call(address: string, method: string, path: string, body?: unknown, token?: string): Promise<Answered> {
  const headers = {
    connection: 'close',
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
  }
  return new Promise((resolve, reject) => {
    const sent: ClientRequest = request(address + path, { method, headers, agent: false }, (response) => {
      let text = ''
      response.on('data', (chunk) => {
        text += chunk
      })
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body: JSON.parse(text || '{}') }))
    })
    sent.on('error', reject)
    sent.end(body === undefined ? undefined : JSON.stringify(body))
  })
}

const post = (address: string, path: string, body: unknown) => call(address, 'POST', path, body)

async function freshRedis(): Promise<string> {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  return redis.url
}

async function workersReady(service: Running, count: number): Promise<void> {
  const listening = () =>
    service
      .output()
      .stderr.split('\n')
      .filter((line) => line.includes('"listening"')).length
  await vi.waitFor(() => expect(listening()).toBeGreaterThanOrEqual(count), { timeout: 20_000 })
}

/** Workers take turns: after one extra call, each call reaches a different worker than before. */
async function anotherWorker(address: string): Promise<void> {
  await post(address, CHECK, { client_id: 'other', dry_run: true })
}

/** Checks through one address in turn, refunds through the others. */
async function checksAndRefunds(checkAt: readonly string[], refundAt: readonly string[]): Promise<void> {
  const ids: unknown[] = []
  for (let index = 0; index < 40; index += 1) {
    const named = index % 2 === 0 ? { request_id: `order-${index}` } : { detail: true }
    const address = checkAt[index % checkAt.length] as string
    const { body } = await post(address, CHECK, { client_id: 'a', ...named })
    expect(body).toMatchObject({ allowed: true })
    ids.push(body.request_id)
  }
  const refund = (index: number) => {
    return post(refundAt[(index + 1) % refundAt.length] as string, REFUND, { request_id: ids[index] })
  }
  await anotherWorker(refundAt[0] as string)
  const statuses: number[] = []
  for (let index = 0; index < 40; index += 1) statuses.push((await refund(index)).status)
  expect(statuses).toEqual(Array(40).fill(200))
  for (let index = 0; index < 40; index += 1) expect(await refund(index)).toMatchObject({ status: 409 })
  // Workers hold some units on lease, for a few seconds.
  const left = async () => {
    const { body } = await post(checkAt[0] as string, CHECK, { client_id: 'a', dry_run: true, detail: true })
    return (body.rules as { remaining: number }[]).map(({ remaining }) => remaining)
  }
  const whole = async () => {
    const [window, bucket] = await left()
    expect(window).toBe(1000)
    expect(bucket).toBeGreaterThanOrEqual(999) // units that refilled by themselves are not returned twice
  }
  await vi.waitFor(whole, { timeout: 60_000, interval: 250 })
}

/** Held, renewed and released through whichever worker answers. */
async function permits(address: string, other = address): Promise<void> {
  const holding = { client_id: 'p', endpoint: '/exports' }
  for (let times = 0; times < 6; times += 1) {
    const [first, second] = [
      await post(address, CHECK, holding),
      await post(other, CHECK, { ...holding, request_id: 'x' }),
    ]
    expect([first.body.allowed, second.body.allowed]).toEqual([true, true])
    expect((await post(other, CHECK, holding)).body).toMatchObject({ allowed: false, rule_id: 'exports' })
    await anotherWorker(other)
    const { request_id } = first.body
    expect((await post(other, CHECK, { ...holding, request_id })).body).toMatchObject({ allowed: true })
    for (const id of [request_id, 'x']) {
      expect(await post(other, REFUND, { request_id: id, units: 0 })).toMatchObject({ status: 200 })
    }
  }
}

describe('refunds and permits', () => {
  test('work on any worker, with rules in a file', async () => {
    const args = ['--redis', await freshRedis(), '--workers', '2', '--rules', ruleFile(RULES)]
    const service = await start([...args, ...PATIENT])
    await workersReady(service, 2)
    await checksAndRefunds([service.address], [service.address])
    await permits(service.address)
  })

  test('work on any node, and after a restart of all of them', async () => {
    const args = ['--redis', await freshRedis(), '--rules', ruleFile(RULES), ...PATIENT]
    const [one, other] = [await start(args), await start(args)]
    await checksAndRefunds([one.address], [other.address])
    await permits(one.address, other.address)
    const { body } = await post(one.address, CHECK, { client_id: 'b', detail: true })
    await post(one.address, CHECK, { client_id: 'b', request_id: 'before' })
    for (const node of [one, other]) node.signal('SIGTERM')
    await Promise.all([one.ended(), other.ended()])
    const { address } = await start(args)
    for (const request_id of [body.request_id, 'before']) {
      expect(await post(address, REFUND, { request_id })).toMatchObject({ status: 200 })
    }
  })

  test('work with rules in a shared database', async () => {
    const postgres = await startPostgres()
    onTestFinished(() => postgres.stop())
    const args = ['--redis', await freshRedis(), '--workers', '2', '--database', postgres.createDatabase()]
    const service = await start([...args, ...PATIENT])
    await workersReady(service, 2)
    for (const rule of [
      { rule_id: 'window', limit: 1000, window_seconds: 3600, scope: 'per_user', algorithm: 'fixed_window' },
      { rule_id: 'bucket', limit: 1000, window_seconds: 2_592_000, scope: 'per_user' },
    ]) {
      const { status } = await call(service.address, 'POST', '/api/v1/rate-limit/rules', rule, 'token-of-the-admins')
      expect(status).toBe(201)
    }
    const known = async () => {
      const answers = Array.from({ length: 6 }, () => post(service.address, CHECK, { client_id: 'z', detail: true }))
      return (await Promise.all(answers)).map(({ body }) => (body.rules as unknown[]).length)
    }
    await vi.waitFor(async () => expect(await known()).toEqual(Array(6).fill(2)), { timeout: 20_000 })
    await checksAndRefunds([service.address], [service.address])
  })

  test('work with a Cluster', async () => {
    const cluster = await startRedisCluster()
    onTestFinished(() => cluster.stop())
    const redis = `redis+cluster://${cluster.addresses.map(({ host, port }) => `${host}:${port}`).join(',')}`
    const args = ['--redis', redis, '--rules', ruleFile(RULES), ...PATIENT]
    const [one, other] = [await start(args), await start(args)]
    await checksAndRefunds([one.address], [other.address])
    await permits(one.address, other.address)
  })

  test('work when Redis has lost the receipt key: nodes agree on a new one', async () => {
    const url = await freshRedis()
    const args = ['--redis', url, '--rules', ruleFile(RULES), ...PATIENT]
    const one = await start(args)
    const client = new Redis(url)
    onTestFinished(() => client.disconnect())
    await client.flushall()
    const other = await start(args)
    const { body } = await post(other.address, CHECK, { client_id: 'a', detail: true })
    expect(await post(one.address, REFUND, { request_id: body.request_id })).toMatchObject({ status: 200 })
  })
})

describe('a decision is found', () => {
  const ADMIN = 'token-of-the-admins'
  const find = (address: string, id: unknown) => {
    return call(address, 'GET', `/api/v1/rate-limit/decisions/${encodeURIComponent(String(id))}`, undefined, ADMIN)
  }
  /** A refusal, and admissions with a chosen and a generated id: each queried often enough to reach every worker. */
  async function decisions(checkAt: string, findAt: string): Promise<void> {
    const refused = await post(checkAt, CHECK, { client_id: 'd', endpoint: '/demo', cost: 2000 })
    const named = await post(checkAt, CHECK, { client_id: 'd', request_id: 'order 99' })
    const told = await post(checkAt, CHECK, { client_id: 'd', detail: true })
    for (const { body } of [refused, named, told]) {
      const found = () => Promise.all(Array.from({ length: 8 }, () => find(findAt, body.request_id)))
      await vi.waitFor(async () => expect((await found()).map(({ status }) => status)).toEqual(Array(8).fill(200)), {
        timeout: 10_000,
      })
      const [first] = await found()
      expect(first?.body).toMatchObject({ allowed: body.allowed })
      expect(JSON.stringify(first?.body)).not.toContain('"d"')
    }
    expect(await find(findAt, 'never')).toMatchObject({ status: 404, body: { code: 'DECISION_UNKNOWN' } })
  }

  test('on any worker', async () => {
    const args = ['--redis', await freshRedis(), '--workers', '2', '--rules', ruleFile(RULES)]
    const service = await start([...args, ...PATIENT])
    await workersReady(service, 2)
    await decisions(service.address, service.address)
  })

  test('on any node, and after a restart', async () => {
    const args = ['--redis', await freshRedis(), '--rules', ruleFile(RULES), ...PATIENT]
    const [one, other] = [await start(args), await start(args)]
    await decisions(one.address, other.address)
    const { body } = await post(one.address, CHECK, { client_id: 'd', cost: 2000 })
    one.signal('SIGTERM')
    await one.ended()
    expect(await find((await start(args)).address, body.request_id)).toMatchObject({ status: 200 })
  })

  test('on nodes with counters in memory and a shared database', async () => {
    const postgres = await startPostgres()
    onTestFinished(() => postgres.stop())
    const args = ['--database', postgres.createDatabase(), '--drain-ms', '0', '--admin-token', ADMIN]
    const [one, other] = [await start(args), await start(args)]
    await decisions(one.address, other.address)
  })
})
