import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { clickHouseMissing, startClickHouse } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { mergeStates } from '../src/fleet/webhook-state.ts'
import { KILL_SWITCH_PATH } from '../src/http/routes/kill-switch.ts'
import { WEBHOOKS_PATH } from '../src/http/routes/webhooks.ts'
import { startServer } from '../src/service/server.ts'
import { readCommand } from '../src/settings/command-line.ts'
import type { Settings } from '../src/settings/settings.ts'
import { SAMPLE_MS } from '../src/webhooks/node-alerts.ts'
import { type NodeState, sendDifferences } from '../src/webhooks/node-watch.ts'
import { EVENT_TYPES, Webhooks } from '../src/webhooks/webhooks.ts'
import {
  ADMIN_TOKEN,
  BATCH,
  type Client,
  captureLog,
  clientOf,
  defaults,
  ruleFile,
  serveApp,
  serveFile,
} from './service.ts'

const SECRET = 'a secret of webhooks'
const PATIENTLY = { timeout: 10_000, interval: 20 }
/** A sink waits up to 10 s between retries. */
const SLOWLY = { timeout: 60_000, interval: 50 }

type Received = { readonly headers: IncomingHttpHeaders; readonly body: string; readonly path: string }

/** A receiver that answers with these statuses, the last one repeatedly. */
async function receiver(...statuses: number[]): Promise<{ url: string; received: Received[] }> {
  const received: Received[] = []
  const server = createServer(async (request, response) => {
    received.push({ headers: request.headers, body: await text(request), path: request.url ?? '' })
    const status = statuses.length > 1 ? statuses.shift() : statuses[0]
    response.writeHead(status ?? 200, { location: '/elsewhere', connection: 'close' }).end('x'.repeat(1000))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`, received }
}

function webhooksTo(...urls: string[]): Webhooks {
  const webhooks = new Webhooks({ urls, secret: SECRET, log: captureLog().log, retryMs: 1 })
  onTestFinished(() => webhooks.close())
  return webhooks
}

describe('a webhook', () => {
  test('carries the event, and a signature over time and body that the receiver can verify', async () => {
    const { url, received } = await receiver(200)
    webhooksTo(url).send('rules.changed', { from: 1, to: 2 })
    await vi.waitFor(() => expect(received).toHaveLength(1), PATIENTLY)
    const { headers, body } = received[0] as Received
    const event = JSON.parse(body)
    expect(event).toEqual({
      ...{ id: expect.stringMatching(/^[\da-f-]{36}$/), type: 'rules.changed', node: expect.any(String) },
      ...{ at: expect.stringMatching(/^\d{4}-/), data: { from: 1, to: 2 } },
    })
    expect(headers).toMatchObject({ 'sluice-event': 'rules.changed', 'sluice-event-id': event.id })
    const [, time, sent] = /^t=(\d+),v1=([\da-f]{64})$/.exec(String(headers['sluice-signature'])) ?? []
    expect(sent).toBe(createHmac('sha256', SECRET).update(`${time}.${body}`).digest('hex'))
  })

  test('is retried until it arrives, with the same id and in order', async () => {
    const { url, received } = await receiver(500, 503, 200)
    const webhooks = webhooksTo(url)
    webhooks.send('node.degraded', {})
    webhooks.send('node.recovered', {})
    await vi.waitFor(() => expect(webhooks.delivered).toBe(2), PATIENTLY)
    expect(received.map(({ headers }) => headers['sluice-event'])).toEqual([
      ...['node.degraded', 'node.degraded', 'node.degraded', 'node.recovered'],
    ])
    expect(new Set(received.map(({ headers }) => headers['sluice-event-id'])).size).toBe(2)
  })

  test('tells its host, deliveries and last error, but not its URL', async () => {
    const { url } = await receiver(503)
    const webhooks = webhooksTo(url)
    const host = new URL(url).host
    const state = { host, delivered: 0, dropped: 0, pending: 0, last_delivered_at: null, last_error: null }
    expect(webhooks.states()).toEqual([state])
    webhooks.send('node.degraded', {})
    const failed = { ...state, pending: 1, last_error: { at: expect.any(String), reason: 'status 503' } }
    await vi.waitFor(() => expect(webhooks.states()).toEqual([failed]), PATIENTLY)
    const { get } = await serveApp([])
    expect(await get(WEBHOOKS_PATH, ADMIN_TOKEN)).toMatchObject({ status: 200, body: { webhooks: [] } })
  })

  test('has the deliveries of all workers, and an error only until the next delivery', () => {
    const state = { host: 'a', delivered: 1, dropped: 0, pending: 2, last_delivered_at: '2026-01-01', last_error: null }
    const before = { ...state, last_delivered_at: null, last_error: { at: '2025-12-31', reason: 'status 503' } }
    expect(mergeStates([[state], [before]])).toEqual([{ ...state, delivered: 2, pending: 4 }])
    const after = { ...before, last_error: { at: '2026-01-02', reason: 'status 503' } }
    expect(mergeStates([[state], [after]])[0]?.last_error).toEqual(after.last_error)
  })

  test('is sent to the configured URL only: redirects are not followed', async () => {
    const { url, received } = await receiver(302, 307, 200)
    const webhooks = webhooksTo(url)
    webhooks.send('node.degraded', {})
    await vi.waitFor(() => expect(webhooks.delivered).toBe(1), PATIENTLY)
    expect(received.map(({ path }) => path)).toEqual(['/hook', '/hook', '/hook'])
  })

  test('that never arrives is dropped and counted, and does not delay other receivers', async () => {
    const { url, received } = await receiver(200)
    const webhooks = webhooksTo('http://127.0.0.1:1/', url)
    for (let sent = 0; sent < 3; sent += 1) webhooks.send('node.degraded', { sent })
    await vi.waitFor(() => expect(webhooks.delivered).toBe(3), PATIENTLY)
    await webhooks.close()
    expect([received.length, webhooks.dropped]).toEqual([3, 3])
  })

  test('a queue holds 1000 events, and further ones are dropped and counted', async () => {
    const webhooks = webhooksTo('http://127.0.0.1:1/')
    for (let sent = 0; sent < 1010; sent += 1) webhooks.send('node.degraded', {})
    expect(webhooks.dropped).toBe(10)
  })
})

test.each(['http://a.example', 'https://u:p@a.example', 'ftp://a.example', 'a.example', 'https://a.example,'])(
  'the setting %s is refused, and not shown',
  (url) => {
    const command = readCommand(['--webhooks', url, '--webhook-secret', SECRET], {})
    expect(command).toMatchObject({ kind: 'wrong', fieldErrors: [{ field: '--webhooks', value: undefined }] })
  },
)

test('access.md lists every event', () => {
  const page = readFileSync(new URL('../../../docs/guides/access.md', import.meta.url), 'utf8')
  const table = page.slice(page.indexOf('| event | `data` |'), page.indexOf('| event | sent when |'))
  const listed = [...table.matchAll(/^\| (`[^|]+`) \|/gm)].flatMap(([, names = '']) => names.match(/[a-z_.]+/g) ?? [])
  expect(listed.filter((name) => name !== 'data').sort()).toEqual([...EVENT_TYPES].sort())
})

describe('events of a node', () => {
  const HEALTHY: NodeState = { rulesVersion: 1, rules: 3, reasons: [], killed: undefined }

  test.each<[string, Partial<NodeState>, Partial<NodeState>, unknown[][]]>([
    ['nothing', {}, {}, []],
    ['a change of rules', {}, { rulesVersion: 4, rules: 5 }, [['rules.changed', { from: 1, to: 4, rules: 5 }]]],
    ['degraded', {}, { reasons: ['store: X'] }, [['node.degraded', { reasons: ['store: X'] }]]],
    ['another reason sends nothing', { reasons: ['a'] }, { reasons: ['a', 'b'] }, []],
    ['recovered', { reasons: ['a'] }, {}, [['node.recovered', {}]]],
    [
      'the kill switch',
      {},
      { killed: 'all rules are disabled' },
      [['kill_switch.changed', { killed: 'all rules are disabled' }]],
    ],
    ['its end, too', { killed: 'x' }, {}, [['kill_switch.changed', { killed: null }]]],
  ])('%s', (_name, before, now, events) => {
    const send = vi.fn()
    sendDifferences({ ...HEALTHY, ...before }, { ...HEALTHY, ...now }, send)
    expect(send.mock.calls).toEqual(events)
  })

  test('reach the receivers of a running service', async () => {
    const { url, received } = await receiver(200)
    const rule = (limit: number) => `- { rule_id: one, limit: ${limit}, window: 1d }\n`
    const service = await serveFile(rule(1), { webhooks: [url], webhookSecret: SECRET })
    writeFileSync(service.rulesPath, rule(2))
    await service.post(KILL_SWITCH_PATH, { rule_id: 'one', on: true }, ADMIN_TOKEN)
    const types = () => received.map(({ headers }) => headers['sluice-event']).sort()
    await vi.waitFor(
      () => expect(types()).toEqual(['kill_switch.changed', 'node.degraded', 'rules.changed']),
      PATIENTLY,
    )
    await vi.waitFor(async () => {
      expect(String((await service.get('/metrics')).body.text)).toContain('sluice_webhooks_delivered_total 3')
    }, PATIENTLY)
  })
})

/** A service that samples its figures often; its clock moves by one sampling interval each time. */
async function serveFast(
  rules: string,
  settings: Partial<Settings>,
): Promise<Client & { samples(): number; received: readonly Received[] }> {
  const { url, received } = await receiver(200)
  let samples = 0
  const clock = {
    nowUs: () => {
      samples += 1
      return samples * SAMPLE_MS * 1000
    },
  }
  const own = { rules: ruleFile(rules), webhooks: [url], webhookSecret: SECRET, adminToken: ADMIN_TOKEN, port: 0 }
  const timing = { clock, sampleMs: 20 }
  const server = await startServer({ ...defaults(), ...own, ...settings }, captureLog().log, undefined, timing)
  onTestFinished(() => server.close())
  return { ...clientOf(server.address), samples: () => samples, received }
}

describe('events from the figures of a running service', () => {
  const dataOf = (received: readonly Received[], type: string) =>
    received.filter(({ headers }) => headers['sluice-event'] === type).map(({ body }) => JSON.parse(body).data)

  test('a refusal spike, with the rules that refuse and without clients, and its end', async () => {
    const rules = '- { rule_id: strict, limit: 1, window: 1d, scope: per_user }\n'
    const service = await serveFast(rules, {})
    await vi.waitFor(() => expect(service.samples()).toBeGreaterThan(15), PATIENTLY) // the baseline
    const checks = Array.from({ length: 500 }, () => ({ client_id: 'alice' }))
    expect((await service.post(BATCH, { checks })).status).toBe(200)
    await vi.waitFor(() => expect(dataOf(service.received, 'refusals.normal')).toHaveLength(1), PATIENTLY)
    expect(dataOf(service.received, 'refusals.spike')).toEqual([
      {
        ...{ refused_share: expect.closeTo(1, 1), baseline_share: 0 },
        ...{ refused: expect.any(Number), checks: expect.any(Number) },
        top_rules: [{ rule_id: 'strict', refused: expect.any(Number) }],
      },
    ])
    expect(service.received.map(({ body }) => body).join()).not.toContain('alice')
  })

  test.skipIf(clickHouseMissing())('a sink that is down, and up again', async () => {
    const clickHouse = await startClickHouse()
    onTestFinished(() => clickHouse.stop())
    const rules = '- { rule_id: strict, limit: 1, window: 1d }\n'
    const service = await serveFast(rules, { eventsSinks: [{ kind: 'clickhouse', target: clickHouse.url }] })
    await clickHouse.kill()
    await service.check({ client_id: 'alice' })
    await vi.waitFor(() => expect(dataOf(service.received, 'sink.down')).toHaveLength(1), SLOWLY)
    expect(dataOf(service.received, 'sink.down')).toEqual([{ sink: 'clickhouse', pending: 1, dropped: 0 }])
    await clickHouse.restart()
    await vi.waitFor(() => expect(dataOf(service.received, 'sink.up')).toHaveLength(1), SLOWLY)
    expect(dataOf(service.received, 'sink.up')).toEqual([
      { sink: 'clickhouse', pending: 0, dropped: 0, seconds: expect.any(Number) },
    ])
  })
})
