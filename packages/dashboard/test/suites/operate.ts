// Clients, exceptions, incidents and settings: what an operator changes, and its effect on real checks.

import type { Page } from 'playwright-core'
import { describe, expect, it, onTestFinished } from 'vitest'
import { keyHash } from '../../../server/src/log.ts'
import { linkOf, ROUTES } from '../../src/routes.ts'
import { accessibilityProblems, settled, visit } from '../chromium.ts'
import type { Dashboard } from '../dashboard.ts'
import { ATTACKS, endGuards, KEY_SECRET, SCREENSHOTS } from '../fixture.ts'

const API = '/api/v1/rate-limit'

/** Buttons that only show something. Rows of the live tail begin with a time. */
const HARMLESS = new RegExp(
  `^(${[
    'Why|Explain|Open|Overrides|Bypass tokens|Signals|Pause|Clear|Load again',
    '(Compare|Show )[\\s\\S]*',
    '\\w+ (bucket|window)( log)?',
    '\\d[\\s\\S]*',
  ].join('|')})$`,
)

const PATIENT = { timeout: 30_000 }

async function writeButtons(page: Page): Promise<string[]> {
  const names = await page.locator('main button, main .button').allInnerTexts()
  return names.filter((name) => !HARMLESS.test(name))
}

export function operateTests(dashboard: Dashboard): void {
  const { open } = dashboard
  describe('clients, exceptions, incidents and settings', () => {
    it('shows buckets, timeline, refusals and the rules of a client', async () => {
      const { page } = await open('viewer', '/clients')
      await page.getByRole('searchbox', { name: 'Client' }).fill('user_1')
      await page.keyboard.press('Enter')
      await page.getByRole('heading', { level: 1, name: 'user_1' }).waitFor()
      const buckets = page.getByRole('region', { name: 'Buckets now' }).first()
      await buckets.getByText('messages_per_user').first().waitFor()
      await page
        .getByText(/^5 per 10 s/)
        .first()
        .waitFor()
      await page.getByRole('region', { name: 'Refusals' }).first().getByRole('button', { name: /Why/ }).first().click()
      await page
        .getByRole('dialog', { name: 'Why it was refused' })
        .getByText(/Retry-After/)
        .waitFor()
      await page.keyboard.press('Escape')
      expect(await page.getByRole('button', { name: /^(Override|Ban|Reset|Remove)/ }).count()).toBe(0)
      await settled(page)
      expect(await accessibilityProblems(page)).toEqual([])
    })

    it('bans a client for a time with a reason, resets a bucket, and lifts the ban', async () => {
      const { page } = await open('editor', '/clients/user_2')
      await page.getByRole('button', { name: 'Ban' }).click()
      const dialog = page.getByRole('dialog')
      await dialog.getByText('Every request of the key is refused').waitFor()
      expect(await dialog.getByRole('button', { name: 'Ban' }).isDisabled()).toBe(true)
      await dialog.getByLabel('Status of the response').selectOption('403')
      await dialog.getByLabel('Reason').fill(String(ATTACKS[1]))
      expect(await accessibilityProblems(page)).toEqual([])
      await page.screenshot({ path: `${SCREENSHOTS}/client-ban.png` })
      await dialog.getByRole('button', { name: 'Ban' }).click()
      await page.getByText('banned (403)').first().waitFor()
      const request = { client_id: 'user_2', endpoint: '/api/v1/messages', method: 'POST' }
      expect(await dashboard.fixture.call('/api/v1/rate-limit/check', request)).toMatchObject({
        allowed: false,
        status: 403,
      })
      await page.getByText('would be refused').waitFor()
      await page.getByRole('button', { name: 'Remove' }).click()
      await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click()
      await page.getByText('None: the rules decide about this client.').waitFor()
      for (let sent = 0; sent < 6; sent++) await dashboard.fixture.call('/api/v1/rate-limit/check', request)
      await page.getByRole('button', { name: 'Reset messages_per_user' }).click()
      await page.getByRole('dialog').getByRole('button', { name: 'Reset' }).click()
      await page.getByRole('dialog').waitFor({ state: 'detached' })
      expect(await dashboard.fixture.call('/api/v1/rate-limit/check', request)).toMatchObject({ allowed: true })
    })

    it('finds clients and tenants by a part of their names, in any case', async () => {
      const { page } = await open('viewer', '/learn')
      await page.keyboard.press('/')
      const option = (name: string | RegExp) => page.getByRole('option', { name })
      await page.keyboard.type('SER_3')
      await expect.poll(() => option('user_3 user').count(), PATIENT).toBe(1)
      await page.keyboard.press('Control+A')
      await page.keyboard.type('cm')
      await option('acme tenant').click()
      await page.getByRole('heading', { level: 1, name: 'acme' }).waitFor()
      expect(page.url()).toContain('/clients/acme?kind=tenant')
    })

    it('explains a ban: override, reason and the status that the client received', async () => {
      const { call } = dashboard.fixture
      const [key, reason] = ['user:banned_user', `fraud ${ATTACKS[1]}`]
      const body = { key, ban: { status: 403 }, expires_in: '1h', reason }
      const { override_id: id } = (await call(`${API}/overrides`, body)) as { override_id: string }
      onTestFinished(async () => void (await call(`${API}/overrides/${id}`, undefined, 'DELETE')))
      const request = { client_id: 'banned_user', endpoint: '/of/no/rule', method: 'POST' } // so no bucket decides
      expect(await call(`${API}/check`, request)).toMatchObject({ allowed: false, status: 403 })
      const { page } = await open('viewer', '/live?result=refused&client=banned_user')
      await page
        .getByRole('button', { name: /refused banned_user/ })
        .first()
        .click()
      const why = page.getByRole('dialog', { name: 'Why it was refused' })
      await why.getByText('The client is banned by an override').waitFor()
      await why.getByText(reason).waitFor()
      await why.getByText('HTTP 403 Forbidden').waitFor()
      expect(await why.innerText()).not.toMatch(/Retry-After|RateLimit|so it was allowed|:::/)
    })

    it('resets buckets of composite keys and of endpoints', async () => {
      const { call } = dashboard.fixture
      const endpoint = '/api/v1/composite'
      const shared = { endpoint_pattern: endpoint, limit: 1, window: '1d', consistency: 'strict' }
      await call(`${API}/rules`, { ...shared, rule_id: 'by_both', scope: ['user', 'endpoint'] })
      await call(`${API}/rules`, { ...shared, rule_id: 'by_endpoint', scope: 'per_endpoint' })
      const keyed = { ...shared, endpoint_pattern: '/api/v1/keyed', rule_id: 'by_key', scope: 'per_api_key' }
      await call(`${API}/rules`, keyed)
      await endGuards(call)
      onTestFinished(async () => {
        await endGuards(call)
        for (const id of ['by_both', 'by_endpoint', 'by_key']) await call(`${API}/rules/${id}`, undefined, 'DELETE')
      })
      const request = { client_id: 'composite_user', endpoint, method: 'POST' }
      const allowed = async () => ((await call(`${API}/check`, request)) as { allowed: boolean }).allowed
      expect([await allowed(), await allowed()]).toEqual([true, false])
      const watched = await open('editor', '/clients/composite_user')
      const { page } = watched
      const dialog = page.getByRole('dialog')
      // An override of the user raises by_both; by_endpoint still refuses.
      await page.getByRole('button', { name: 'Override' }).click()
      await dialog.getByLabel('Reason').fill('more')
      await dialog.getByRole('button', { name: 'Create override' }).click()
      await page.getByText('It does not change by_endpoint, which still refuses requests').waitFor(PATIENT)
      await page.getByRole('button', { name: 'Remove' }).click()
      await dialog.getByRole('button', { name: 'Remove' }).click()
      await dialog.waitFor({ state: 'detached' })
      await page.getByRole('button', { name: 'Reset by_both' }).click()
      await dialog.getByText('the client starts with full buckets').waitFor()
      await dialog.getByRole('button', { name: 'Reset' }).click()
      await dialog.waitFor({ state: 'detached' })
      expect(await allowed()).toBe(false)
      await page.getByRole('button', { name: 'Reset by_endpoint' }).click()
      await dialog.getByText('all clients share them and start with full buckets').waitFor()
      await dialog.getByRole('button', { name: 'Reset' }).click()
      await dialog.waitFor({ state: 'detached' })
      await expect.poll(allowed).toBe(true)

      // Events store the hash of an API key: the page shows the bucket of the key, and offers nothing that needs it.
      const spend = { api_key: 'k_live_of_a_client', endpoint: '/api/v1/keyed', method: 'POST' }
      for (let sent = 0; sent < 2; sent += 1) await call(`${API}/check`, spend)
      const hashed = `hmac:${keyHash(KEY_SECRET)('api_key', spend.api_key)}`
      await visit(page, `/clients/${encodeURIComponent(hashed)}?kind=api_key`)
      await page.getByText('would be refused').waitFor(PATIENT)
      const buckets = page.getByRole('region', { name: 'Buckets now' }).first()
      await expect.poll(() => buckets.innerText()).toMatch(/by_key[\s\S]*0 of 1/)
      expect(await page.getByRole('button', { name: /^(Reset|Override|Ban)/ }).count()).toBe(0)
      expect(await page.content()).not.toContain(spend.api_key)
      watched.expect(/404 .*\/explain/)
      watched.expect(/status of 404/)
      await visit(page, '/clients/hmac:0123456789abcdef?kind=api_key')
      await page.getByText('The key of this hash is not known').first().waitFor()
      expect(await page.locator('.left-meter').count(), 'no bar of a bucket that is not known').toBe(0)
      expect(await page.locator('.explain-answer').innerText()).toBe('unknown')
      await page.getByText('No refusal of this client is stored.').waitFor() // once the stream said so
    })

    it('creates, shows and removes overrides, bypass tokens and signals', async () => {
      const { page } = await open('approver', '/exceptions')
      const dialog = page.getByRole('dialog')
      await page.getByRole('button', { name: 'New override' }).click()
      await dialog.getByLabel('Key').fill('user:tripled')
      await dialog.getByLabel('Factor').fill('3')
      await dialog.getByLabel('Reason').fill(String(ATTACKS[0]))
      await dialog.getByRole('button', { name: 'Create override' }).click()
      await page.getByRole('link', { name: 'user:tripled' }).waitFor()
      // Three times five units; while they are sent, one or two flow back.
      const checks = Array(30).fill({ client_id: 'tripled', endpoint: '/api/v1/messages', method: 'POST' })
      const { results } = (await dashboard.fixture.call(`${API}/check/batch`, { checks })) as {
        results: { allowed: boolean }[]
      }
      const admitted = results.filter(({ allowed }) => allowed).length
      expect(admitted).toBeGreaterThanOrEqual(15)
      expect(admitted).toBeLessThan(20)
      await page.screenshot({ path: `${SCREENSHOTS}/exceptions-overrides.png` })

      await page.getByRole('button', { name: 'Bypass tokens' }).click()
      await page.getByRole('button', { name: 'New bypass token' }).click()
      await dialog.getByLabel('Name').fill(String(ATTACKS[2]))
      await dialog.getByRole('button', { name: 'Create' }).click()
      const secret = await dialog.getByLabel(/X-Sluice-Bypass/).inputValue()
      expect(secret).toMatch(/^slb_/)
      expect(await accessibilityProblems(page)).toEqual([])
      await page.screenshot({ path: `${SCREENSHOTS}/exceptions-secret.png` })
      await dialog.getByRole('button', { name: 'Done' }).click()
      await page.getByText(String(ATTACKS[2])).waitFor()
      expect(await page.content()).not.toContain(secret)
      await page.getByRole('button', { name: 'Revoke' }).click()
      await dialog.getByRole('button', { name: 'Revoke' }).click()
      await page.getByText('revoked').waitFor()

      await page.getByRole('button', { name: 'Signals' }).click()
      await page.getByRole('button', { name: 'Report a key' }).click()
      await dialog.getByLabel('Key').fill('ip:203.0.113.9')
      await dialog.getByRole('button', { name: 'Report' }).click()
      await page.getByRole('link', { name: 'ip:203.0.113.9' }).waitFor()
      await page.screenshot({ path: `${SCREENSHOTS}/exceptions-signals.png` })
      await page.getByRole('button', { name: 'Remove' }).click()
      await dialog.getByRole('button', { name: 'Remove' }).click()
      await page.getByText('No signals').waitFor()
      expect(await page.evaluate('window.attacked')).toBeUndefined()
    })

    it('confirms every incident tool with what will happen, and shows its effect', async () => {
      const { page } = await open('admin', '/incident')
      const dialog = page.getByRole('dialog')
      await page.getByRole('button', { name: 'Disable everything' }).click()
      await dialog.getByText('every request is allowed').waitFor()
      await dialog.getByLabel('Reason').fill(String(ATTACKS[3]))
      expect(await dialog.getByRole('button', { name: 'Disable' }).isDisabled()).toBe(true)
      await dialog.getByLabel('Type everything to confirm').fill('everything')
      await page.screenshot({ path: `${SCREENSHOTS}/incident-kill.png` })
      await dialog.getByRole('button', { name: 'Disable' }).click()
      await page.getByText('All rules are disabled').waitFor()
      await page.getByRole('button', { name: 'Enable' }).click()
      await dialog.getByRole('button', { name: 'Enable' }).click()
      await page.getByText('Off: no rule is disabled').waitFor()

      await page.getByRole('button', { name: 'Freeze rule changes' }).click()
      await dialog.getByLabel('Reason').fill(String(ATTACKS[5]))
      await dialog.getByRole('button', { name: 'Freeze' }).click()
      await page.getByText('Frozen', { exact: true }).waitFor()
      await page.getByRole('button', { name: 'Set factor' }).click()
      await dialog.getByText('becomes 50 % of what it is').waitFor()
      await dialog.getByLabel('Reason').fill(String(ATTACKS[6]))
      await dialog.getByRole('button', { name: 'Set factor' }).click()
      await page.getByText('× 0.5').waitFor()
      expect(await accessibilityProblems(page)).toEqual([])
      await page.screenshot({ path: `${SCREENSHOTS}/incident-active.png`, fullPage: true })
      await page.getByRole('button', { name: 'End factor' }).click()
      await dialog.getByRole('button', { name: 'End factor' }).click()
      await page.getByRole('button', { name: 'Unfreeze' }).click()
      await dialog.getByRole('button', { name: 'Unfreeze' }).click()
      await page.getByText('Rule changes are allowed').waitFor()

      await page.getByRole('button', { name: 'Start drill' }).click()
      await dialog.getByLabel('Length').selectOption('60')
      await dialog.getByRole('button', { name: 'Start drill' }).click()
      await page.getByText(/Drill on .*, for 60 seconds/).waitFor()
      const { page: client } = await open('viewer', '/clients/user_1')
      await client.locator('.explain-answer', { hasText: 'unknown The store does not answer' }).waitFor(PATIENT)
      await client.getByRole('region', { name: 'Buckets now' }).first().getByText('unknown').first().waitFor()
      expect(await client.locator('.left-meter').count(), 'no bar of a bucket that is not known').toBe(0)
      await page.getByRole('button', { name: 'End drill' }).click()
      await page.getByText('The drill has ended.').waitFor()
      expect(await page.evaluate('window.attacked')).toBeUndefined()
    })

    it('creates and revokes API tokens, and shows a secret once', async () => {
      const { page } = await open('admin', '/settings')
      const dialog = page.getByRole('dialog')
      await page.getByRole('button', { name: 'New token' }).click()
      await dialog.getByLabel('Name').fill('gateway')
      await dialog.getByRole('button', { name: 'Create' }).click()
      expect(await dialog.getByLabel(/Authorization/).inputValue()).toMatch(/^sluice_/)
      await dialog.getByRole('button', { name: 'Done' }).click()
      await page.getByRole('button', { name: 'Revoke gateway' }).click()
      await dialog.getByText('It cannot be undone').waitFor()
      await dialog.getByRole('button', { name: 'Revoke' }).click()
      await page.getByRole('button', { name: 'Revoke gateway' }).waitFor({ state: 'detached' })
    })

    it('sends demo traffic, shows it live, and removes its rules', async () => {
      const { page } = await open('editor', '/live?client=unknown')
      await dashboard.fixture.call('/api/v1/demo', { seconds: 60 })
      await page.goto(`${dashboard.fixture.address}/?range=1m`)
      await page.getByText('Demo traffic is running').waitFor()
      await page.getByRole('link', { name: 'Live tail' }).click()
      await page.getByRole('button', { name: /demo-/ }).first().waitFor()
      await page.getByRole('link', { name: 'Overview' }).click()
      await expect.poll(() => page.locator('.tile-value').first().innerText(), PATIENT).toMatch(/^[1-9]\d*(\.\d+)?\/s$/)
      await page.getByRole('button', { name: 'Stop demo traffic' }).click()
      await page.getByText('Demo traffic is running').waitFor({ state: 'detached' })
      const { rules } = (await dashboard.fixture.call('/api/v1/rate-limit/rules?enabled=any')) as {
        rules: { rule_id: string }[]
      }
      expect(rules.filter(({ rule_id: id }) => id.startsWith('demo_traffic'))).toEqual([])
    })

    it('gives a viewer no way to change anything, on any page', async () => {
      const { page } = await open('viewer', '/')
      for (const path of ['/clients/user_1', ...ROUTES.filter(({ path }) => path !== '/learn').map(linkOf)]) {
        await visit(page, path)
        expect(await writeButtons(page), path).toEqual([])
      }
      const { page: ofAdmin } = await open('admin', '/')
      for (const path of ['/clients/user_1', '/rules', '/what-if', '/exceptions', '/incident', '/settings']) {
        await visit(ofAdmin, path)
        await expect.poll(() => writeButtons(ofAdmin), { message: path }).not.toEqual([])
      }
    })

    it('shows hostile ids of clients as text', async () => {
      const { page } = await open('editor', '/clients')
      for (const attack of ATTACKS.filter((text) => !/[{}]/.test(text))) {
        await visit(page, `/clients/${encodeURIComponent(attack)}?kind=api_key`)
        await page.getByRole('heading', { level: 1, name: attack }).waitFor()
      }
      expect(await page.evaluate('window.attacked')).toBeUndefined()
    })
  })
}
