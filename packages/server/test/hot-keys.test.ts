import { describe, expect, test } from 'vitest'
import { HOT_KEYS_PATH } from '../src/http/routes/hot-keys.ts'
import { keyHash } from '../src/log.ts'
import { ADMIN_TOKEN, type App, BATCH, serveApp } from './service.ts'

const PER_USER = { rule_id: 'per_user', scope: 'per_user', limit: 100, window_seconds: 60 }
const PER_METHOD = { ...PER_USER, rule_id: 'per_method', scope: ['user', 'method'] }
const hash = keyHash('a secret of tests')

/** A service that has just answered 12,000 checks: three of four from alice, the others from users with one each. */
async function busy(rules: readonly object[] = [PER_USER]): Promise<App> {
  const app = await serveApp(rules)
  for (let batch = 0; batch < 12; batch += 1) {
    const checks = Array.from({ length: 1000 }, (_, index) => {
      return { client_id: index % 4 < 3 ? 'alice' : `once-${batch}-${index}`, method: 'GET' }
    })
    await app.post(BATCH, { checks })
  }
  return app
}

function ask({ send }: App, query = '', token = ADMIN_TOKEN) {
  return send(HOT_KEYS_PATH + query, { headers: { authorization: `Bearer ${token}` } })
}

describe(`GET ${HOT_KEYS_PATH}`, () => {
  test('names hot keys by the hash that is in the log, with estimates', async () => {
    const { status, body } = await ask(await busy())
    expect(status).toBe(200)
    const [alice, ...others] = body.hot_keys as { checks_per_second: number; share: number }[]
    expect(others).toEqual([])
    expect(alice).toEqual({
      ...{ rule_id: 'per_user', name: 'default', key_hash: hash('user', 'alice') },
      ...{ checks_per_second: expect.any(Number), share: expect.any(Number) },
    })
    expect(alice?.share).toBeGreaterThan(0.4)
    expect(alice?.share).toBeLessThanOrEqual(1)
    expect(alice?.checks_per_second).toBeGreaterThan(4000) // of about 9000 within the first second
  })

  test('a composite key shows the hash of its owner, and nothing in clear', async () => {
    const { body } = await ask(await busy([PER_METHOD]))
    expect(body).toMatchObject({ hot_keys: [{ key_hash: `${hash('user', 'alice')}.${hash('detail', 'GET')}` }] })
    expect(JSON.stringify(body)).not.toMatch(/alice|GET/)
  })

  test('returns as many as requested', async () => {
    const app = await busy([PER_USER, PER_METHOD])
    for (const [query, length] of [
      ['', 2],
      ['?limit=1', 1],
      ['?limit=1000', 2],
      ['?nodes=this', 2],
    ] as const) {
      expect((await ask(app, query)).body.hot_keys, query).toHaveLength(length)
    }
  })

  test('is empty while nothing is hot', async () => {
    const app = await serveApp([PER_USER])
    expect(await ask(app)).toMatchObject({ status: 200, body: { hot_keys: [] } })
  })

  test.each([
    ['?limit=abc', 'limit', 'abc'],
    ['?limit=0', 'limit', '0'],
    ['?limit=1001', 'limit', '1001'],
    ['?limit=1.5', 'limit', '1.5'],
    ['?limit=', 'limit', ''],
    ['?limit=1&limit=2', 'limit', '["1","2"]'],
  ])('%s is a 400 that names field, value and fix', async (query, field, value) => {
    const { status, headers, body } = await ask(await serveApp([]), query)
    expect({ status, code: body.code }).toEqual({ status: 400, code: 'REQUEST_INVALID' })
    expect(headers.get('content-type')).toContain('application/problem+json')
    expect(body.errors).toEqual([{ field, value, fix: 'give a whole number from 1 to 1000' }])
  })

  test('an unknown parameter is a 400', async () => {
    const { body } = await ask(await serveApp([]), '?limt=5')
    expect(body.errors).toEqual([{ field: 'limt', value: '5', fix: 'unknown field; did you mean "limit"?' }])
  })
})

test('/metrics has the number of hot keys and the rate of the hottest of each rule, and names none', async () => {
  const app = await busy([PER_USER, { ...PER_USER, rule_id: 'all', scope: 'global' }])
  const text = String((await app.get('/metrics')).body.text)
  expect(text).toContain('sluice_hot_keys 2\n')
  const rates = [...text.matchAll(/^sluice_hottest_key_checks_per_second\{rule="(\w+)"\} (\d+)/gm)]
  const rateOf = Object.fromEntries(rates.map(([, rule, rate]) => [rule, Number(rate)]))
  expect(Object.keys(rateOf).sort()).toEqual(['all', 'per_user'])
  expect(rateOf.all).toBeGreaterThan(rateOf.per_user ?? 0)
  expect(text).not.toMatch(new RegExp(`alice|${hash('user', 'alice')}`))
})
