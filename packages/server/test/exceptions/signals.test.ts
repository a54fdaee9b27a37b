import { beforeEach, describe, expect, test, vi } from 'vitest'
import type { Database } from '../../src/db/database.ts'
import { Detectors } from '../../src/exceptions/detectors.ts'
import { EXPLAIN_PATH } from '../../src/http/routes/explain.ts'
import { SIGNALS_PATH } from '../../src/http/routes/signals.ts'
import { describeDatabases } from '../databases.ts'
import { ADMIN_TOKEN, type App, serveApp } from '../service.ts'
import { admitted, audited, type Body, metricOf, nodeWith, remove } from './node.ts'

const RULES = [
  {
    ...{ rule_id: 'login', endpoint_pattern: '/login', scope: 'per_ip', limit: 10, window: '1d' },
    on_signal: {
      credential_stuffing: { factor: 0.1 },
      scraping: { factor: 0.5, min_severity: 'high' },
      many_refusals: { factor: 0.2 },
      many_keys: { factor: 0.2 },
    },
  },
  { rule_id: 'other', endpoint_pattern: '/other', scope: 'per_ip', limit: 3, window: '1d' },
]
const SIGNAL = { key: 'ip:192.0.2.1', kind: 'credential_stuffing', severity: 'high', ttl_seconds: 60 }
const REQUEST = { ip_address: '192.0.2.1', endpoint: '/login' }

const send = (app: App, body: Body = {}) => app.post(SIGNALS_PATH, { ...SIGNAL, ...body }, ADMIN_TOKEN)
const limitOf = async (app: App, request: Body = REQUEST) =>
  ((await app.post(EXPLAIN_PATH, request, ADMIN_TOKEN)).body.answer as Body).limit

describeDatabases('signals', ({ open }) => {
  let database: Database
  beforeEach(async () => {
    database = await open()
  })

  test('tighten the rules that list their kind, for their key, until they expire', async () => {
    const app = await nodeWith(database, RULES)
    const { status, body } = await send(app, { source: 'waf' })
    expect([status, body]).toEqual([
      202,
      {
        signal_id: expect.stringMatching(/^sig_/),
        expires_at: new Date(app.clock.nowUs() / 1000 + 60_000).toISOString(),
      },
    ])
    expect(await admitted(app, REQUEST)).toBe(1)
    expect(await admitted(app, { ...REQUEST, endpoint: '/other' })).toBe(3)
    expect(await admitted(app, { ...REQUEST, ip_address: '192.0.2.2' })).toBe(5)
    const explained = await app.post(EXPLAIN_PATH, REQUEST, ADMIN_TOKEN)
    expect(explained.body.exceptions).toEqual([
      { kind: 'signal', signal: 'credential_stuffing', rule_id: 'login', factor: 0.1 },
    ])
    expect((await app.get(SIGNALS_PATH)).body.signals).toMatchObject([{ ...SIGNAL_LISTED, source: 'waf' }])
    expect(await audited(app, 'signal.*')).toMatchObject([{ action: 'signal.send', target: body.signal_id }])
    expect(await metricOf(app, 'sluice_signals')).toBe(1)
    app.clock.advanceMs(60_000)
    expect(await limitOf(app)).toBe(10)
    expect((await app.get(SIGNALS_PATH)).body.signals).toEqual([])
    await app.events.pipeline?.close()
    const rows = await database.query("SELECT DISTINCT signal FROM events WHERE rule_id = 'login' AND NOT allowed")
    expect(rows).toEqual([{ signal: 'credential_stuffing' }])
  })

  test('the strongest wins, and severities below the minimum do nothing', async () => {
    const app = await nodeWith(database, RULES)
    await send(app, { kind: 'scraping', severity: 'medium' })
    expect(await limitOf(app)).toBe(10)
    await send(app, { kind: 'scraping', severity: 'critical', ttl_seconds: 30 })
    expect(await limitOf(app)).toBe(5)
    const { body } = await send(app)
    expect(await limitOf(app)).toBe(1)
    expect((await remove(app, `${SIGNALS_PATH}/${body.signal_id}`)).status).toBe(204)
    expect((await remove(app, `${SIGNALS_PATH}/${body.signal_id}`)).status).toBe(404)
    expect(await limitOf(app)).toBe(5)
    app.clock.advanceMs(30_000)
    expect(await limitOf(app)).toBe(10)
  })

  test('a repeated signal extends its row, so a flood of signals does not fill the table', async () => {
    const app = await nodeWith(database, RULES)
    const first = await send(app)
    const again = await send(app, { ttl_seconds: 600 })
    const shorter = await send(app, { ttl_seconds: 1 })
    expect([again.body.signal_id, shorter.body.signal_id]).toEqual([first.body.signal_id, first.body.signal_id])
    const expires_at = new Date(app.clock.nowUs() / 1000 + 600_000).toISOString()
    expect((await app.get(SIGNALS_PATH)).body.signals).toMatchObject([{ expires_at }])
    expect(await audited(app, 'signal.send')).toHaveLength(3)
  })

  test('a signal that no rule reacts to is accepted with a warning', async () => {
    const app = await nodeWith(database, RULES)
    const { status, body } = await send(app, { kind: 'constructor' })
    expect([status, body.warnings]).toEqual([202, [expect.stringContaining('on_signal')]])
  })

  test('bad input is a 400 that names field, value and fix', async () => {
    const app = await nodeWith(database, RULES)
    const mistakes: [Body, string, RegExp][] = [
      [{ key: 'alice' }, 'key', /user:alice/],
      [{ kind: 'Bad Kind' }, 'kind', /a-z/],
      [{ severity: 'extreme' }, 'severity', /low, medium, high, critical/],
      [{ severity: 0.9 }, 'severity', /low, medium, high, critical/],
      [{ ttl_seconds: 0 }, 'ttl_seconds', /from 1 to/],
      [{ ttl_seconds: 1e9 }, 'ttl_seconds', /from 1 to/],
      [{ ttl: 5 }, 'ttl', /ttl_seconds/],
    ]
    for (const [body, field, fix] of mistakes) {
      const { status, body: answer } = await send(app, body)
      expect([body, status, answer.errors]).toMatchObject([body, 400, [{ field, fix: expect.stringMatching(fix) }]])
    }
  })

  test('detectors send a signal with evidence for refusals and for many keys of one address', async () => {
    const detectRefusals = { count: 2, windowMs: 60_000 }
    const app = await nodeWith(database, RULES, { detectRefusals, detectKeys: { count: 3, windowMs: 60_000 } })
    await admitted(app, { ...REQUEST, endpoint: '/other' }, 6)
    await vi.waitFor(async () =>
      expect((await app.get(SIGNALS_PATH)).body.signals).toMatchObject([
        {
          ...{ key: 'ip:192.0.2.1', kind: 'many_refusals', source: 'detector', by: 'detector' },
          evidence: { count: 3, threshold: 2, window_seconds: 60, rule_id: 'other', endpoint: '/other' },
        },
      ]),
    )
    for (let user = 0; user < 9; user += 1)
      await app.check({ client_id: `user ${user}`, ip_address: '192.0.2.9', endpoint: '/login' })
    await vi.waitFor(async () =>
      expect((await app.get(`${SIGNALS_PATH}?kind=many_keys`)).body.signals).toMatchObject([
        { key: 'ip:192.0.2.9', evidence: { count: 4 } },
      ]),
    )
    expect(app.logged).not.toContainEqual(expect.objectContaining({ event: 'detectors_per_process' }))
    expect(await limitOf(app)).toBe(2)
    expect(await metricOf(app, 'sluice_signals_detected_total{kind="many_keys"}')).toBe(1)
    const logged = expect.objectContaining({ event: 'signal_detected', kind: 'many_keys' })
    await vi.waitFor(() => expect(app.logged).toContainEqual(logged))
  })

  test('detectors say at the start that they count per process, if there may be others', async () => {
    const app = await nodeWith(database, RULES, { detectKeys: { count: 3, windowMs: 60_000 }, workers: 4 })
    const logged = expect.objectContaining({ event: 'detectors_per_process', workers: 4 })
    await vi.waitFor(() => expect(app.logged).toContainEqual(logged))
  })
})

const { ttl_seconds: _ttl, ...SIGNAL_LISTED } = SIGNAL

describe('without a database', () => {
  test('every route answers 409', async () => {
    const app = await serveApp([])
    expect(await send(app)).toMatchObject({ status: 409, body: { code: 'NO_DATABASE' } })
    expect((await app.get(SIGNALS_PATH, ADMIN_TOKEN)).status).toBe(409)
  })
})

describe('detectors', () => {
  const allowed = { allowed: true, ruleId: 'r' } as never

  test('report an address once per window, and count a repeated user once', () => {
    const detectors = new Detectors({ detectRefusals: undefined, detectKeys: { count: 2, windowMs: 1000 } }, 64)
    const sent = (user: string, nowMs: number, ip = '2001:db8::1') => detectors.record({ ip, user }, allowed, nowMs)
    expect([sent('a', 0), sent('a', 1), sent('b', 2)]).toEqual([undefined, undefined, undefined])
    expect(sent('c', 3, '2001:db8::2')).toMatchObject({ kind: 'many_keys', key: { owner: '2001:db8::/64' } })
    expect([sent('d', 4), sent('a', 1000), sent('b', 1001)]).toEqual([undefined, undefined, undefined])
    expect(sent('c', 1002)).toBeDefined()
  })

  test('stay within their memory when addresses are made up', () => {
    const detectors = new Detectors({ detectRefusals: undefined, detectKeys: { count: 2, windowMs: 1e9 } }, 64)
    for (let index = 0; index < 250_000; index += 1)
      detectors.record({ ip: `10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`, user: 'u' }, allowed, 0)
    expect(detectors.record({ ip: '192.0.2.1', user: 'a' }, allowed, 0)).toBeUndefined()
  })
})
