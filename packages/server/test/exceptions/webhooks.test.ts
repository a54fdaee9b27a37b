// Events of exceptions reach webhooks with evidence, and without the client in plain text.

import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { expect, onTestFinished, test, vi } from 'vitest'
import { INCIDENT_PATH } from '../../src/http/routes/incident.ts'
import { ADMIN_TOKEN, serveEmbedded } from '../service.ts'

const PATIENTLY = { timeout: 20_000, interval: 50 }

type Event = { readonly type: string; readonly data: Record<string, unknown> }

async function receiver(): Promise<{ url: string; events: Event[]; bodies: string[] }> {
  const events: Event[] = []
  const bodies: string[] = []
  const server = createServer(async (request, response) => {
    const body = await text(request)
    bodies.push(body)
    events.push(JSON.parse(body) as Event)
    response.writeHead(200, { connection: 'close' }).end()
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, events, bodies }
}

test('guesses of bypass tokens and incidents are sent to webhooks', { timeout: 60_000 }, async () => {
  const { url, events, bodies } = await receiver()
  const hooks = { webhooks: [url], webhookSecret: 'a secret of webhooks' }
  const { post, check } = await serveEmbedded({ adminToken: ADMIN_TOKEN, ...hooks })
  const received = (type: string, data: object) =>
    vi.waitFor(() => expect(events).toContainEqual(expect.objectContaining({ type, data })), PATIENTLY)
  for (let sent = 0; sent < 40; sent += 1) await check({ ip_address: '192.0.2.77', bypass_token: `guess ${sent}` })
  await received('bypass.guessing', { fact: 'ip', key_hash: expect.any(String), refused: 1 })
  await post(`${INCIDENT_PATH}/factor`, { factor: 0.5, expires_in: '1h', reason: 'test' }, ADMIN_TOKEN)
  await received('incident.changed', { incident: expect.stringMatching(/^all limits × 0.5 until /) })
  expect(bodies.join()).not.toMatch(/192\.0\.2\.77|guess \d/)
})
