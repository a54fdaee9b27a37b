import { beforeEach, describe, expect, test } from 'vitest'
import type { Database } from '../../src/db/database.ts'
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
      [{ key: 'user:hmac:0123456789abcdef' }, 'key', /give the key itself/],
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
})

const { ttl_seconds: _ttl, ...SIGNAL_LISTED } = SIGNAL

describe('without a database', () => {
  test('every route answers 409', async () => {
    const app = await serveApp([])
    expect(await send(app)).toMatchObject({ status: 409, body: { code: 'NO_DATABASE' } })
    expect((await app.get(SIGNALS_PATH, ADMIN_TOKEN)).status).toBe(409)
  })
})
