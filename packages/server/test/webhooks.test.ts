import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { KILL_SWITCH_PATH } from '../src/http/routes/kill-switch.ts'
import { readCommand } from '../src/settings/command-line.ts'
import { type NodeState, tellDifferences } from '../src/webhooks/node-watch.ts'
import { Webhooks } from '../src/webhooks/webhooks.ts'
import { ADMIN_TOKEN, captureLog, serveFile } from './service.ts'

const SECRET = 'a secret of webhooks'
const PATIENTLY = { timeout: 10_000, interval: 20 }

type Received = { readonly headers: IncomingHttpHeaders; readonly body: string; readonly path: string }

/** A receiver that answers with these statuses, the last of them for ever. */
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
  test('carries the event, and a signature over time and body that the receiver can check', async () => {
    const { url, received } = await receiver(200)
    webhooksTo(url).tell('rules.changed', { from: 1, to: 2 })
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

  test('is sent again until it arrives, under the same id and in order', async () => {
    const { url, received } = await receiver(500, 503, 200)
    const webhooks = webhooksTo(url)
    webhooks.tell('node.degraded', {})
    webhooks.tell('node.recovered', {})
    await vi.waitFor(() => expect(webhooks.delivered).toBe(2), PATIENTLY)
    expect(received.map(({ headers }) => headers['sluice-event'])).toEqual([
      ...['node.degraded', 'node.degraded', 'node.degraded', 'node.recovered'],
    ])
    expect(new Set(received.map(({ headers }) => headers['sluice-event-id'])).size).toBe(2)
  })

  test('goes where the settings say and nowhere else: redirects are not followed', async () => {
    const { url, received } = await receiver(302, 307, 200)
    const webhooks = webhooksTo(url)
    webhooks.tell('node.degraded', {})
    await vi.waitFor(() => expect(webhooks.delivered).toBe(1), PATIENTLY)
    expect(received.map(({ path }) => path)).toEqual(['/hook', '/hook', '/hook'])
  })

  test('that nobody takes is given up and counted, and holds up no other receiver', async () => {
    const { url, received } = await receiver(200)
    const webhooks = webhooksTo('http://127.0.0.1:1/', url)
    for (let sent = 0; sent < 3; sent += 1) webhooks.tell('node.degraded', { sent })
    await vi.waitFor(() => expect(received).toHaveLength(3), PATIENTLY)
    await webhooks.close()
    expect(webhooks).toMatchObject({ delivered: 3, dropped: 3 })
  })

  test('a queue has room for 1000, and what comes then is dropped and counted', async () => {
    const webhooks = webhooksTo('http://127.0.0.1:1/')
    for (let sent = 0; sent < 1010; sent += 1) webhooks.tell('node.degraded', {})
    expect(webhooks.dropped).toBe(10)
  })
})

test.each(['http://a.example', 'https://u:p@a.example', 'ftp://a.example', 'a.example', 'https://a.example,'])(
  'the setting %s is refused, and not shown',
  (url) => {
    const command = readCommand(['--webhooks', url, '--webhook-secret', SECRET], {})
    expect(command).toMatchObject({ kind: 'wrong', faults: [{ field: '--webhooks', value: undefined }] })
  },
)

describe('what a node tells', () => {
  const WELL: NodeState = { rulesVersion: 1, rules: 3, trouble: [], killed: undefined }

  test.each<[string, Partial<NodeState>, Partial<NodeState>, unknown[][]]>([
    ['nothing', {}, {}, []],
    ['a change of rules', {}, { rulesVersion: 4, rules: 5 }, [['rules.changed', { from: 1, to: 4, rules: 5 }]]],
    ['trouble', {}, { trouble: ['store: X'] }, [['node.degraded', { trouble: ['store: X'] }]]],
    ['more trouble, no news', { trouble: ['a'] }, { trouble: ['a', 'b'] }, []],
    ['its end', { trouble: ['a'] }, {}, [['node.recovered', {}]]],
    [
      'the kill switch',
      {},
      { killed: 'nothing is enforced' },
      [['kill_switch.changed', { killed: 'nothing is enforced' }]],
    ],
    ['its end, too', { killed: 'x' }, {}, [['kill_switch.changed', { killed: null }]]],
  ])('%s', (_name, before, now, told) => {
    const tell = vi.fn()
    tellDifferences({ ...WELL, ...before }, { ...WELL, ...now }, tell)
    expect(tell.mock.calls).toEqual(told)
  })

  test('reaches the receivers of a running service', async () => {
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
