// Every attack in every text that operators and other systems choose: reasons, sources of signals, URLs of webhooks.

import { describe, expect, it, onTestFinished } from 'vitest'
import { visit } from '../chromium.ts'
import type { Dashboard } from '../dashboard.ts'
import { ATTACKS } from '../fixture.ts'

const API = '/api/v1/rate-limit'
/** A reason that contains every attack. */
const ALL = ATTACKS.join(' ')

export function hostileTextTests(dashboard: Dashboard): void {
  describe('texts of operators and other systems', () => {
    it('are shown as text: reasons, and sources of signals', async () => {
      const { call } = dashboard.fixture
      onTestFinished(await hostileState(call))
      const { page } = await dashboard.open('admin', '/incident')
      await page.getByText('Frozen', { exact: true }).waitFor()
      const shown: string[] = []
      for (const path of [
        '/incident',
        '/',
        '/exceptions',
        '/exceptions?kind=signals',
        '/clients/hostile_0',
        '/rules',
      ]) {
        await visit(page, path)
        if (path === '/exceptions') await page.getByText('hostile_0').waitFor()
        if (path.endsWith('signals')) await page.getByText('198.51.100.0').first().waitFor()
        shown.push(await page.locator('main').innerText())
      }
      const [incident = '', , overrides = '', signals = ''] = shown
      expect(incident.split(ALL).length - 1, 'reasons of freeze, kill switch and factor').toBeGreaterThanOrEqual(2)
      for (const attack of ATTACKS) {
        expect(overrides).toContain(attack)
        expect(signals).toContain(attack)
      }
      expect(await page.evaluate('window.attacked')).toBeUndefined()
    })

    it('are shown as text: request ids, attributes, names of nodes and regions', async () => {
      const { call } = dashboard.fixture
      const ids = ATTACKS.filter((attack) => !/[{}]/.test(attack)) // others are refused
      const checks = ids.map((attack) => ({
        ...{ client_id: 'hostile_ids', endpoint: '/api/v1/messages', method: 'POST' },
        ...{ request_id: attack, attributes: { device: attack } },
      }))
      await call(`${API}/check/batch`, { checks })
      const { page } = await dashboard.open('viewer', '/live?client=hostile_ids')
      const rows = page.getByRole('button', { name: /hostile_ids/ })
      await expect.poll(() => rows.count(), { timeout: 30_000 }).toBe(ids.length)
      const shown: string[] = []
      for (const row of await rows.all()) {
        await row.click()
        shown.push(await page.getByRole('dialog').innerText())
        await page.keyboard.press('Escape')
      }
      for (const attack of ids)
        expect(
          shown.some((text) => text.includes(attack)),
          attack,
        ).toBe(true)
      const fleet = (await call('/api/v1/fleet')) as { nodes: object[]; alerts: object[] }
      const nodes = ATTACKS.map((attack) => ({ ...fleet.nodes[0], node: attack, region: attack, address: attack }))
      const alerts = ATTACKS.map((attack) => ({
        node: attack,
        type: attack,
        for_seconds: 1,
        data: { reasons: [attack] },
      }))
      const state = JSON.stringify({ ...fleet, nodes, alerts })
      const stream = { contentType: 'text/event-stream', body: `event: fleet\ndata: ${state}\n\n` }
      await page.route(/fleet\/stream/, (route) => route.fulfill(stream))
      await visit(page, '/')
      const overview = await page.locator('main').innerText()
      for (const attack of ATTACKS) expect(overview).toContain(attack)
      expect(await page.evaluate('window.attacked')).toBeUndefined()
    })

    it('are refused as kinds of signals, and URLs of webhooks never reach the browser', async () => {
      const { call, webhook } = dashboard.fixture
      for (const kind of ATTACKS) {
        await expect(call(`${API}/signals`, { ...SIGNAL, key: 'user:kind', kind })).rejects.toThrow(/400/)
      }
      const { page } = await dashboard.open('admin', '/settings')
      const bodies: Promise<string>[] = []
      page.on('response', (response) => {
        const isStream = response.headers()['content-type']?.includes('event-stream') // never ends
        if (!isStream) bodies.push(response.text().catch(() => ''))
      })
      await page.reload()
      await page.getByRole('region', { name: 'Webhooks' }).last().getByRole('row').nth(1).waitFor()
      expect((await Promise.all(bodies)).filter((body) => body.includes(webhook))).toEqual([])
      expect(await page.content()).not.toContain(webhook)
      expect(await page.evaluate('window.attacked')).toBeUndefined()
    })
  })
}

const SIGNAL = { kind: 'scraping', severity: 'low', ttl_seconds: 600 }

/** Returns a function that removes everything again. */
async function hostileState(call: Dashboard['fixture']['call']): Promise<() => Promise<void>> {
  const created = await Promise.all(
    ATTACKS.flatMap((attack, index) => [
      call(`${API}/overrides`, { key: `user:hostile_${index}`, factor: 2, expires_in: '1h', reason: attack }),
      call(`${API}/signals`, { ...SIGNAL, key: `ip:198.51.100.${index}`, source: attack }),
    ]),
  )
  await call(`${API}/kill-switch`, { rule_id: 'exports', on: true, reason: ALL })
  await call(`${API}/incident/factor`, { factor: 0.9, expires_in: '1h', reason: ALL })
  await call(`${API}/incident/freeze`, { reason: ALL })
  return async () => {
    await call(`${API}/incident/unfreeze`, {})
    await call(`${API}/incident/factor`, undefined, 'DELETE')
    await call(`${API}/kill-switch`, { rule_id: 'exports', on: false })
    for (const one of created as { override_id?: string; signal_id?: string }[]) {
      const path = one.override_id === undefined ? `signals/${one.signal_id}` : `overrides/${one.override_id}`
      await call(`${API}/${path}`, undefined, 'DELETE')
    }
  }
}
