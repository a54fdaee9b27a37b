// Signing in, keyboard, links, the live tail, and attacks: by clients, by viewers and by other sites.

import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Page } from 'playwright-core'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { accessibilityProblems, REBOUND_NAME, settled, visit } from '../chromium.ts'
import type { Dashboard } from '../dashboard.ts'
import { type Fixture, SCREENSHOTS } from '../fixture.ts'

const PAINT_MS_MAX = 1000

export function shellTests(dashboard: Dashboard): void {
  const { open } = dashboard
  describe('the shell', () => {
    it('asks for a token first, and for nothing else', async () => {
      const { page, expect: expected } = await open(undefined, '/')
      expected(/401/)
      await page.getByLabel('Token', { exact: true }).waitFor()
      expect(await page.locator('input, select, textarea').count()).toBe(1)
      await page.screenshot({ path: `${SCREENSHOTS}/sign-in.png` })
      expect(await accessibilityProblems(page)).toEqual([])
      await page.getByLabel('Token', { exact: true }).fill('sluice_wrong_wrong_wrong_wrong')
      await page.keyboard.press('Enter')
      await page.getByText('Unknown token.').waitFor()
      await page.getByLabel('Token', { exact: true }).fill(dashboard.fixture.tokens.viewer.secret)
      await page.keyboard.press('Enter')
      await page.getByRole('heading', { name: 'Overview' }).waitFor()
      expect(await page.evaluate(() => document.cookie)).toBe('')
      await page.getByRole('button', { name: 'Sign out' }).click()
      await page.getByLabel('Token', { exact: true }).waitFor()
    })

    it('is painted within a second, and nothing moves while it loads', async () => {
      await dashboard.fixture.traffic() // with few requests in five minutes, the page also says how to begin
      await vi.waitUntil(async () => (await liveRequests(dashboard.fixture)) > 60, 30_000)
      const { page } = await open('viewer', '/')
      const paints: number[] = []
      // The best of a few: other processes of this machine delay some.
      for (let attempt = 0; attempt < 5 && !paints.some((ms) => ms < PAINT_MS_MAX); attempt++) {
        await page.reload()
        await page.getByText('ready').first().waitFor()
        await settled(page)
        const { paint, shift } = await timing(page)
        paints.push(paint)
        expect(shift).toBeLessThan(0.05)
      }
      expect(Math.min(...paints)).toBeLessThan(PAINT_MS_MAX)
    })

    it('is usable by keyboard alone', async () => {
      const { page } = await open('viewer', '/')
      await page.keyboard.press('g')
      await page.keyboard.press('l')
      await page.getByRole('heading', { name: 'Live tail' }).waitFor()
      await page.keyboard.press('/')
      await page.keyboard.type('overv')
      await page.keyboard.press('Enter')
      await page.getByRole('heading', { name: 'Overview' }).waitFor()
      await page.keyboard.press('?')
      await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor()
      await page.keyboard.press('Escape')
      await page.getByRole('dialog').waitFor({ state: 'hidden' })
      await page.keyboard.press('Tab')
      expect(await page.evaluate(() => document.activeElement?.matches(':focus-visible'))).toBe(true)
    })

    it('keeps the view in the URL', async () => {
      const { page } = await open('viewer', '/?range=1h')
      expect(await page.getByLabel('Time range').inputValue()).toBe('1h')
      await page.getByLabel('Time range').selectOption('24h')
      expect(page.url()).toContain('range=24h')
      await page.getByRole('link', { name: 'Live tail' }).click()
      expect(page.url()).toContain('/live?range=24h')
      await page.getByLabel('Result').selectOption('refused')
      const copied = await page.context().newPage()
      await copied.goto(page.url())
      expect(await copied.getByLabel('Result').inputValue()).toBe('refused')
    })

    it('explains a refusal: rule, numbers, where it was decided, and what the client received', async () => {
      const { page } = await open('viewer', '/live?result=refused&client=user_1')
      await page
        .getByRole('button', { name: /refused user_1 POST/ })
        .first()
        .click()
      const why = page.getByRole('dialog', { name: 'Why it was refused' })
      await why.getByText('HTTP 429 Too Many Requests').waitFor()
      await why.getByText(/Retry-After: \d+/).waitFor()
      const text = await why.innerText()
      expect(text).toContain('of 5 units of messages_per_user, 0 were left')
      expect(text).toMatch(/rule set v\d+/)
      expect(text).toContain('messages_per_user/default')
      expect(await accessibilityProblems(page)).toEqual([])
      await page.screenshot({ path: `${SCREENSHOTS}/why-light.png` })
      await page.keyboard.press('Escape')
      expect(page.url()).not.toContain('event=')
    })

    it('pauses and resumes the live tail', async () => {
      const { page } = await open('viewer', '/live')
      await page
        .getByRole('button', { name: /user_1/ })
        .first()
        .waitFor()
      await page.getByRole('button', { name: 'Pause' }).click()
      await page.getByText('Paused').waitFor()
      await dashboard.fixture.call('/api/v1/rate-limit/check', {
        client_id: 'after_pause',
        endpoint: '/api/v1/messages',
      })
      await page.getByRole('button', { name: 'Resume' }).click()
      await page
        .getByRole('button', { name: /after_pause/ })
        .first()
        .waitFor()
      // A refund decides nothing: it is none of an anonymous client that was allowed by no rule.
      const given = { client_id: 'refunded', endpoint: '/api/v1/messages', method: 'POST', request_id: 'given back' }
      await dashboard.fixture.call('/api/v1/rate-limit/check', given)
      await dashboard.fixture.call('/api/v1/rate-limit/refund', { request_id: 'given back' })
      const refund = page.getByRole('button', { name: /refund/ }).filter({ hasText: 'request given back' })
      await refund.waitFor({ timeout: 30_000 })
      expect(await refund.innerText()).toMatch(/refund\s+returns all of its units/)
      await refund.click()
      await page.getByRole('dialog', { name: 'A refund' }).getByText('gave back all of its units').waitFor()
    })

    it('shows everything that clients and editors choose as text', async () => {
      const { page } = await open('viewer', '/live')
      await page.getByText('<script>window.attacked=1</script>').first().waitFor() // the name of the token
      for (const path of [
        '/',
        '/live',
        '/live?client=mallory',
        '/live?rule=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E',
      ]) {
        await visit(page, path)
      }
      await visit(page, '/live?client=mallory')
      await page
        .getByRole('button', { name: /mallory/ })
        .first()
        .waitFor()
      for (const row of (await page.getByRole('button', { name: /mallory/ }).all()).slice(0, 4)) {
        await row.click()
        await page.getByRole('dialog').getByText('What a client behind a gateway or middleware receives').waitFor()
        await page.keyboard.press('Escape')
      }
      expect(await page.evaluate('window.attacked')).toBeUndefined()
    })

    it('refuses the writes of a viewer', async () => {
      const { page, expect: expected } = await open('viewer', '/')
      expected(/403/)
      const status = await page.evaluate(async () => {
        const answer = await fetch('/api/v1/session').then((response) => response.json())
        const headers = { 'content-type': 'application/json', 'x-sluice-csrf': answer.session.csrf }
        const body = JSON.stringify({ rule_id: 'mine', limit: 1, window_seconds: 1 })
        return (await fetch('/api/v1/rate-limit/rules', { method: 'POST', headers, body })).status
      })
      expect(status).toBe(403)
    })

    it('ends the session with its token, on every node', async () => {
      const created = (await dashboard.fixture.call('/api/v1/admin/tokens', { name: 'short', role: 'viewer' })) as {
        token: string
        token_id: string
      }
      const { page, expect: expected } = await open(undefined, '/')
      expected(/401/)
      await page.getByLabel('Token', { exact: true }).fill(created.token)
      await page.keyboard.press('Enter')
      await page.getByRole('heading', { name: 'Overview' }).waitFor()
      await page.goto(dashboard.fixture.other)
      await page.getByRole('heading', { name: 'Overview' }).waitFor()
      await dashboard.fixture.call(`/api/v1/admin/tokens/${created.token_id}`, undefined, 'DELETE')
      await page.getByLabel('Token', { exact: true }).waitFor({ timeout: 30_000 })
    })

    it('refuses requests, frames and names of other sites', async () => {
      const { page, expect: expected } = await open('admin', '/')
      expected(/./) // browsers report what they block
      const attacker = createServer((_request, response) => {
        response.setHeader('content-type', 'text/html')
        response.end(`<iframe src="${dashboard.fixture.address}/"></iframe>`)
      })
      await new Promise<void>((resolve) => attacker.listen(0, resolve))
      onTestFinished(() => void attacker.close())
      await page.goto(`http://localhost:${(attacker.address() as AddressInfo).port}/`)
      const rules = `${dashboard.fixture.address}/api/v1/rate-limit/rules`
      const statuses = await page.evaluate(async (url) => {
        const body = JSON.stringify({ rule_id: 'forged', limit: 1, window_seconds: 1 })
        const init: RequestInit = { method: 'POST', body, mode: 'no-cors', credentials: 'include' }
        await fetch(url, init).catch(() => {})
        return fetch(url, { credentials: 'include' }).then(
          () => 'readable',
          () => 'blocked',
        )
      }, rules)
      expect(statuses).toBe('blocked')
      const frame = page.frames()[1]
      await expect.poll(() => frame?.url()).toBe('chrome-error://chromewebdata/')
      const { rules: known } = (await dashboard.fixture.call('/api/v1/rate-limit/rules')) as {
        rules: { rule_id: string }[]
      }
      expect(known.map(({ rule_id }) => rule_id)).not.toContain('forged')
      const { port } = new URL(dashboard.fixture.address)
      const rebound = await page.goto(`http://${REBOUND_NAME}:${port}/`)
      expect(rebound?.status()).toBe(403)
    })
  })
}

/** Requests of the last minutes, in the live figures of every step. */
async function liveRequests({ call }: Fixture): Promise<number> {
  const { figures } = (await call('/api/v1/fleet')) as { figures: { allowed: number[]; refused: number[] }[] }
  return Math.min(...figures.map(({ allowed, refused }) => [...allowed, ...refused].reduce((sum, one) => sum + one, 0)))
}

/** Time of the first paint, and how much of the page moved since without input. */
async function timing(page: Page): Promise<{ paint: number; shift: number }> {
  return (await page.evaluate(`new Promise((resolve) => {
    const paint = performance.getEntriesByName('first-contentful-paint')[0]?.startTime
    new PerformanceObserver((list) => {
      const own = list.getEntries().filter(({ hadRecentInput }) => !hadRecentInput)
      resolve({ paint, shift: own.reduce((sum, { value }) => sum + value, 0) })
    }).observe({ type: 'layout-shift', buffered: true })
    setTimeout(() => resolve({ paint, shift: 0 }), 500)
  })`)) as { paint: number; shift: number }
}
