// Learn and try: every algorithm runs in the browser, without a session.

import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import type { Dashboard } from '../dashboard.ts'
import { SCREENSHOTS } from '../fixture.ts'

const PATIENT = { timeout: 60_000 }

export function learnTests(dashboard: Dashboard): void {
  describe('learn and try', () => {
    async function open(query = ''): Promise<Page> {
      const { page } = await dashboard.open(undefined, `/learn${query}`)
      await page.getByRole('heading', { level: 1, name: 'Learn and try' }).waitFor()
      return page
    }

    const counts = (text: string) =>
      text
        .match(/(\d+) allowed\s+(\d+) denied/)
        ?.slice(1)
        .map(Number) ?? []

    it('admits everything within the limit, and the refill above it', async () => {
      const page = await open('?algorithm=token_bucket&limit=5&window=1&burst=5&arrivals=4')
      const bucket = page.getByRole('region', { name: 'Token bucket' }).last()
      await expect.poll(async () => counts(await bucket.innerText())[0], PATIENT).toBeGreaterThan(8)
      expect(counts(await bucket.innerText())[1]).toBe(0)
      await page.getByLabel('Arrivals').focus()
      await page.keyboard.press('End')
      await expect.poll(async () => counts(await bucket.innerText())[1], PATIENT).toBeGreaterThan(20)
      expect(page.url()).toContain('arrivals=60')
    })

    it('shows the burst at the edge of a fixed window, which a sliding window refuses', async () => {
      const page = await open()
      await page.getByRole('button', { name: 'The window edge' }).click()
      const of = async (name: string) =>
        counts(await page.getByRole('region', { name, exact: true }).last().innerText())
      await expect.poll(async () => (await of('Fixed window'))[0], PATIENT).toBeGreaterThanOrEqual(20)
      const [fixed = 0, log = 0] = [(await of('Fixed window'))[0], (await of('Sliding window log'))[0]]
      expect(fixed).toBeGreaterThan(log)
      await page.screenshot({ path: `${SCREENSHOTS}/learn-edges.png`, fullPage: true })
    })
  })
}
