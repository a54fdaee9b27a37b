// What-if page with a log file: read in the browser, with the numbers of `sluice rules simulate`.

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import type { Page } from 'playwright-core'
import { describe, expect, it, onTestFinished } from 'vitest'
import { sluice } from '../../../server/test/cli/terminal.ts'
import { temporaryFolder } from '../../../server/test/databases.ts'
import { accessibilityProblems, overflow } from '../chromium.ts'
import type { Dashboard } from '../dashboard.ts'
import { ADMIN_TOKEN, ATTACKS, SCREENSHOTS, startFileNode } from '../fixture.ts'

const LOG = 'examples/access.log'
const RULES = 'examples/rules.yaml'
const PATIENT = { timeout: 30_000 }

export function logFileTests(dashboard: Dashboard): void {
  describe('what if with a log file', () => {
    it('has the totals, rules and clients of sluice rules simulate, and sends nothing of the file', async () => {
      const node = await startFileNode(RULES)
      onTestFinished(node.close)
      const { page, expect: expected } = await dashboard.open(undefined, '/learn')
      expected(/analytics|simulate\/requests|status of 4/) // this node stores no events
      await page.goto(`${node.address}/what-if?rule=comments_per_min`)
      await page.getByLabel('Token', { exact: true }).fill(ADMIN_TOKEN)
      await page.keyboard.press('Enter')
      await page.getByText('This node stores no events').waitFor()
      const sent: string[] = []
      page.on('request', (request) => sent.push(`${request.method()} ${new URL(request.url()).pathname}`))
      await page.getByLabel('Log file').setInputFiles(LOG)
      await page.getByText('access.log is replayed instead of recorded events').waitFor()
      await page.getByText('Exact: all 1,143 requests of the log were replayed.').waitFor()
      const now = await simulated('--rules', RULES)
      await expect.poll(() => figures(page), PATIENT).toEqual(figuresOf(now))
      expect(now.new.refused).toBeGreaterThan(0)
      await page.getByText('2 of 1,145 lines are malformed').click()
      await page.getByText('line 121: not in Common or Combined Log Format').waitFor()
      await page.getByText('line 501: the request cannot be read').waitFor()

      // Another limit: the same as the command with an edited file.
      await page.getByRole('slider', { name: 'Limit', exact: true }).focus()
      await page.keyboard.press('Home')
      const edited = join(temporaryFolder(), 'edited.yaml')
      const text = readFileSync(RULES, 'utf8')
      writeFileSync(edited, text.replace('limit: 100\n    window_seconds: 60', 'limit: 1\n    window_seconds: 60'))
      const then = await simulated('--rules', edited, '--against', RULES)
      expect(then.new.refused).toBeGreaterThan(now.new.refused)
      await expect.poll(() => figures(page), PATIENT).toEqual(figuresOf(then))
      expect(
        sent.filter((line) => !line.startsWith('GET ') && line !== 'POST /api/v1/rate-limit/rules/validate'),
      ).toEqual([])
      expect(await accessibilityProblems(page)).toEqual([])
      expect(await overflow(page)).toBe(0)
      await page.screenshot({ path: `${SCREENSHOTS}/what-if-log.png`, fullPage: true })
    })

    it('shows the texts of a log as text', async () => {
      const { page } = await dashboard.open('viewer', '/what-if?range=1h&rule=messages_per_user')
      const at = '[18/Nov/2026:12:00:00 +0000]'
      const lines = ATTACKS.flatMap((attack) => [
        `203.0.113.7 - ${JSON.stringify(attack)} ${at} "POST /api/v1/messages?${attack}" 429 1`,
        JSON.stringify({ time: '2026-11-18T12:00:01Z', client_id: attack, method: 'POST', path: '/api/v1/messages' }),
        attack,
      ])
      const log = { name: `${ATTACKS[1]}.log`, mimeType: 'text/plain', buffer: Buffer.from(lines.join('\n')) }
      await page.getByLabel('Log file').setInputFiles(log)
      await page.getByText('is replayed instead of recorded events').waitFor()
      await page.getByText(/lines are malformed/).click()
      expect(await page.locator('main').innerText()).toContain(log.name)
      await page.getByRole('region', { name: 'Refused requests by rule' }).last().waitFor()
      expect(await page.evaluate('window.attacked')).toBeUndefined()
    })

    it('reads dropped, compressed and JSON files, names the line of an error, and returns to the events', async () => {
      const { page } = await dashboard.open('viewer', '/what-if?range=1h&rule=messages_per_user')
      await page.getByText(/Exact: all \d+ recorded requests/).waitFor()
      await drop(page, 'broken.log', 'nonsense\nmore nonsense\n')
      await page.getByText('None of the 2 lines of broken.log can be read. Line 1: not in Common').waitFor()
      const line = { time: '2026-01-31T10:00:00Z', user: '<b>eve</b>', method: 'POST', path: '/api/v1/messages' }
      await drop(
        page,
        'lines.json',
        `${JSON.stringify(line)}
`.repeat(8),
      )
      await page.getByText('Exact: all 8 requests of the log were replayed.').waitFor()
      await expect.poll(async () => (await figures(page)).byRule.messages_per_user, PATIENT).toEqual([3, 3])
      const buffer = gzipSync(readFileSync(LOG))
      await page.getByLabel('Log file').setInputFiles({ name: 'access.log.gz', mimeType: 'application/gzip', buffer })
      await page.getByText('Exact: all 1,143 requests of the log were replayed.').waitFor()
      await page
        .getByLabel('Log file')
        .setInputFiles({ name: 'cut.log.gz', mimeType: '', buffer: buffer.subarray(0, 99) })
      await page.getByText('cut.log.gz cannot be read:').waitFor()
      await page.getByRole('button', { name: 'Close file' }).click()
      await page.getByText(/Exact: all \d+ recorded requests/).waitFor()
    })
  })
}

type Simulated = {
  readonly new: { readonly refused: number }
  readonly clients: { readonly refused: number }
  readonly against: 'recorded' | 'rules'
  readonly now: { readonly refused: number }
  readonly changes: { readonly newly_denied: number; readonly newly_allowed: number }
  readonly rules: readonly { readonly rule_id: string; readonly refused: number; readonly now_refused: number }[]
  readonly top: readonly { readonly client: string; readonly requests: number; readonly refused: number }[]
}

async function simulated(...args: readonly string[]): Promise<Simulated> {
  const { out } = await sluice(['rules', 'simulate', '--log', LOG, '--json', ...args])
  return JSON.parse(out) as Simulated
}

/** Without --against, the command compares with the log; the page always compares with the active rules. */
function figuresOf({ against, new: next, clients, changes, rules, top }: Simulated) {
  const isRules = against === 'rules'
  return {
    refused: next.refused,
    clients: clients.refused,
    newlyDenied: isRules ? changes.newly_denied : 0,
    newlyAllowed: isRules ? changes.newly_allowed : 0,
    byRule: Object.fromEntries(
      rules.map(({ rule_id: id, refused, now_refused: now }) => [id, [isRules ? now : refused, refused]]),
    ),
    byClient: top.map(({ client, requests, refused }) => [client, requests, refused]),
  }
}

async function figures(page: Page) {
  const figure = async (name: string) => numberIn(await page.locator(`[data-figure="${name}"]`).innerText())
  const rules = await cells(page, 'Refused requests by rule')
  const clients = await cells(page, "Clients that today's rules or the change would refuse")
  return {
    refused: await figure('refused'),
    clients: await figure('clients'),
    newlyDenied: await figure('newly-denied'),
    newlyAllowed: await figure('newly-allowed'),
    byRule: Object.fromEntries(
      rules.map(([id = '', now = '', then = '']) => [id.split(' ')[0] ?? '', [numberIn(now), numberIn(then)]]),
    ) as Record<string, number[]>,
    byClient: clients.map(([client, requests = '', _now, then = '']) => [client, numberIn(requests), numberIn(then)]),
  }
}

function cells(page: Page, caption: string): Promise<string[][]> {
  return page
    .getByRole('region', { name: caption })
    .locator('tbody tr')
    .evaluateAll((rows) => rows.map((row) => [...row.querySelectorAll('td')].map((cell) => cell.innerText.trim())))
}

function numberIn(text: string): number {
  return Number(text.replaceAll(',', ''))
}

async function drop(page: Page, name: string, text: string): Promise<void> {
  const dataTransfer = await page.evaluateHandle(
    ([fileName, content]) => {
      const transfer = new DataTransfer()
      transfer.items.add(new File([content ?? ''], fileName ?? ''))
      return transfer
    },
    [name, text],
  )
  await page.dispatchEvent('main', 'drop', { dataTransfer })
}
