// Hot keys and regions, with data.

import { describe, expect, it, onTestFinished } from 'vitest'
import { accessibilityProblems, settled } from '../chromium.ts'
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
      const { page } = await open('viewer', '/regions')
      await page.getByText('This node has no region').waitFor()
      const node = await startRegionNode()
      onTestFinished(node.close)
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
    })
  })
}
