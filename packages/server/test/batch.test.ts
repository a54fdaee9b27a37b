import { LimiterError, memoryStore, type Store } from 'sluice'
import { describe, expect, test } from 'vitest'
import { BATCH, CHECK, serveApp } from './service.ts'

const THREE = { rule_id: 'three', limit: 3, window_seconds: 60, scope: 'per_user', algorithm: 'fixed_window' }

test('answers come in the order of the checks, and each check counts', async () => {
  const { post } = await serveApp([THREE])
  const checks = ['a', 'b', 'a', 'a', 'a'].map((client_id) => ({ client_id }))
  const { status, body } = await post(BATCH, { checks })
  expect(status).toBe(200)
  expect(body.results).toMatchObject([
    { allowed: true, remaining: 2 },
    { allowed: true, remaining: 2 },
    { allowed: true, remaining: 1 },
    { allowed: true, remaining: 0 },
    { allowed: false, remaining: 0, rule_id: 'three', retry_after: expect.any(Number) },
  ])
})

test('an invalid check gets a problem at its index, and the others are decided', async () => {
  const { post } = await serveApp([THREE])
  const wrong = [{ cost: 0 }, { method: 'GTE' }, 7, null, { client_idd: 'a' }, []]
  const { status, body } = await post(BATCH, { checks: [{ client_id: 'a' }, ...wrong, { client_id: 'a' }] })
  const results = body.results as Record<string, unknown>[]
  expect(status).toBe(200)
  expect(results).toHaveLength(8)
  expect(results[0]).toMatchObject({ allowed: true, remaining: 2 })
  expect(results[7]).toMatchObject({ allowed: true, remaining: 1 })
  expect(results.slice(1, 7)).toMatchObject(
    ['cost', 'method', 'body', 'body', 'client_idd', 'body'].map((field) => ({
      error: { status: 400, code: 'REQUEST_INVALID', errors: [{ field }] },
    })),
  )
})

test('an item gets the same answer as a single check', async () => {
  const { post } = await serveApp([THREE])
  const item = { client_id: 'a', detail: true, request_id: 'r-1', dry_run: true }
  const alone = (await post(CHECK, item)).body
  expect((await post(BATCH, { checks: [item] })).body).toEqual({ results: [alone] })
})

describe('batch size', () => {
  test('an empty batch is allowed', async () => {
    const { post } = await serveApp([])
    expect((await post(BATCH, { checks: [] })).body).toEqual({ results: [] })
  })

  test('1000 checks are allowed, and all are answered', async () => {
    const { post } = await serveApp([THREE])
    const checks = Array.from({ length: 1000 }, (_, index) => ({ client_id: `user_${index % 250}` }))
    const { body } = await post(BATCH, { checks })
    const results = body.results as { allowed: boolean }[]
    expect(results.map(({ allowed }) => allowed)).toEqual(checks.map((_, index) => index < 750))
  })

  test('1001 checks are rejected as a whole, and none of them counts', async () => {
    const { post } = await serveApp([THREE])
    const checks = Array.from({ length: 1001 }, () => ({ client_id: 'a' }))
    const { status, body } = await post(BATCH, { checks })
    const errors = [{ field: 'checks', value: expect.any(String), fix: 'give a list of at most 1000 checks' }]
    expect({ status, body }).toMatchObject({ status: 400, body: { errors } })
    expect((await post(CHECK, { client_id: 'a' })).body).toMatchObject({ remaining: 2 })
  })

  test.each([
    ['{}', 'checks'],
    ['{"checks":{}}', 'checks'],
    ['{"checks":[],"cheks":[]}', 'cheks'],
    ['[]', 'body'],
  ])('%s: the answer names the missing field', async (sent, field) => {
    const { post } = await serveApp([])
    expect(await post(BATCH, sent)).toMatchObject({ status: 400, body: { errors: [{ field }] } })
  })
})

/** A remote store in which the buckets of `broken` are corrupt. */
function remoteStore(inner: Store, asked: number[]): Store {
  let turn = 0
  return {
    take: async (take) => {
      asked.push(turn)
      await new Promise((resolve) => setImmediate(resolve))
      turn += 1
      if (take.charges[0]?.owner === 'broken')
        throw new LimiterError('STORE_CORRUPT', 'the key sl:{broken} cannot be read')
      return inner.take(take)
    },
    give: (gives, opId) => inner.give(gives, opId),
    peek: (charges) => inner.peek(charges),
    reset: (bucket) => inner.reset(bucket),
    close: () => inner.close(),
  }
}

test('the checks of a batch reach a remote store together; one that fails is a 503 at its index', async () => {
  const asked: number[] = []
  const { post } = await serveApp([THREE], (clock) => remoteStore(memoryStore({ clock }), asked))
  const checks = ['a', 'broken', 'a'].map((client_id) => ({ client_id }))
  const { status, body } = await post(BATCH, { checks })
  expect(status).toBe(200)
  expect(body.results).toMatchObject([
    { allowed: true, remaining: 2 },
    { error: { status: 503, code: 'STORE_CORRUPT', detail: expect.stringContaining('sl:{broken}') } },
    { allowed: true, remaining: 1 },
  ])
  expect(asked).toEqual([0, 0, 0])
})

test('a failing store is a 503 with its code, never a 500 with a stack', async () => {
  const failing = (code: 'STORE_UNAVAILABLE' | 'CLOSED') => (): Store => ({
    ...remoteStore(memoryStore(), []),
    take: () => Promise.reject(new LimiterError(code, 'connect ECONNREFUSED')),
  })
  for (const code of ['STORE_UNAVAILABLE', 'CLOSED'] as const) {
    const { post } = await serveApp([THREE], failing(code))
    const { status, body, headers } = await post(CHECK, { client_id: 'a' })
    expect({ status, body }).toMatchObject({ status: 503, body: { status: 503, code } })
    expect(headers.get('content-type')).toContain('application/problem+json')
    expect(JSON.stringify(body)).not.toContain('    at ')
  }
})

test('an unexpected error is a 500 without its stack, which is in the log', async () => {
  const broken = (): Store => ({
    ...remoteStore(memoryStore(), []),
    take: () => Promise.reject(new TypeError('cannot read properties of undefined')),
  })
  const { post, logged } = await serveApp([THREE], broken)
  const { status, body } = await post(CHECK, { client_id: 'a' })
  expect({ status, body }).toMatchObject({ status: 500, body: { code: 'INTERNAL' } })
  expect(JSON.stringify(body)).not.toContain('properties of undefined')
  expect(logged).toMatchObject([{ level: 'error', err: { stack: expect.stringContaining('properties of undefined') } }])
})
