// The service as users run it, under load, while its Redis is killed and restarted: every check is answered, and names
// the source of its decision.

import { Redis } from 'ioredis'
import { type RedisProcess, startRedis } from 'sluice/testing'
import { expect, onTestFinished, test, vi } from 'vitest'
import { start } from './process.ts'
import { CHECK, type Client, clientOf, ruleFile, serveFile } from './service.ts'

const RULES = `
- { rule_id: leased, limit: 100000, window: 1d, scope: per_user, endpoint_pattern: /leased, on_fail: closed }
- { rule_id: open, limit: 100000, window: 1d, scope: per_user, endpoint_pattern: /open, consistency: strict }
- rule_id: closed
  limit: 100000
  window: 1d
  scope: per_user
  endpoint_pattern: /closed
  consistency: strict
  on_fail: closed
- { rule_id: ten, limit: 10, window: 365d, scope: per_user, algorithm: fixed_window, endpoint_pattern: /ten }
`
const ENDPOINTS = ['/leased', '/open', '/closed']
const LOOPS = 12
/** The machine may be busy; a dead Redis refuses connections immediately. */
const PATIENT = ['--store-deadline-ms', '5000']

const PATIENTLY = { timeout: 20_000, interval: 50 }

type Seen = { readonly status: number; readonly endpoint: string; readonly answer: string }

test('Redis is killed under load and comes back: every check is answered, and exact again at the end', async () => {
  const redis = await freshRedis()
  const { address } = await start(['--redis', redis.url, '--rules', ruleFile(RULES), ...PATIENT])
  const client = clientOf(address)
  const load = startLoad(client)
  expect(answersOf('/closed', await load.next(300))).toEqual(['true store'])
  expect(await client.get('/readyz')).toMatchObject({ status: 200, body: { status: 'ready' } })

  await redis.stop()
  await vi.waitFor(async () => expect((await client.get('/readyz')).body.status).toBe('degraded'), PATIENTLY)
  const during = await load.next(600)
  expect(during.every(({ status }) => status === 200)).toBe(true)
  expect(answersOf('/open', during)).toEqual(['true policy'])
  expect(answersOf('/closed', during)).toEqual(['false policy'])
  expect(['false policy', 'true lease']).toEqual(expect.arrayContaining(answersOf('/leased', during)))
  expect(await client.get('/readyz')).toMatchObject({ status: 200, body: { status: 'degraded' } })

  await freshRedis(['--port', String(redis.port)])
  await vi.waitFor(async () => expect((await client.get('/readyz')).body.status).toBe('ready'), PATIENTLY)
  const tens = await Promise.all(Array.from({ length: 30 }, () => client.check({ client_id: 'b', endpoint: '/ten' })))
  expect(tens.filter(({ allowed }) => allowed)).toHaveLength(10)
  const after = await load.next(300)
  expect(after.every(({ status }) => status === 200)).toBe(true)
  expect(answersOf('/closed', after)).toEqual(['true store'])
})

test('an outage without traffic is in the log, the metric and /readyz, and so is its end', async () => {
  const [redis, named, regional, global] = await Promise.all([1, 2, 3, 4].map(() => freshRedis()))
  const serve = (settings: object) => serveFile('[]', { storeDeadlineMs: 1000, globalDeadlineMs: 1000, ...settings })
  const region = { region: 'eu', regionWeights: { eu: 1 }, homeShare: 0.5 }
  const [plain, inRegion] = await Promise.all([
    serve({ redis: redis?.url, stores: { other: named?.url } }),
    serve({ redis: regional?.url, globalRedis: global?.url, ...region }),
  ])
  const state = async ({ get, logged }: Client, series: string, event: string) => {
    const text = String((await get('/metrics')).body.text)
    const { status, reasons } = (await get('/readyz')).body
    const isOpen = Number(new RegExp(`^${series} (\\d)$`, 'm').exec(text)?.[1])
    return [isOpen, status, reasons, logged.filter((line) => line.event === event).length]
  }
  const ofNamed = (event: string) => state(plain, 'sluice_breaker_open\\{store="other",server="all"\\}', event)
  const ofGlobal = (event: string) => state(inRegion, 'sluice_region_isolated', event)
  expect(await ofNamed('breaker_opened')).toEqual([0, 'ready', [], 0])
  expect(await ofGlobal('global_breaker_opened')).toEqual([0, 'ready', [], 0])
  await Promise.all([named?.stop(), global?.stop()])
  await vi.waitFor(async () => {
    expect(await ofNamed('breaker_opened')).toEqual([1, 'degraded', ['store: STORE_UNAVAILABLE'], 1])
    const reasons = ['region: the global Redis does not answer, homes only']
    expect(await ofGlobal('global_breaker_opened')).toEqual([1, 'degraded', reasons, 1])
  }, PATIENTLY)
  await Promise.all([named, global].map((one) => freshRedis(['--port', String(one?.port)])))
  await vi.waitFor(async () => {
    expect(await ofNamed('breaker_closed')).toEqual([0, 'ready', [], 1])
    expect(await ofGlobal('global_breaker_closed')).toEqual([0, 'ready', [], 1])
  }, PATIENTLY)
  const admin = new Redis(redis?.url ?? '')
  onTestFinished(() => admin.disconnect())
  await admin.replicaof('127.0.0.1', 1) // it still reads
  const ofDefault = (event: string) => state(plain, 'sluice_breaker_open\\{store="default",server="all"\\}', event)
  await vi.waitFor(async () => {
    expect(await ofDefault('breaker_opened')).toEqual([1, 'degraded', ['store: STORE_UNAVAILABLE'], 2])
  }, PATIENTLY)
})

async function freshRedis(args?: readonly string[]): Promise<RedisProcess> {
  const redis = await startRedis(args)
  onTestFinished(() => redis.stop())
  return redis
}

/** Clients that send the next check as soon as the last one is answered. */
function startLoad(client: Client) {
  let seen: Seen[] = []
  let running = true
  const loop = async (endpoint: string) => {
    while (running) {
      const list = seen
      const { status, body } = await client.post(CHECK, { client_id: 'a', endpoint })
      list.push({ status, endpoint, answer: `${body.allowed} ${body.source ?? 'store'}` })
    }
  }
  const loops = Array.from({ length: LOOPS }, (_, index) => loop(ENDPOINTS[index % ENDPOINTS.length] ?? ''))
  onTestFinished(async () => {
    running = false
    await Promise.all(loops)
  })
  return {
    /** So many answers to requests that are sent from now on. */
    async next(count: number) {
      const list: Seen[] = []
      seen = list
      await vi.waitFor(() => expect(list.length).toBeGreaterThanOrEqual(count), PATIENTLY)
      return [...list]
    },
  }
}

function answersOf(path: string, seen: readonly Seen[]): string[] {
  return [...new Set(seen.flatMap(({ endpoint, answer }) => (endpoint === path ? answer : [])))].toSorted()
}
