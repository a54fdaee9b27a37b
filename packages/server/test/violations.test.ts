import { seededRandom } from 'sluice/testing'
import { expect, test, vi } from 'vitest'
import type { Database } from '../src/db/database.ts'
import { migrate } from '../src/db/migrate.ts'
import { VIOLATIONS_PATH } from '../src/http/routes/violations.ts'
import { keyHash } from '../src/log.ts'
import { describeDatabases } from './databases.ts'
import { ADMIN_TOKEN, type App, CHECK, serveApp } from './service.ts'

const BAN = { rule_id: 'ban', scope: ['user', 'ip'], limit: 0, window_seconds: 60 }
const ONE = { rule_id: 'one', scope: 'per_user', limit: 1, window_seconds: 60, endpoint_pattern: '/one' }
const PATIENTLY = { timeout: 10_000, interval: 50 }

const INSERT_OLD = `INSERT INTO events (event_id, at, request_id, endpoint_pattern, bucket_key, allowed, cost, version,
    source, node, decision_us, sample_rate)
  SELECT gen_random_uuid(), '2001-01-01', '', 'none', 'old', false, 1, 0, 'store', '', 0, 1`

type Found = { violations: Record<string, unknown>[]; next: string | null }

async function find({ get }: App, query: Record<string, string> = {}): Promise<Found> {
  const { status, body } = await get(`${VIOLATIONS_PATH}?${new URLSearchParams(query)}`, ADMIN_TOKEN)
  expect(status).toBe(200)
  return body as unknown as Found
}

/** Waits until all decisions so far are stored or dropped. */
const stored = async ({ events }: App) => {
  events.pipeline?.flush()
  await vi.waitFor(() => expect(events.pipeline?.totals().sinks[0]?.pending).toBe(0), PATIENTLY)
}

describeDatabases('violations', ({ open }) => {
  const serve = async (rules: readonly object[] = [ONE, { ...BAN, endpoint_pattern: '/ban' }]) => {
    const database = await open()
    await migrate(database)
    return { app: await serveApp(rules, undefined, { database }), database }
  }

  /** Three users and two addresses, refused a second apart. */
  const filled = async () => {
    const { app, database } = await serve()
    for (const [client_id, ip_address] of [
      ['alice', '192.0.2.1'],
      ['bob', '192.0.2.1'],
      ['alice', '2001:DB8::1'],
    ]) {
      await app.check({ client_id, ip_address, endpoint: '/ban' })
      app.clock.advanceUs(1_000_000)
    }
    await stored(app)
    return { app, database }
  }

  test('a refusal is written with user, address, endpoint, time and remaining units; an admission is not', async () => {
    const { app } = await serve()
    const request = { client_id: 'alice', ip_address: '::ffff:192.0.2.1', endpoint: '/one', method: 'GET' }
    expect([await app.check(request), await app.check(request)].map(({ allowed }) => allowed)).toEqual([true, false])
    await stored(app)
    expect(await find(app)).toEqual({
      violations: [
        {
          violation_id: expect.any(Number),
          bucket_key: 'one:default:user:alice',
          ...{ user_id: 'alice', ip_address: '192.0.2.1', endpoint: '/one', rule_id: 'one' },
          requested_at: new Date(app.clock.nowUs() / 1000).toISOString(),
          tokens_at_time: 0,
        },
      ],
      next: null,
    })
  })

  test('they are found by user, address, rule and time, newest first', async () => {
    const { app } = await filled()
    const users = async (query: Record<string, string>) => {
      return (await find(app, query)).violations.map(({ user_id, ip_address }) => `${user_id} ${ip_address}`)
    }
    expect(await users({})).toEqual(['alice 2001:db8::1', 'bob 192.0.2.1', 'alice 192.0.2.1'])
    expect(await users({ user_id: 'alice' })).toEqual(['alice 2001:db8::1', 'alice 192.0.2.1'])
    expect(await users({ ip_address: '192.0.2.1' })).toEqual(['bob 192.0.2.1', 'alice 192.0.2.1'])
    expect(await users({ ip_address: '2001:db8:0::1', user_id: 'alice' })).toEqual(['alice 2001:db8::1'])
    expect(await users({ rule_id: 'ban', user_id: 'carol' })).toEqual([])
    expect(await users({ rule_id: 'other' })).toEqual([])
    const since = new Date(app.clock.nowUs() / 1000 - 2000).toISOString()
    expect(await users({ since })).toEqual(['alice 2001:db8::1', 'bob 192.0.2.1'])
  })

  test('paging returns each violation once', async () => {
    const { app } = await serve([{ ...BAN, scope: 'global' }])
    for (let sent = 0; sent < 25; sent += 1) await app.check({ client_id: `user_${sent}` }) // all at one moment
    await stored(app)
    const seen: unknown[] = []
    let after: string | null = null
    do {
      const page: Found = await find(app, { limit: '10', ...(after === null ? {} : { after }) })
      seen.push(...page.violations.map(({ user_id }) => user_id))
      after = page.next
    } while (after !== null)
    expect(seen).toEqual(Array.from({ length: 25 }, (_, index) => `user_${24 - index}`))
  })

  test('SQL in a name is treated as text', async () => {
    const { app, database } = await serve([{ ...BAN, scope: 'per_user' }])
    const client_id = "x'; DROP TABLE violations; --$1 ? ' OR 1=1"
    await app.check({ client_id, endpoint: `/${client_id}` })
    await stored(app)
    expect((await find(app, { user_id: client_id })).violations).toMatchObject([{ user_id: client_id }])
    expect((await find(app, { user_id: "' OR 1=1 --" })).violations).toEqual([])
    expect(await count(database)).toBe(1)
  })

  test('very long names, or a row that the database rejects, do not affect other rows', async () => {
    const { app, database } = await serve([{ ...BAN, scope: 'per_user' }])
    const ideographs = seededRandom(7)
    const long = Array.from({ length: 1023 }, () => String.fromCodePoint(0x4e00 + ideographs.between(0, 20_000))).join(
      '',
    )
    const checks = [
      { client_id: `a${long}`, endpoint: '/long-id' },
      { client_id: 'long-path', endpoint: `/${long.slice(0, 1022)}\u{1f6b0}` }, // its 1024th unit is half a pair
      { client_id: 'refused' },
      { client_id: 'short' },
    ]
    await database.query("ALTER TABLE events ADD CHECK (client_id <> 'refused')")
    await app.post(`${CHECK}/batch`, { checks })
    await stored(app)
    expect(app.events.pipeline?.totals().sinks).toMatchObject([{ stored: 3, dropped: 1 }])
    expect((await find(app)).violations.map(({ user_id }) => String(user_id).length)).toEqual([5, 9, 512])
    expect((await find(app, { user_id: `a${long}` })).violations).toMatchObject([{ endpoint: '/long-id' }])
  })

  test('the earliest and latest times are valid', async () => {
    const { app } = await filled()
    expect((await find(app, { since: '0000-01-01' })).violations).toHaveLength(3)
    expect((await find(app, { since: '9999-12-31' })).violations).toHaveLength(0)
    expect((await find(app, { after: '9999999999999999-9999999999999999' })).violations).toHaveLength(3)
  })

  const HMAC = { eventsKeys: { embedded: 'hmac' }, keySecret: 'a secret of tests' } as const

  test('with hashed keys no key is stored in clear, and a query by key finds its violations', async () => {
    const database = await open()
    await migrate(database)
    const scopes = ['per_user', 'per_ip', ['user', 'ip'], 'global']
    const rules = scopes.map((scope, index) => ({ ...ONE, rule_id: `r${index}`, scope, endpoint_pattern: `/${index}` }))
    const app = await serveApp(rules, undefined, { database, keeps: HMAC })
    const twice = async (client_id: string, ip_address: string, endpoint: string) => {
      for (const _ of ['admitted', 'refused']) await app.check({ client_id, ip_address, endpoint })
    }
    for (const index of scopes.keys()) await twice('alice', '2001:DB8::7', `/${index}`)
    await twice('bob', '192.0.2.1', '/0')
    await stored(app)
    const rows = await database.query('SELECT e::text AS row FROM events e')
    expect(JSON.stringify(rows)).not.toMatch(/alice|bob|192\.0\.2|2001:db8/i)

    const hash = keyHash(HMAC.keySecret)
    const [user_id, ip_address] = [hash('user', 'alice'), hash('ip', '2001:db8::7')].map((digits) => `hmac:${digits}`)
    for (const query of [{ user_id: 'alice' }, { ip_address: '2001:db8:0::7' }, { user_id: user_id ?? '' }]) {
      const { violations } = await find(app, query)
      expect(violations).toHaveLength(scopes.length)
      for (const violation of violations) expect(violation).toMatchObject({ user_id, ip_address })
    }
    const [ofUser] = (await find(app, { rule_id: 'r0', user_id: 'alice' })).violations
    expect(ofUser).toMatchObject({ bucket_key: `r0:default:user:${user_id}` })
    const [ofAll] = (await find(app, { rule_id: 'r3' })).violations
    expect(ofAll).toMatchObject({ bucket_key: 'r3:default::' })
  })

  test('while some nodes write hashes and others plain keys, every node finds both', async () => {
    const { app: inClear, database } = await serve()
    const hashed = await serveApp([{ ...BAN, rule_id: 'other' }], undefined, { database, keeps: HMAC })
    await inClear.check({ client_id: 'alice', ip_address: '192.0.2.1', endpoint: '/ban' })
    await hashed.check({ client_id: 'alice', ip_address: '192.0.2.1' })
    await Promise.all([stored(inClear), stored(hashed)])
    const keySecret = HMAC.keySecret
    const both = [hashed, await serveApp([ONE], undefined, { database, keeps: { keySecret } })]
    for (const node of both) {
      for (const query of [{ user_id: 'alice' }, { ip_address: '192.0.2.1' }]) {
        expect((await find(node, query)).violations).toHaveLength(2)
      }
    }
    expect((await find(inClear, { user_id: 'alice' })).violations, 'without the secret').toHaveLength(1)
  })

  test('a shorter retention applies to earlier rows, immediately for readers', async () => {
    const { app, database } = await filled() // 0, 1 and 2 s after the start of every clock
    const keeps = { eventsRetentionMs: 60_000 }
    const later = await serveApp([ONE], undefined, { database, keeps })
    expect((await find(later)).violations).toHaveLength(3)
    later.clock.advanceUs(61_500_000)
    expect((await find(app)).violations).toHaveLength(3)
    expect((await find(later, { since: '2001-01-01' })).violations).toHaveLength(1)
    await vi.waitFor(async () => expect(await count(database)).toBe(1), PATIENTLY)
  })

  test('a retention of 0 deletes everything and writes nothing', async () => {
    const { database } = await filled()
    const keeps = { eventsRetentionMs: 0 }
    const app = await serveApp([BAN], undefined, { database, keeps })
    expect(await app.check({ client_id: 'alice', ip_address: '192.0.2.1' })).toMatchObject({ allowed: false })
    expect(app.events.pipeline).toBeUndefined()
    app.clock.advanceUs(10_000_000)
    await vi.waitFor(async () => expect(await count(database)).toBe(0), PATIENTLY)
    expect((await find(app)).violations).toEqual([])
  })

  test('several nodes delete concurrently, in batches, and only expired rows', async () => {
    const { app, database } = await filled()
    await database.query(`${INSERT_OLD} FROM generate_series(1, 12000)`)
    const nodes = [await serveApp([ONE], undefined, { database }), await serveApp([ONE], undefined, { database })]
    await vi.waitFor(async () => expect(await count(database)).toBe(3), PATIENTLY)
    for (const { logged } of [app, ...nodes]) expect(JSON.stringify(logged)).not.toContain('retention_failed')
  })

  test('expired ones are deleted', async () => {
    const { database } = await serve()
    await database.query(`${INSERT_OLD} FROM generate_series(1, 6000)`)
    await serveApp([ONE], undefined, { database })
    await vi.waitFor(async () => expect(await count(database)).toBe(0), PATIENTLY)
  })

  test('refusals beyond the rate cap are dropped and counted, and checks are not affected', async () => {
    const { app } = await serve([{ ...BAN, scope: 'global' }])
    const checks = Array.from({ length: 1000 }, () => ({ client_id: 'alice' }))
    for (let batch = 0; batch < 6; batch += 1) {
      const { body } = await app.post(`${CHECK}/batch`, { checks })
      expect((body.results as { allowed: boolean }[]).every(({ allowed }) => allowed === false)).toBe(true)
    }
    await app.events.close()
    const { stored = 0, dropped = 0, pending } = app.events.pipeline?.totals().sinks[0] ?? {}
    expect({ sum: stored + dropped, pending }).toEqual({ sum: 6000, pending: 0 })
    expect(stored).toBeGreaterThanOrEqual(1000)
    const text = String((await app.get('/metrics')).body.text)
    expect(text).toContain(`sluice_events_dropped_total{sink="embedded"} ${dropped}`)
  })
})

test('without a database they are not available', async () => {
  const app = await serveApp([ONE])
  expect(await app.get(VIOLATIONS_PATH, ADMIN_TOKEN)).toMatchObject({ status: 409, body: { code: 'NO_DATABASE' } })
})

test.each([
  [{ ip_address: 'x' }, 'ip_address', 'give an IPv4 or IPv6 address, such as 203.0.113.42'],
  [{ since: 'yesterday' }, 'since', 'give a time such as 2030-01-31T12:00:00Z'],
  [{ since: '7' }, 'since', 'give a time such as 2030-01-31T12:00:00Z'],
  [{ after: 'x' }, 'after', 'give the `next` of the previous page'],
  [{ limit: '0' }, 'limit', 'give a whole number from 1 to 1000'],
  [{ userid: 'x' }, 'userid', 'unknown field; did you mean "user_id"?'],
])('%j is a 400', async (query, field, fix) => {
  const app = await serveApp([ONE])
  const { status, body } = await app.get(`${VIOLATIONS_PATH}?${new URLSearchParams(query)}`, ADMIN_TOKEN)
  expect(status).toBe(400)
  expect(body.errors).toMatchObject([{ field, fix }])
})

async function count(database: Database): Promise<number> {
  const [row] = await database.query<{ count: number }>('SELECT count(*) AS count FROM violations', [])
  return row?.count ?? -1
}
