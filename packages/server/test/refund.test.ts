import { startFaultProxy, startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test } from 'vitest'
import { tokenHash } from '../src/access/token.ts'
import { memoryReceiptStore } from '../src/checks/receipt-store.ts'
import type { IssuedReceipt } from '../src/checks/receipt-text.ts'
import { ADMIN_TOKEN, CHECK, REFUND, serveApp, serveFile } from './service.ts'

const THREE = { rule_id: 'three', limit: 3, window_seconds: 60, scope: 'per_user', algorithm: 'fixed_window' }
const EXPORTS = { rule_id: 'exports', limit: 1, window_seconds: 60, scope: 'per_user', algorithm: 'concurrency' }

describe('a refund', () => {
  test('returns the units that the request took', async () => {
    const { check, post } = await serveApp([THREE])
    await check({ client_id: 'a', cost: 3, request_id: 'r-1' })
    expect(await check({ client_id: 'a' })).toMatchObject({ allowed: false })
    expect(await post(REFUND, { request_id: 'r-1' })).toMatchObject({ status: 200, body: { refunded: true } })
    expect(await check({ client_id: 'a' })).toMatchObject({ allowed: true, remaining: 2 })
  })

  test('of some units returns that many', async () => {
    const { check, post } = await serveApp([THREE])
    await check({ client_id: 'a', cost: 3, request_id: 'r-1' })
    await post(REFUND, { request_id: 'r-1', units: 2 })
    expect(await check({ client_id: 'a', dry_run: true })).toMatchObject({ remaining: 2 })
  })

  test('works by the id in detail', async () => {
    const { check, post } = await serveApp([THREE])
    const { request_id } = await check({ client_id: 'a', cost: 3, detail: true })
    expect(await post(REFUND, { request_id })).toMatchObject({ status: 200 })
    expect(await check({ client_id: 'a', dry_run: true })).toMatchObject({ remaining: 3 })
  })

  test('works once: the second attempt is a 409, and changes nothing', async () => {
    const { check, post } = await serveApp([THREE])
    await check({ client_id: 'a', request_id: 'r-1' })
    await check({ client_id: 'a', request_id: 'r-2' })
    await post(REFUND, { request_id: 'r-1' })
    const { status, body } = await post(REFUND, { request_id: 'r-1' })
    const errors = [{ field: 'request_id', value: 'r-1', fix: 'refund each request once' }]
    expect({ status, body }).toMatchObject({ status: 409, body: { code: 'REFUND_REPEATED', errors } })
    expect(await check({ client_id: 'a', dry_run: true })).toMatchObject({ remaining: 2 })
  })

  test('a reused id refers to the newest request', async () => {
    const { check, post } = await serveApp([THREE])
    await check({ client_id: 'a', cost: 1, request_id: 'r' })
    await check({ client_id: 'b', cost: 3, request_id: 'r' })
    expect(await post(REFUND, { request_id: 'r' })).toMatchObject({ status: 200 })
    expect(await check({ client_id: 'a', dry_run: true })).toMatchObject({ remaining: 2 })
    expect(await check({ client_id: 'b', dry_run: true })).toMatchObject({ remaining: 3 })
  })

  test('of 0 units releases the permit and keeps what was consumed', async () => {
    const { check, post } = await serveApp([THREE, EXPORTS])
    const { request_id } = await check({ client_id: 'a' })
    expect(await check({ client_id: 'a' })).toMatchObject({ allowed: false, rule_id: 'exports' })
    for (let times = 0; times < 2; times += 1) {
      expect(await post(REFUND, { request_id, units: 0 })).toMatchObject({ status: 200, body: { refunded: true } })
    }
    const { allowed, rules } = await check({ client_id: 'a', detail: true })
    expect(allowed).toBe(true)
    expect(rules).toContainEqual(expect.objectContaining({ rule_id: 'three', remaining: 1 }))
  })
})

describe('a generated id', () => {
  const told = async (check: (body: unknown) => Promise<Record<string, unknown>>, more = {}) => {
    const { request_id: id } = await check({ client_id: 'alice@example.org', detail: true, ...more })
    return String(id)
  }

  test('is short, and does not reveal the client', async () => {
    const { check } = await serveApp([THREE, EXPORTS])
    const id = await told(check)
    expect(id).toMatch(/^[0-9a-z]+-[0-9a-z]+\.[\w-]+$/)
    expect(id.length).toBeLessThan(400)
    expect(Buffer.from(id.split('.')[1] ?? '', 'base64url').toString('latin1')).not.toContain('alice')
  })

  test('that was altered is a 404 that says so', async () => {
    const { check, post } = await serveApp([THREE])
    const id = await told(check)
    const at = id.indexOf('.')
    const other = (index: number) => `${id.slice(0, index)}${id[index] === 'a' ? 'b' : 'a'}${id.slice(index + 1)}`
    for (const index of [at - 1, at + 1, at + 20, id.length - 30]) {
      const { status, body } = await post(REFUND, { request_id: other(index) })
      expect({ status, body }).toMatchObject({ status: 404, body: { code: 'REFUND_UNKNOWN' } })
      expect(body.detail).toContain('cannot be decoded')
    }
    expect(await post(REFUND, { request_id: id })).toMatchObject({ status: 200 })
  })

  test('of a node with separate counters is a 404', async () => {
    const [one, other] = [await serveApp([THREE]), await serveApp([THREE])]
    expect(await other.post(REFUND, { request_id: await told(one.check) })).toMatchObject({ status: 404 })
  })

  test('that would be too long is replaced by a plain one, which works as well', async () => {
    const { check, post } = await serveApp([THREE])
    const { request_id } = await check({ client_id: 'x'.repeat(1000), cost: 3, detail: true })
    expect(String(request_id)).toMatch(/^[0-9a-z]+-[0-9a-z]+$/)
    expect(await post(REFUND, { request_id })).toMatchObject({ status: 200 })
  })

  test('renews the permit when it is sent with a check, and releases it afterwards', async () => {
    const { check, post, clock } = await serveApp([EXPORTS])
    const first = await check({ client_id: 'a' })
    clock.advanceMs(40_000)
    const second = await check({ client_id: 'a', request_id: first.request_id })
    expect(second).toMatchObject({ allowed: true })
    clock.advanceMs(40_000)
    expect(await check({ client_id: 'a' })).toMatchObject({ allowed: false })
    expect(await post(REFUND, { request_id: first.request_id, units: 0 })).toMatchObject({ status: 200 })
    expect(await check({ client_id: 'a' })).toMatchObject({ allowed: true })
  })

  test('expires: the refund is a 409, which still releases permits', async () => {
    const [daily, exports] = [THREE, EXPORTS].map((rule) => ({ ...rule, window_seconds: 86_400 }))
    const { check, post, clock } = await serveApp([daily, exports])
    const { request_id } = await check({ client_id: 'a' })
    clock.advanceMs(3_601_000)
    const { status, body } = await post(REFUND, { request_id })
    expect({ status, body }).toMatchObject({ status: 409, body: { code: 'REFUND_EXPIRED' } })
    expect(await check({ client_id: 'a' })).toMatchObject({ allowed: true })
  })
})

describe('who may refund', () => {
  const [CHECKER, OTHER] = [tokenOf('checker'), tokenOf('other')]

  test.each([
    ['an id that the service has made', { detail: true }, 403],
    ['a name', { request_id: 'order-1' }, 404],
  ])('%s: only the client that made the check, and admins', async (_name, more, refused) => {
    const access = { checksAreOpen: false, tokens: [CHECKER, OTHER] }
    for (const [token, status] of [
      ['secret of other', refused],
      ['secret of checker', 200],
      [ADMIN_TOKEN, 200],
    ] as const) {
      const { post } = await serveApp([THREE], undefined, access)
      const { body } = await post(CHECK, { client_id: 'a', ...more }, 'secret of checker')
      const { request_id } = body
      expect(await post(REFUND, { request_id }, token)).toMatchObject({ status })
    }
  })

  test('two clients that use the same id do not affect each other', async () => {
    const { post } = await serveApp([THREE], undefined, { checksAreOpen: false, tokens: [CHECKER, OTHER] })
    for (const name of ['checker', 'other']) {
      await post(CHECK, { client_id: name, cost: 3, request_id: 'r' }, `secret of ${name}`)
    }
    for (const name of ['checker', 'other']) {
      expect(await post(REFUND, { request_id: 'r' }, `secret of ${name}`)).toMatchObject({ status: 200 })
      const { body } = await post(CHECK, { client_id: name, dry_run: true }, `secret of ${name}`)
      expect(body).toMatchObject({ remaining: 3 })
    }
  })

  test('a request that was checked without a token can be refunded by any caller', async () => {
    const { check, post } = await serveApp([THREE], undefined, { tokens: [CHECKER] })
    const { request_id } = await check({ client_id: 'a', detail: true })
    await check({ client_id: 'a', request_id: 'r' })
    expect(await post(REFUND, { request_id }, 'secret of checker')).toMatchObject({ status: 200 })
    expect(await post(REFUND, { request_id: 'r' }, 'secret of checker')).toMatchObject({ status: 200 })
  })

  function tokenOf(name: string) {
    const facts = { name, createdAt: '2026-01-01T00:00:00.000Z', expiresAt: null, revokedAt: null }
    return { tokenId: `tok_${name}`, hash: tokenHash(`secret of ${name}`), role: 'check' as const, ...facts }
  }
})

describe('there is nothing to refund', () => {
  test.each([
    ['an unknown id', {}],
    ['a refused request', { cost: 4, request_id: 'r-1' }],
    ['a dry run', { dry_run: true, request_id: 'r-1' }],
  ])('%s is a 404 that lists the possible reasons', async (_name, request) => {
    const { check, post } = await serveApp([THREE])
    await check({ client_id: 'a', ...request })
    const { status, body } = await post(REFUND, { request_id: 'r-1' })
    expect({ status, body }).toMatchObject({ status: 404, body: { code: 'REFUND_UNKNOWN' } })
    expect(body.detail).toMatch(/refused.*dry run.*Redis was unreachable.*too old.*neither request_id nor detail/)
  })

  test.each([
    ['{}', 'request_id', 'give 1 to 1024 characters without control characters, "{" and "}"'],
    ['{"request_id":"r","units":-1}', 'units', 'give a whole number from 0 to 1000000000'],
    ['{"request_id":"r","units":0.5}', 'units', 'give a whole number from 0 to 1000000000'],
    ['{"request_id":"r","unit":1}', 'unit', 'unknown field; did you mean "units"?'],
  ])('%s is a 400', async (sent, field, fix) => {
    const { post } = await serveApp([THREE])
    expect(await post(REFUND, sent)).toMatchObject({ status: 400, body: { errors: [{ field, fix }] } })
  })
})

test('the number of receipts with a chosen id is bounded: the oldest are dropped and counted', async () => {
  let dropped = 0
  const store = memoryReceiptStore(() => {
    dropped += 1
  }, 3)
  const issued = { receipt: {}, caller: 'anonymous' } as IssuedReceipt
  const known = () => ['a', 'b', 'c', 'd'].filter((id) => store.find(id, 'anonymous') !== undefined).join('')
  for (const id of ['a', 'b', 'a']) await store.write(id, issued)
  expect({ known: known(), dropped }).toEqual({ known: 'ab', dropped: 0 })
  await store.write('c', issued) // evicts the first "a", which the second one has replaced
  expect({ known: known(), dropped }).toEqual({ known: 'abc', dropped: 0 })
  await store.write('d', issued)
  expect({ known: known(), dropped }).toEqual({ known: 'acd', dropped: 1 })
})

describe('while Redis is unreachable', () => {
  const RULE = `- { rule_id: ten, limit: 10, window: 1h, scope: per_user, algorithm: fixed_window, consistency: strict }
- { rule_id: exports, limit: 1, window: 5m, scope: per_user, algorithm: concurrency }
`
  async function behindProxy() {
    const redis = await startRedis()
    const proxy = await startFaultProxy(redis.port)
    onTestFinished(async () => {
      await proxy.stop()
      await redis.stop()
    })
    const app = await serveFile(RULE, { redis: `redis://127.0.0.1:${proxy.port}`, storeDeadlineMs: 1000 })
    const left = async (client_id: string) => {
      const { body } = await app.post(CHECK, { client_id, dry_run: true, detail: true })
      return (body.rules as { remaining: number }[]).map(({ remaining }) => remaining)
    }
    return { ...app, proxy, left }
  }

  test.each([
    ['an id that the service has made', {}],
    ['a name', { request_id: 'r-1' }],
  ])('a refund by %s is a 503, and a retry when Redis is back works once', async (_name, more) => {
    const { check, post, proxy, left } = await behindProxy()
    const { request_id } = await check({ client_id: 'a', ...more })
    expect(await left('a')).toEqual([9, 0])
    proxy.shut()
    for (let times = 0; times < 5; times += 1) {
      for (const units of [{}, { units: 0 }]) {
        const { status, body } = await post(REFUND, { request_id, ...units })
        expect({ status, body }).toMatchObject({ status: 503, body: { code: 'STORE_UNAVAILABLE' } })
        expect(body.detail).toContain('retry')
      }
    }
    proxy.open()
    const refund = async () => (await post(REFUND, { request_id })).status
    await expect.poll(refund, { timeout: 20_000, interval: 100 }).toBe(200)
    expect(await refund()).toBe(409)
    await expect.poll(() => left('a'), { timeout: 10_000 }).toEqual([10, 1])
  })

  test('a refund whose response was lost is applied: a retry is a 409, and no units are returned twice', async () => {
    const { check, post, get, proxy, left } = await behindProxy()
    const { request_id } = await check({ client_id: 'a', detail: true })
    const metrics = async () => String((await get('/metrics')).body.text)
    await expect
      .poll(metrics, { message: 'no other reply is under way' })
      .toContain('sluice_decision_records_written_total 1\n')
    proxy.cutNextReply(0)
    expect(await post(REFUND, { request_id })).toMatchObject({ status: 503 })
    const refund = async () => (await post(REFUND, { request_id })).status
    await expect.poll(refund, { timeout: 20_000, interval: 100 }).toBe(409)
    expect(await left('a')).toEqual([10, 1])
  })
})
