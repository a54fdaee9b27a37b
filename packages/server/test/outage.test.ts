// The service as users run it, under load, while its Redis is killed and restarted: every check is answered, and names
// the source of its decision.

import { type RedisProcess, startRedis } from 'sluice/testing'
import { expect, onTestFinished, test, vi } from 'vitest'
import { start } from './process.ts'
import { CHECK, type Client, clientOf, ruleFile } from './service.ts'

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
