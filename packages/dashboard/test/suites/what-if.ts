// What-if page: dragging replays recorded requests in a worker, with the same numbers as the API.

import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import type { Dashboard } from '../dashboard.ts'
import { type Role, SCREENSHOTS } from '../fixture.ts'

type Simulated = {
  readonly new: { readonly refused: number }
  readonly now: { readonly refused: number }
  readonly clients: { readonly refused: number }
  readonly changes: { readonly newly_denied: number; readonly newly_allowed: number }
  readonly rules: readonly { readonly rule_id: string; readonly refused: number }[]
}

const RULE = 'messages_per_user'
const PATIENT = { timeout: 30_000 }

export function whatIfTests(dashboard: Dashboard): void {
  describe('what if', () => {
    async function simulated(change: object): Promise<Simulated> {
      const rule = (await dashboard.fixture.call(`/api/v1/rate-limit/rules/${RULE}`)) as object
      const body = { rule: { ...rule, ...change }, from: '1h', limit: 20_000 }
      return (await dashboard.fixture.call('/api/v1/rate-limit/simulate', body)) as Simulated
    }

    async function open(role: Role, query = ''): Promise<Page> {
      const { page } = await dashboard.open(role, `/what-if?range=1h&rule=${RULE}${query}`)
      await page.locator('[data-figure="refused"]', { hasText: /\d/ }).waitFor()
      return page
    }

    const figure = async (page: Page, name: string) =>
      Number((await page.locator(`[data-figure="${name}"]`).innerText()).replaceAll(',', ''))

    async function figures(page: Page) {
      return {
        refused: await figure(page, 'refused'),
        clients: await figure(page, 'clients'),
        newlyDenied: await figure(page, 'newly-denied'),
        newlyAllowed: await figure(page, 'newly-allowed'),
        byRule: await figure(page, 'rule-refused'),
      }
    }

    const expectedOf = ({ new: next, clients, changes, rules }: Simulated) => ({
      refused: next.refused,
      clients: clients.refused,
      newlyDenied: changes.newly_denied,
      newlyAllowed: changes.newly_allowed,
      byRule: rules.find(({ rule_id: id }) => id === RULE)?.refused,
    })

    it('recomputes while dragging, with the same numbers as the API', async () => {
      const page = await open('editor')
      await page.getByText(/Exact: all \d+ recorded requests/).waitFor()
      await page.getByText(/They cover \d.* from .* to /).waitFor()
      const now = await figures(page)
      expect(now).toEqual(expectedOf(await simulated({})))
      expect(now.byRule).toBeGreaterThan(0)
      const chart = page.getByRole('slider', { name: /busiest client/ })
      const box = (await chart.boundingBox()) ?? { x: 0, y: 0, width: 0, height: 0 }
      const [x, low] = [box.x + box.width / 2, box.y + box.height - 12]
      await page.mouse.move(x, box.y + box.height / 2)
      await page.mouse.down()
      await page.mouse.move(x, low, { steps: 8 })
      await expect.poll(() => figure(page, 'newly-denied'), PATIENT).toBeGreaterThan(0) // the button is still down
      await page.mouse.up()
      const limit = Number(await chart.getAttribute('aria-valuenow'))
      expect(limit).toBeLessThan(5)
      expect(page.url()).toContain(`limit=${limit}`)
      const expected = expectedOf(await simulated({ limit }))
      await expect.poll(() => figures(page), PATIENT).toEqual(expected)
      // Bars use the whole width, and the table shows dashes until it has the figures of this limit.
      const bar = (await page.locator('.drag-within').last().boundingBox()) ?? box
      expect(bar.x + bar.width).toBeGreaterThan(box.x + box.width * 0.8)
      await chart.focus()
      const table = await page.evaluate(async () => {
        const key = new KeyboardEvent('keydown', { key: 'PageUp', bubbles: true })
        document.activeElement?.dispatchEvent(key)
        for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame)
        return (document.querySelector('[aria-label="Algorithms side by side"]') as HTMLElement).innerText
      })
      expect(table).toMatch(/Token bucket\s+–/)
      await expect.poll(() => figures(page), PATIENT).toEqual(expectedOf(await simulated({ limit: limit + 10 })))
    })

    it('compares algorithms side by side', async () => {
      const page = await open('viewer', '&limit=3')
      const table = page.getByRole('region', { name: 'Algorithms side by side' }).last()
      await table.getByRole('button', { name: 'Fixed window' }).click()
      expect(page.url()).toContain('algorithm=fixed_window')
      const expected = expectedOf(await simulated({ limit: 3, algorithm: 'fixed_window' }))
      await expect.poll(() => figures(page), PATIENT).toEqual(expected)
      expect(await page.getByRole('button', { name: 'Create as shadow' }).count()).toBe(0)
    })

    it('proposes the change as shadow', async () => {
      const page = await open('editor', '&limit=3')
      await page.getByRole('button', { name: 'Create as shadow …' }).click()
      const dialog = page.getByRole('dialog')
      await dialog.locator('li', { hasText: 'until someone promotes it' }).waitFor()
      expect(await dialog.locator('.diff').innerText()).toContain('+ limit: 3')
      await dialog.getByLabel('Reason').fill('seen in the replay')
      await page.screenshot({ path: `${SCREENSHOTS}/what-if-propose.png` })
      await dialog.getByRole('button', { name: 'Propose' }).click()
      await page.getByText('approved; waits for start').waitFor()
      const id = new URL(page.url()).searchParams.get('proposal')
      await dashboard.fixture.call(`/api/v1/rate-limit/proposals/${id}/abort`, {})
    })
  })
}
