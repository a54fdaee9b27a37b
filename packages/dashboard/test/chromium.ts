// Debian's Chromium, driven by playwright-core. Every page is watched: console errors, failed requests and violations
// of the content security policy fail the test that caused them.

import { accessSync, constants, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { linkOf, ROUTES } from '../src/routes.ts'

const PROGRAMS = ['chromium-headless-shell', 'chromium', 'chromium-browser']

/** Undefined where it cannot be had: the tests are skipped then. */
export const CHROMIUM: string | undefined = PROGRAMS.map((name) => `/usr/bin/${name}`).find((path) => {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
})

/** Name that resolves to this machine, as an attacker can arrange for a name of their own. */
export const REBOUND_NAME = 'rebound.example'

export function launchChromium(): Promise<Browser> {
  const args = ['--no-sandbox', '--disable-dev-shm-usage', `--host-resolver-rules=MAP ${REBOUND_NAME} 127.0.0.1`]
  return chromium.launch({ executablePath: CHROMIUM ?? '', args })
}

export type Watched = {
  readonly page: Page
  /** Everything that should not have happened, so far. */
  readonly problems: string[]
  /** Problems that match are expected in this test. */
  expect(pattern: RegExp): void
  close(): Promise<void>
}

export async function openPage(browser: Browser, options: BrowserContextOptions = {}): Promise<Watched> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options })
  const page = await context.newPage()
  const problems: string[] = []
  const expected: RegExp[] = []
  const report = (problem: string) => {
    if (!expected.some((pattern) => pattern.test(problem))) problems.push(problem)
  }
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') report(`console: ${message.text()}`)
  })
  page.on('pageerror', (error) => report(`exception: ${error.message}`))
  page.on('dialog', (dialog) => {
    report(`dialog: ${dialog.message()}`)
    void dialog.dismiss()
  })
  page.on('requestfailed', (request) => {
    // A page that is left closes its streams and requests.
    if (request.failure()?.errorText !== 'net::ERR_ABORTED') report(`failed: ${request.url()}`)
  })
  page.on('request', (request) => {
    if (!/^(http:\/\/(127\.0\.0\.1|localhost|rebound\.example)[:/]|data:|about:)/.test(request.url()))
      report(`request to another host: ${request.url()}`)
  })
  page.on('response', (response) => {
    if (response.status() >= 400) report(`${response.status()} ${response.url()}`)
  })
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', (event) => {
      console.error(`policy violation: ${event.violatedDirective} ${event.blockedURI}`)
    })
  })
  return { page, problems, expect: (pattern) => void expected.push(pattern), close: () => context.close() }
}

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

type Finding = { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }

/** Serious and critical findings of axe. `evaluate` is not subject to the content security policy. */
export function accessibilityProblems(page: Page): Promise<string[]> {
  return runAxe(page, 'axe.run()')
}

/** The part of them that depends on colours. */
export function contrastProblems(page: Page): Promise<string[]> {
  return runAxe(page, "axe.run({ runOnly: ['color-contrast'] })")
}

/** The part of them that depends on the size of the window. */
export function layoutProblems(page: Page): Promise<string[]> {
  return runAxe(page, `axe.run({ runOnly: ${JSON.stringify(LAYOUT_RULES)} })`)
}

const LAYOUT_RULES = ['scrollable-region-focusable', 'target-size', 'nested-interactive', 'button-name', 'link-name']

/**
 * Goes to another page of the app as a link does, without loading the app again. Waits for its heading: the page before
 * stays until the new one has been loaded.
 */
export async function visit(page: Page, path: string, heading: string = headingOf(path)): Promise<void> {
  await page.evaluate((url) => {
    history.pushState(null, '', url)
    dispatchEvent(new PopStateEvent('popstate'))
  }, path)
  await page.locator('#main').getByRole('heading', { level: 1, name: heading, exact: true }).waitFor()
  await settled(page)
}

/** Title of the page, or the client or rule that it shows. */
function headingOf(path: string): string {
  const { pathname } = new URL(path, 'http://any')
  const route = ROUTES.find((one) => linkOf(one) === pathname)
  return route?.title ?? decodeURIComponent(pathname.slice(pathname.lastIndexOf('/') + 1))
}

async function runAxe(page: Page, call: string): Promise<string[]> {
  if ((await page.evaluate('typeof axe')) === 'undefined') await page.evaluate(AXE)
  const findings = (await page.evaluate(`${call}.then(({ violations }) => violations)`)) as Finding[]
  const bad = findings.filter(({ impact }) => impact === 'serious' || impact === 'critical')
  const texts = bad.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html}\n  ${node.failureSummary}`))
  return [...new Set(texts)]
}

/** Waits until the page has its data: no placeholder is left. */
export async function settled(page: Page): Promise<void> {
  await page.waitForFunction(() => document.querySelectorAll('.skeleton').length === 0, undefined, { timeout: 15_000 })
}

/** Pixels by which the page is wider than the window. */
export function overflow(page: Page): Promise<number> {
  return page.evaluate(() => Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth))
}
