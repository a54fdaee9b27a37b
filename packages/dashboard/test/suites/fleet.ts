// Hot keys and regions, with data.

import { describe, expect, it, onTestFinished } from 'vitest'
import { accessibilityProblems, settled, visit } from '../chromium.ts'
import type { Dashboard } from '../dashboard.ts'
import { ADMIN_TOKEN, SCREENSHOTS, startRegionNode } from '../fixture.ts'

const BATCHES = 12
const BATCH = 1000

export function fleetTests(dashboard: Dashboard): void {
  const { open } = dashboard
  describe('hot keys and regions', () => {
    it('lists the busiest key with its rate and share, as a hash', async () => {
      for (let batch = 0; batch < BATCHES; batch++) {
        const checks = Array.from({ length: BATCH }, (_, index) => ({
          client_id: index % 4 < 3 ? 'greedy' : `once-${batch}-${index}`,
          ...{ endpoint: '/api/v1/messages', method: 'POST' },
        }))
        await dashboard.fixture.call('/api/v1/rate-limit/check/batch', { checks })
      }
      const { page } = await open('viewer', '/hot-keys')
      const table = page.getByRole('region', { name: 'Busiest keys' }).last()
      await table.getByText('messages_per_user').first().waitFor()
      const text = await table.innerText()
      expect(text).toMatch(/messages_per_user\s+\w{8,}\s+[\d.,]+K?\/s\s+\d+(\.\d+)? %/)
      expect(text).not.toContain('greedy')
      expect(await accessibilityProblems(page)).toEqual([])
      await page.screenshot({ path: `${SCREENSHOTS}/hot-keys-busy.png` })
    })

    it('shows how regions share a limit, on a node of a region', async () => {
      const watched = await open('viewer', '/regions')
      const { page } = watched
      await page.getByText('This node has no region').waitFor()
      const node = await startRegionNode()
      let isOpen = true
      const close = async () => {
        if (isOpen) await node.close()
        isOpen = false
      }
      onTestFinished(close)
      await node.call('/api/v1/rate-limit/check', { client_id: 'ana', endpoint: '/api/v1/orders', method: 'POST' })
      await page.goto(`${node.address}/regions`)
      await page.getByLabel('Token', { exact: true }).fill(ADMIN_TOKEN)
      await page.keyboard.press('Enter')
      const weights = page.getByRole('region', { name: 'Weights of regions' })
      await weights.getByText('eu').waitFor()
      expect(await weights.innerText()).toMatch(/eu\s+60 %\s+30 %\s+1\s+us\s+40 %\s+20 %\s+0/)
      const limits = page.getByRole('region', { name: 'Limits that regions share' }).last()
      expect(await limits.innerText()).toMatch(/orders_worldwide\s+100\s+30\s+20\s+50\s+\d+/)
      await expect.poll(() => page.getByText('Units from its home').locator('..').innerText()).toMatch(/\s1$/)
      await settled(page)
      expect(await accessibilityProblems(page)).toEqual([])
      await page.screenshot({ path: `${SCREENSHOTS}/regions-shared.png` })

      // Charts are there from the first request on, and the rate of the only node is that of the fleet.
      watched.expect(/409/) // this node stores no totals
      await visit(page, '/')
      await page.getByRole('img', { name: /^Requests per second/ }).waitFor()
      const nodes = page.getByRole('region', { name: 'Nodes' }).last()
      const rates = async () => {
        const [, ofNode] = /v\d+\s+\S+\s+(\S+)/.exec(await nodes.innerText()) ?? []
        return [await page.locator('.tile-value').first().innerText(), ofNode]
      }
      await expect.poll(rates, { timeout: 30_000 }).toEqual(['0.0167/s', '0.0167/s'])
      await page.screenshot({ path: `${SCREENSHOTS}/overview-first-visit.png`, fullPage: true })

      // Nothing stays green when the service is gone.
      watched.expect(/ERR_|503|^failed: /)
      await close()
      await page.getByText(/The service has not answered for \d+ s/).waitFor({ timeout: 30_000 })
      await nodes.getByText('unknown').waitFor()
      expect(await page.locator('main .status-good').count()).toBe(0)
      await page.screenshot({ path: `${SCREENSHOTS}/overview-gone.png`, fullPage: true })
    })
  })
}
