// Changes from elsewhere while the dashboard is open: another version of Sluice, another tab, a colleague's edit, a
// node that refuses a stream, a page that fails.

import type { Page } from 'playwright-core'
import { describe, expect, it, onTestFinished } from 'vitest'
import { visit } from '../chromium.ts'
import type { Dashboard } from '../dashboard.ts'
import { endGuards, type Role } from '../fixture.ts'

const RULES = '/api/v1/rate-limit/rules'
const STREAMS_PER_TOKEN_MAX = 5

export function elsewhereTests(dashboard: Dashboard): void {
  const { open } = dashboard
  describe('changes from elsewhere', () => {
    it('reloads once if the files of a page are gone, then says that a new version is running', async () => {
      const { page, expect: expected } = await open('viewer', '/')
      expected(/404|Failed to fetch dynamically imported module/)
      await page.getByText('ready').first().waitFor()
      const known = new Set(await page.evaluate(() => performance.getEntriesByType('resource').map(({ name }) => name)))
      let [missing, documents] = [true, 0]
      page.on('request', (request) => {
        if (request.isNavigationRequest()) documents += 1
      })
      await page.route(/\/assets\//, (route) => {
        const isGone = missing && !known.has(route.request().url())
        return isGone ? route.fulfill({ status: 404 }) : route.continue()
      })
      await page.getByRole('link', { name: 'Regions' }).click()
      await page.getByText('A new version of Sluice is running').waitFor()
      expect(documents).toBe(1)
      expect(new URL(page.url()).pathname).toBe('/regions')
      missing = false
      await page.getByRole('button', { name: 'Reload' }).click()
      await page.getByText('This node has no region').waitFor()
    })

    it('shows an error in place of a page that fails, and the others still open', async () => {
      const { page, expect: expected } = await open('viewer', '/')
      expected(/null/)
      await page.route(/\/hot-keys/, (route) => route.fulfill({ json: { hot_keys: [null] } }))
      await visit(page, '/hot-keys', 'This page failed')
      await page.getByText('It could not be drawn').waitFor()
      await visit(page, '/')
      await visit(page, '/clients/%zz', 'No such page')
      await visit(page, '/rules/100%25', '100%')
      await page.getByText('No such rule').waitFor()
    })

    it('repeats a change with the CSRF token of another tab, but not as another user', async () => {
      const { page, expect: expected } = await open('editor', '/rules?edit=1')
      expected(/403/)
      await page.getByText('Valid', { exact: true }).waitFor()
      const other = await page.context().newPage()
      await other.goto(`${dashboard.fixture.address}/learn`)
      await signIn(other, 'editor')
      const area = page.getByLabel('Rule as text')
      await area.fill('rule_id: typo\nscope: per_usr\nlimit: 5\nwindow_seconds: 10\n')
      await page.getByText('1 mistake').waitFor()
      await page.locator('.finding', { hasText: 'scope' }).waitFor()
      await signIn(other, 'admin')
      await area.fill('rule_id: other\nlimit: 5\nwindow_seconds: 10\n')
      await page.getByText('Another tab signed in as platform (admin)').waitFor()
    })

    it('shows who is signed in when the tab is shown again', async () => {
      const { page } = await open('admin', '/incident')
      const other = await page.context().newPage()
      await other.goto(`${dashboard.fixture.address}/learn`)
      await signIn(other, 'viewer')
      await page.getByRole('button', { name: 'Freeze rule changes' }).waitFor()
      await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')))
      await page.getByRole('button', { name: 'Freeze rule changes' }).waitFor({ state: 'detached' })
    })

    it('does not overwrite an edit that a colleague made meanwhile, and shows it', async () => {
      const { call } = dashboard.fixture
      const rule = { rule_id: 'shared_edit', endpoint_pattern: '/shared', limit: 5, window_seconds: 10 }
      await call(RULES, rule)
      await endGuards(call)
      onTestFinished(async () => {
        await endGuards(call)
        await call(`${RULES}/shared_edit`, undefined, 'DELETE')
      })
      const { page, expect: expected } = await open('editor', '/rules/shared_edit?edit=1')
      expected(/412/)
      const area = page.getByLabel('Rule as text')
      await area.fill((await area.inputValue()).replace('limit: 5', 'limit: 6'))
      await call(`${RULES}/shared_edit`, { limit: 77 }, 'PATCH')
      await endGuards(call)
      await save(page)
      await page.getByText('Not saved: the rule was changed after you opened it').waitFor()
      await page.locator('.notice .diff', { hasText: '+ limit: 77' }).waitFor()
      expect(await call(`${RULES}/shared_edit`)).toMatchObject({ limit: 77 })
      await save(page)
      await page.getByRole('heading', { level: 1, name: 'shared_edit', exact: true }).waitFor()
      expect(await call(`${RULES}/shared_edit`)).toMatchObject({ limit: 6 })
    })

    it('says why the service refuses a stream', async () => {
      const { address, tokens } = dashboard.fixture
      const controller = new AbortController()
      onTestFinished(() => controller.abort())
      const init = { headers: { authorization: `Bearer ${tokens.viewer.secret}` }, signal: controller.signal }
      const streams = Array.from({ length: STREAMS_PER_TOKEN_MAX }, () => fetch(`${address}/api/v1/fleet/stream`, init))
      await Promise.all(streams)
      const { page, expect: expected } = await open('viewer', '/learn')
      expected(/429/)
      await page.getByRole('link', { name: 'Overview' }).click()
      await page.getByText(`This token has ${STREAMS_PER_TOKEN_MAX} streams open`).waitFor()
    })

    async function signIn(page: Page, role: Role): Promise<void> {
      const status = await page.evaluate(async (token) => {
        const headers = { 'content-type': 'application/json' }
        return (await fetch('/api/v1/session', { method: 'POST', headers, body: JSON.stringify({ token }) })).status
      }, dashboard.fixture.tokens[role].secret)
      expect(status).toBe(200)
    }

    async function save(page: Page): Promise<void> {
      await page.getByRole('button', { name: 'Save now …' }).click()
      const dialog = page.getByRole('dialog')
      await dialog.getByLabel('Reason').fill('mine')
      await dialog.getByRole('button', { name: 'Save' }).click()
      await dialog.waitFor({ state: 'detached' })
    }
  })
}
