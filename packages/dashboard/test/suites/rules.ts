// Rules: the list, the editor with the service's own parser, and a change from proposal to rollback.

import type { Page } from 'playwright-core'
import { describe, expect, it, onTestFinished } from 'vitest'
import { accessibilityProblems, visit } from '../chromium.ts'
import type { Dashboard } from '../dashboard.ts'
import { ATTACKS, endGuards, SCREENSHOTS } from '../fixture.ts'

export function rulesTests(dashboard: Dashboard): void {
  const { open } = dashboard
  describe('rules', () => {
    it('lists every rule with its limit, traffic and mode', async () => {
      const { page } = await open('viewer', '/rules')
      const table = page.getByRole('region', { name: 'Active rules' }).last()
      await table.getByText('messages_per_user').waitFor()
      await expect
        .poll(() => table.innerText(), { timeout: 30_000 })
        .toMatch(/messages_per_user[\s\S]*5\/10s[\s\S]*\d %/)
      expect(await table.innerText()).toContain('shadow')
      expect(await page.getByRole('link', { name: 'New rule' }).count()).toBe(0)
      expect(await page.getByRole('button', { name: /Roll back/ }).count()).toBe(0)
    })

    it('reads a page of the rules, and searches all of them', async () => {
      const { page } = await open('viewer', '/rules?after=messages_per_user')
      const table = page.getByRole('region', { name: 'Active rules' }).last()
      await table.getByText('search_per_ip').waitFor()
      expect(await table.getByText('messages_per_user').count()).toBe(0)
      await page.getByRole('link', { name: 'First rules' }).click()
      await table.getByText('messages_per_user').waitFor()
      await page.getByLabel('Find a rule').fill('POSTING m')
      await table.getByText('search_per_ip').waitFor({ state: 'detached' }) // without a press of Enter
      await table.getByText('messages_per_user').waitFor()
    })

    it('validates as you type, with the line of each mistake', async () => {
      const watched = await open('editor', '/rules?edit=1')
      const { page } = watched
      await page.getByText('Valid', { exact: true }).waitFor()
      const area = page.getByLabel('Rule as text')
      await area.fill('rule_id: typo\nscope: per_usr\nlimit: 5\nwindow_seconds: 10\n')
      await page.getByText('1 mistake').waitFor()
      await page.getByText('Waits for a valid rule.').waitFor()
      expect(await page.locator('.finding').first().innerText()).toMatch(/line 2.*scope/)
      expect(await page.getByRole('button', { name: 'Propose …' }).isDisabled()).toBe(true)

      // A text that is not saved is there again after another page was visited, until it is discarded.
      await visit(page, '/live')
      await visit(page, '/rules?edit=1', 'New rule')
      await page.getByText('This text was not saved when you left.').waitFor()
      expect(await area.inputValue()).toContain('rule_id: typo')
      await page.getByRole('button', { name: 'Discard it' }).click()
      expect(await area.inputValue()).toContain('rule_id: my_rule')
      await area.fill('rule_id: typo\nscope: per_usr\nlimit: 5\nwindow_seconds: 10\n')
      await page.getByText('1 mistake').waitFor()

      // A service that does not answer found no mistake.
      watched.expect(/ERR_FAILED|failed: .*validate/)
      await page.route('**/rules/validate', (route) => route.abort())
      await area.fill('rule_id: typo\nlimit: 5\nwindow_seconds: 10\n')
      await page.getByText('Not checked: The service does not answer').waitFor()
      expect(await page.getByText(/mistake/).count()).toBe(0)
      await page.unroute('**/rules/validate')
      await area.fill('rule_id: typo\nscope: per_usr\nlimit: 5\nwindow_seconds: 10\n')
      await page.getByText('1 mistake').waitFor()
      await page.screenshot({ path: `${SCREENSHOTS}/rules-invalid.png` })
      expect(await accessibilityProblems(page)).toEqual([])
      await area.fill(`rule_id: hostile\nname: ${JSON.stringify(ATTACKS[1])}\nlimit: 5\nwindow_seconds: 10\n`)
      await page.getByText('Valid', { exact: true }).waitFor()
      await area.fill('rule_id: messages_per_user\nscope: per_usr\nlimit: 5\nwindow_seconds: 10\n')
      await page.locator('.diff-removed', { hasText: 'scope: per_user' }).waitFor()
      expect(await page.locator('.diff-added').allInnerTexts()).not.toContain('rule_id: messages_per_user')
      expect(await page.evaluate('window.attacked')).toBeUndefined()
    })

    it('shows an import in the history of its rules, an expired rule, and the guard of an edit', async () => {
      const { call } = dashboard.fixture
      const { rules } = (await call(`${RULE_SET}?format=json`)) as { rules: { rule_id: string }[] }
      const login = { rule_id: 'login', endpoint_pattern: '/login', method: 'POST', scope: 'per_ip' }
      const imported = [
        { ...login, limit: 60, window: '1h' },
        { ...login, rule_id: 'expired_rule', limit: 5, window: '10s', expires_at: '2020-01-01' },
      ]
      await call(RULE_SET, { rules: [...rules, ...imported] }, 'PUT')
      onTestFinished(async () => {
        await endGuards(call)
        await call(`${RULE_SET}?guard=off&reason=test`, { rules }, 'PUT')
        await endGuards(call)
      })
      const { page } = await open('editor', '/rules')
      const row = (id: string) =>
        page.getByRole('region', { name: 'Active rules' }).last().locator('tr', { hasText: id })
      await row('expired_rule').getByText('expired', { exact: true }).waitFor()
      expect(await row('expired_rule').innerText()).toMatch(/5\/10s[\s\S]*POST \/login/)
      await page.getByText('guarded', { exact: true }).first().waitFor()
      await page.screenshot({ path: `${SCREENSHOTS}/rules-expired.png`, fullPage: true })
      await visit(page, '/rules/login')
      await page.getByRole('cell', { name: 'rules.import' }).waitFor()
      await page.getByRole('button', { name: 'Revert', exact: true }).waitFor()
      await page.screenshot({ path: `${SCREENSHOTS}/rules-guarded.png`, fullPage: true })
      await page.getByRole('button', { name: 'End the guard' }).click()
      await page.getByRole('dialog').getByRole('button', { name: 'End the guard' }).click()
      await page.getByRole('button', { name: 'Revert', exact: true }).waitFor({ state: 'detached' })

      // The service names more than 200 changes without their fields: the dialog never calls them equal.
      const many = Array.from({ length: 201 }, (_, index) => ({
        ...login,
        rule_id: `many_${index}`,
        limit: 9,
        window: '1h',
      }))
      await call(`${RULE_SET}?guard=off&reason=test`, { rules: [...rules, ...imported, ...many] }, 'PUT')
      await visit(page, '/rules')
      await page
        .getByRole('button', { name: /Roll back to version/ })
        .first()
        .click()
      const rollback = page.getByRole('dialog')
      await rollback.getByText('201 rules change:').waitFor()
      await rollback.getByText('201 deleted').waitFor()
      expect(await rollback.innerText()).not.toContain('No difference')
    })

    it('proposes, starts, promotes and completes a change, then rolls it back', async () => {
      const { page } = await open('editor', '/rules/messages_per_user?edit=1')
      const area = page.getByLabel('Rule as text')
      await area.waitFor()
      await area.fill((await area.inputValue()).replace('limit: 5', 'limit: 50'))
      await page.getByText('Valid', { exact: true }).waitFor()
      await page.getByText(/Matches [\d,]+ of the last [\d,]+ recorded requests/).waitFor()
      expect(await matchedOf(page)).toEqual(await recordedFor('/api/v1/messages', page))
      await page.screenshot({ path: `${SCREENSHOTS}/rules-editor.png`, fullPage: true })
      await page.getByRole('button', { name: 'Propose …' }).click()
      const dialog = page.getByRole('dialog')
      await dialog.getByLabel('Reason').fill('ten times as many')
      await dialog.getByLabel('Steps', { exact: true }).selectOption('own')
      await dialog.getByLabel('Steps as JSON').fill('[{"shadow": true}, {"canary": "50%"}]')
      await dialog.getByText('The new version decides for 50% of the keys').waitFor()
      await page.screenshot({ path: `${SCREENSHOTS}/rules-propose.png` })
      expect(await accessibilityProblems(page)).toEqual([])
      await dialog.getByRole('button', { name: 'Propose' }).click()
      await page.getByText('approved; waits for start').waitFor()
      await confirm(page, 'Start')
      await page.locator('.step-current', { hasText: 'shadow' }).waitFor()
      await dashboard.fixture.traffic()
      await confirm(page, 'Promote')
      await page.locator('.step-current', { hasText: 'canary 50%' }).waitFor()
      await page.screenshot({ path: `${SCREENSHOTS}/rules-rollout.png`, fullPage: true })
      expect(await accessibilityProblems(page)).toEqual([])
      await confirm(page, 'Pause')
      await page.getByRole('button', { name: 'Resume', exact: true }).first().waitFor()
      await confirm(page, 'Promote')
      await page.locator('.rule-text', { hasText: 'limit: 50' }).waitFor()
      await page.goto(`${dashboard.fixture.address}/rules`)
      await page
        .getByRole('button', { name: /Roll back to version/ })
        .first()
        .click()
      const rollback = page.getByRole('dialog')
      await rollback.getByText('One rule changes:').waitFor()
      await rollback.getByLabel('Reason').fill('too many')
      await page.screenshot({ path: `${SCREENSHOTS}/rules-rollback.png` })
      await rollback.getByRole('button', { name: 'Roll back' }).click()
      await rollback.waitFor({ state: 'detached' })
      const { limit } = (await dashboard.fixture.call('/api/v1/rate-limit/rules/messages_per_user')) as {
        limit: number
      }
      expect(limit).toBe(5)
    })

    it('counts no match for a rule of another path', async () => {
      const { page } = await open('editor', '/rules?edit=1')
      await page
        .getByLabel('Rule as text')
        .fill('rule_id: elsewhere\nendpoint_pattern: /nowhere\nlimit: 1\nwindow: 1m\n')
      await page.getByText(/Matches 0 of the last [1-9][\d,]* recorded requests/).waitFor()
      const area = page.getByLabel('Rule as text')
      await area.fill('rule_id: monthly\nendpoint_pattern: /api/v1/messages\nlimit: 100000\nwindow: 30d\n')
      await page.getByText(/cannot be told: they cover the last .*, less than 20 windows of 30 d/).waitFor()
    })

    it('is edited, proposed and started by keyboard alone', async () => {
      const { page } = await open('editor', '/rules')
      await tabTo(page, /^messages_per_user$/)
      await page.keyboard.press('Enter')
      await tabTo(page, /^Edit$/)
      await page.keyboard.press('Enter')
      await page.getByLabel('Rule as text').waitFor()
      await tabTo(page, /^Rule as text$/)
      const text = await page.getByLabel('Rule as text').inputValue()
      await page.keyboard.press('Control+A')
      await page.keyboard.insertText(text.replace('limit: 5', 'limit: 9'))
      await page.getByText('Valid', { exact: true }).waitFor()
      await tabTo(page, /^Propose …$/)
      await page.keyboard.press('Enter')
      await tabTo(page, /Reason/)
      await page.keyboard.insertText('by keyboard')
      await tabTo(page, /^Propose$/)
      await page.keyboard.press('Enter')
      await page.getByText('approved; waits for start').waitFor()
      await tabTo(page, /^Start$/)
      await page.keyboard.press('Enter')
      await page.getByRole('dialog', { name: 'Start this proposal' }).waitFor()
      await tabTo(page, /^Start$/)
      await page.keyboard.press('Enter')
      await page.locator('.step-current', { hasText: 'shadow' }).waitFor()
      const { proposals } = (await dashboard.fixture.call(PROPOSALS)) as {
        proposals: { proposal_id: string; reason: string }[]
      }
      const own = proposals.find(({ reason }) => reason === 'by keyboard')
      await dashboard.fixture.call(`${PROPOSALS}/${own?.proposal_id}/abort`, {})
    })

    it('creates, proposes, lets another person approve, runs a canary, and rolls back', async () => {
      const { requireApprovals, call } = dashboard.fixture
      await requireApprovals(1)
      onTestFinished(() => requireApprovals(0))
      const { page: editor } = await open('editor', '/rules?edit=1')
      await propose(editor, 1)
      expect(await editor.getByRole('button', { name: 'Approve' }).count()).toBe(0)
      const { page: approver } = await open('approver', '/rules/uploads_new')
      await approver.getByText('0 of 1 approvals').waitFor()
      await approver.screenshot({ path: `${SCREENSHOTS}/rules-approve.png`, fullPage: true })
      await confirm(approver, 'Reject')
      await approver.getByText('rejected').first().waitFor()
      await editor.goto(`${dashboard.fixture.address}/rules?edit=1`)
      await propose(editor, 1)
      await approver.goto(`${dashboard.fixture.address}/rules/uploads_new`)
      expect(await refusedUsers()).toBe(0)
      await confirm(approver, 'Approve') // the last approval starts the rollout
      await editor.locator('.step-current', { hasText: 'canary 50%' }).waitFor()
      // Each key is in the canary or not: about half of the users have the limit of one.
      await expect.poll(refusedUsers).toBeGreaterThan(0)
      expect(await refusedUsers()).toBeLessThan(USERS)
      await editor.screenshot({ path: `${SCREENSHOTS}/rules-canary.png`, fullPage: true })
      await confirm(editor, 'Abort')
      await editor.getByText('rolled back').first().waitFor()
      await expect.poll(refusedUsers).toBe(0)
      expect(await approver.evaluate('window.attacked')).toBeUndefined()

      /** Users, of 20, whose second request is refused. */
      async function refusedUsers(): Promise<number> {
        const checks = Array.from({ length: 2 * USERS }, (_, index) => ({
          ...{ client_id: `uploader_${index % USERS}`, endpoint: '/api/v1/uploads-new', method: 'POST' },
        }))
        const { results } = (await call('/api/v1/rate-limit/check/batch', { checks })) as {
          results: { allowed: boolean }[]
        }
        return new Set(results.flatMap(({ allowed }, index) => (allowed ? [] : [index % USERS]))).size
      }
    })

    it('charts the figures of the guard during a rollout', async () => {
      const change = { op: 'update', rule: { rule_id: 'search_per_ip', limit: 4 } }
      const body = { changes: [change], reason: 'too generous', steps: [{ shadow: true }], guard: { window: '1s' } }
      const { call } = dashboard.fixture
      const created = (await call('/api/v1/rate-limit/proposals', body)) as { proposal_id: string }
      const path = `/api/v1/rate-limit/proposals/${created.proposal_id}`
      await call(`${path}/start`, {})
      let batch = 0
      // Three of a hundred addresses send one request more than the new limit: less than the guard stops.
      const windows = async () => {
        batch += 1
        const addresses = Array.from(
          { length: 112 },
          (_, index) => `198.18.${batch}.${index < 100 ? index : index % 3}`,
        )
        const check = { endpoint: '/api/v1/search', method: 'GET' }
        const checks = addresses.map((address) => ({ ...check, ip_address: address }))
        await call('/api/v1/rate-limit/check/batch', { checks })
        const { rules } = (await call(`${path}/figures`)) as { rules: { windows: unknown[] }[] }
        return rules[0]?.windows.length ?? 0
      }
      await expect.poll(windows, { timeout: 90_000, interval: 1000 }).toBeGreaterThanOrEqual(2)
      const { page } = await open('viewer', '/rules/search_per_ip')
      await page.getByRole('img', { name: /Newly denied requests of search_per_ip/ }).waitFor()
      await page.getByText('Your role cannot move this proposal.').waitFor()
      await page.screenshot({ path: `${SCREENSHOTS}/rules-guard.png`, fullPage: true })
      await call(`${path}/abort`, {})
    })

    /** Requests for a path among as many of the newest as the page counted. */
    async function recordedFor(path: string, page: Page): Promise<number> {
      const total = Number(
        /of the last ([\d,]+)/.exec(await page.locator('main').innerText())?.[1]?.replaceAll(',', ''),
      )
      const { requests } = (await dashboard.fixture.call('/api/v1/rate-limit/simulate/requests?from=7d')) as {
        requests: { kind: string; subject?: { path?: string; user?: string } }[]
      }
      const checks = requests.filter(({ kind }) => kind === 'check').slice(0, total)
      return checks.filter(({ subject }) => subject?.path === path && subject.user !== undefined).length
    }
  })
}

async function matchedOf(page: Page): Promise<number> {
  return Number(/Matches ([\d,]+) of/.exec(await page.locator('main').innerText())?.[1]?.replaceAll(',', ''))
}

const TABS_MAX = 80

/** Presses Tab until an element with this text, or label and value, has the focus. */
async function tabTo(page: Page, text: RegExp): Promise<void> {
  const focused = async () => {
    const texts = await page.evaluate(() => {
      const element = document.activeElement as HTMLInputElement | null
      const label = element?.labels?.[0]?.innerText ?? ''
      return [element?.innerText ?? '', element?.value ?? '', label]
    })
    return texts.some((one) => text.test(one.trim()))
  }
  await expect.poll(() => page.getByText(text).or(page.getByLabel(text)).count()).toBeGreaterThan(0)
  for (let presses = 0; presses < TABS_MAX; presses++) {
    if (await focused()) return
    await page.keyboard.press('Tab')
  }
  throw new Error(`no element with the text ${text} can be reached by ${TABS_MAX} tabs`)
}

const PROPOSALS = '/api/v1/rate-limit/proposals'
const RULE_SET = '/api/v1/rate-limit/rule-set'
const USERS = 20

/** Fills the editor with a new rule, and proposes it for half of the keys. */
async function propose(page: Page, limit: number): Promise<void> {
  const rule = ['rule_id: uploads_new', 'endpoint_pattern: /api/v1/uploads-new', 'scope: per_user', `limit: ${limit}`]
  await page.getByLabel('Rule as text').fill(`${[...rule, 'window: 1d', 'consistency: strict'].join('\n')}\n`)
  await page.getByText('Valid', { exact: true }).waitFor()
  await page.getByRole('button', { name: 'Propose …' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('Reason').fill(String(ATTACKS[0]))
  await dialog.getByLabel('Steps', { exact: true }).selectOption('own')
  await dialog.getByLabel('Steps as JSON').fill('[{"canary": "50%"}]')
  await dialog.getByRole('button', { name: 'Propose' }).click()
  await page.getByText('0 of 1 approvals').waitFor()
}

async function confirm(page: Page, label: string): Promise<void> {
  await page.getByRole('button', { name: label, exact: true }).first().click()
  const dialog = page.getByRole('dialog', { name: `${label} this proposal` })
  await dialog.getByRole('button', { name: label, exact: true }).click()
  await dialog.waitFor({ state: 'detached' })
}
