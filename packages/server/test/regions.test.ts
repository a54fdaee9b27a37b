import { startFaultProxy, startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { REGIONS_PATH } from '../src/http/routes/regions.ts'
import type { Settings } from '../src/settings/settings.ts'
import { ADMIN_TOKEN, CHECK, type Client, REFUND, serveApp, serveFile } from './service.ts'

const RULES = `
- { rule_id: shared, limit: 100, window: 1d, scope: per_user, algorithm: fixed_window,
    spread: global, consistency: strict }
- { rule_id: own, limit: 1000, window: 1d, scope: per_user, by_plan: { pro: { limit: 2000 } } }
`
const PATIENT = { storeDeadlineMs: 5000, globalDeadlineMs: 5000 }
const WEIGHTS = { eu: 0.6, us: 0.4 }

/** A service in each of two regions, with a Redis each and one for both, behind a proxy. */
async function twoRegions(more: Partial<Settings> = {}) {
  const servers = await Promise.all([startRedis(), startRedis(), startRedis()])
  const [eu, us, global] = servers
  const way = await startFaultProxy(global.port)
  const settings = { ...PATIENT, regionWeights: WEIGHTS, homeShare: 0.5, globalRedis: `redis://127.0.0.1:${way.port}` }
  const serve = (region: string, redis: string) => serveFile(RULES, { ...settings, region, redis, ...more })
  const services = { eu: await serve('eu', eu.url), us: await serve('us', us.url) }
  onTestFinished(async () => {
    await Promise.all([services.eu.close(), services.us.close()])
    await way.stop()
    await Promise.all(servers.map((server) => server.stop()))
  })
  return { ...services, way }
}

/** Sequential: a concurrent check would miss units that are being returned. */
async function allowed({ check }: Client, times: number): Promise<number> {
  let count = 0
  for (let index = 0; index < times; index += 1) if ((await check({ client_id: 'a' })).allowed) count += 1
  return count
}

describe('a service in a region', () => {
  test('shares limits with the other: both admit exactly the limit, one alone its home and the pool', async () => {
    const { eu, us } = await twoRegions()
    expect(await allowed(eu, 120)).toBe(30 + 50)
    expect(await allowed(us, 120)).toBe(20)
    expect((await eu.get(REGIONS_PATH)).status).toBe(401)
    const { status, body } = await eu.get(REGIONS_PATH, ADMIN_TOKEN)
    expect(status).toBe(200)
    expect(body).toEqual({
      region: 'eu',
      shares: { home_share: 0.5, weights: WEIGHTS },
      next_shares: null,
      isolated: false,
      lag_ms: expect.any(Number),
      clock_difference_ms: expect.any(Number),
      home_units: 30,
      borrowed_units: 50,
      limits: [
        {
          rule_id: 'shared',
          name: 'default',
          plan: null,
          limit: 100,
          homes: { eu: 30, us: 20 },
          pool: 50,
          bound: expect.any(Number),
        },
      ],
    })
    const text = String((await eu.get('/metrics')).body.text)
    expect(text).toContain('sluice_region_borrowed_units_total 50\n')
    expect(text).toContain('sluice_region_home_units_total 30\n')
    expect(text).toContain('sluice_region_home_ratio 0.3\n')
    expect(text).toContain('sluice_region_pool_ratio 0.5\n')
  })

  test('returns units to the bucket that they came from', async () => {
    const { eu, us } = await twoRegions()
    for (let count = 0; count < 80; count += 1) await eu.post(CHECK, { client_id: 'a', request_id: `r${count}` })
    for (let count = 0; count < 80; count += 1) await eu.post(REFUND, { request_id: `r${count}` })
    expect([await allowed(us, 120), await allowed(eu, 120)]).toEqual([70, 30])
  })

  test('that is isolated uses its home, reports it, and recovers by itself', async () => {
    const { eu, way } = await twoRegions()
    way.shut()
    expect(await allowed(eu, 120)).toBe(30)
    expect((await eu.get('/readyz')).body).toMatchObject({
      status: 'degraded',
      reasons: [expect.stringContaining('region')],
    })
    expect((await eu.get(REGIONS_PATH, ADMIN_TOKEN)).body).toMatchObject({ isolated: true })
    way.open()
    await vi.waitUntil(async () => (await allowed(eu, 1)) === 1, { timeout: 30_000, interval: 100 })
    expect((await eu.get('/readyz')).body).toMatchObject({ status: 'ready' })
  })

  test('uses the smaller of both shares during a change', async () => {
    const { eu } = await twoRegions({ nextRegionWeights: { eu: 0.2, us: 0.8 } })
    expect((await eu.get(REGIONS_PATH, ADMIN_TOKEN)).body).toMatchObject({
      next_shares: { home_share: 0.5, weights: { eu: 0.2, us: 0.8 } },
      limits: [{ homes: { eu: 10, us: 20 }, pool: 50 }],
    })
  })
})

test('without a region the route does not exist', async () => {
  expect((await (await serveApp([])).get(REGIONS_PATH)).status).toBe(404)
})

test('a region without a weight does not start, and leaves nothing open', async () => {
  const settings = {
    region: 'ap',
    regionWeights: WEIGHTS,
    redis: 'redis://127.0.0.1:1',
    globalRedis: 'redis://127.0.0.1:1',
  }
  await expect(serveFile(RULES, settings)).rejects.toThrow('give the region a weight')
})
