// Pictures of the documentation, from a real service under load. Run by `npm run screenshots` only. Waits for a calm
// service, and fails without one: a picture of a busy machine shows a latency that no reader has. Pictures of the same
// views in dark and on a phone go to the folder of the tests, to be looked at.

import { mkdirSync } from 'node:fs'
import type { Browser, Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import { CHROMIUM, launchChromium, openPage, settled } from './chromium.ts'
import { ADMIN_TOKEN, type Fixture, SCREENSHOTS, startFixture, startRegionNode } from './fixture.ts'

const FOLDER = 'docs/images'
/** Views that the guides show. */
const DOCUMENTED = [
  ...[
    'overview',
    'why',
    'rules',
    'rollout',
    'what-if',
    'learn',
    'client',
    'exceptions',
    'incident',
    'hot-keys',
    'regions',
  ],
]
const TRAFFIC_SECONDS = 100
/** An idle machine decides in less. */
const CALM_P99_US = 25_000
/** The figures go back five minutes: what happened before the service was calm leaves them in that time. */
const CALM_WITHIN_MS = 15 * 60_000
const CALM_POLL_MS = 2000
const TICK_MS = 250
const isWanted = process.env.SLUICE_SCREENSHOTS !== undefined

describe.skipIf(!isWanted || CHROMIUM === undefined)('pictures of the documentation', () => {
  it('show a service under load', { timeout: 2 * CALM_WITHIN_MS }, async () => {
    mkdirSync(FOLDER, { recursive: true })
    const [fixture, browser] = await Promise.all([startFixture(), launchChromium()])
    try {
      const { page, problems } = await openPage(browser, { colorScheme: 'light' })
      await signIn(page, fixture.address, fixture.tokens.admin.secret)
      await prepare(fixture)
      const proposal = await startRollout(fixture)
      const load = sendLoad(page, fixture, TRAFFIC_SECONDS * (1000 / TICK_MS))
      await load.filled
      await calm(page, fixture)
      await pictureOfRollout(page, fixture, proposal)
      await pictures(page, fixture)
      load.stop()
      await pictureOfRegions(browser)
      expect(problems).toEqual([])
    } finally {
      await browser.close()
      await fixture.close()
    }
  })
})

async function signIn(page: Page, address: string, token: string): Promise<void> {
  await page.goto(`${address}/`)
  await page.getByLabel('Token', { exact: true }).fill(token)
  await page.keyboard.press('Enter')
  await page.locator('#main h1').waitFor()
}

/** Rules of an ordinary service, instead of those with hostile names. */
async function prepare({ call, tokens }: Fixture): Promise<void> {
  const rules = '/api/v1/rate-limit/rules'
  await call(`${rules}/exports`, undefined, 'DELETE')
  await call(`${rules}/messages_per_user`, { limit: 20, window_seconds: 10 }, 'PATCH')
  await call(`${rules}/search_per_ip`, { limit: 12, window_seconds: 10, name: 'Searching, per address' }, 'PATCH')
  const feed = {
    rule_id: 'feed_per_user',
    name: 'Reading the feed',
    endpoint_pattern: '/api/v1/feed',
    scope: 'per_user',
  }
  await call(rules, { ...feed, limit: 60, window_seconds: 60 })
  const { proposals } = (await call('/api/v1/rate-limit/proposals')) as { proposals: { proposal_id: string }[] }
  for (const { proposal_id: id } of proposals) {
    await call(`/api/v1/rate-limit/proposals/${id}/promote`, {}).catch(() => {}) // some have ended
  }
  await call(`/api/v1/admin/tokens/${tokens.viewer.id}`, undefined, 'DELETE')
  const reason = 'paid for a higher limit until the end of the quarter'
  await call('/api/v1/rate-limit/overrides', { key: 'tenant:acme', factor: 3, reason, expires_in: '30d' })
}

async function startRollout({ call }: Fixture): Promise<string> {
  const change = { op: 'update', rule: { rule_id: 'search_per_ip', limit: 10 } }
  const steps = [{ shadow: '1h' }, { canary: '10%', for: '1h' }, { canary: '50%', for: '1h' }]
  const body = {
    changes: [change],
    reason: 'searches overload the database',
    steps,
    guard: { window: '5s', p99: { ms: 5000 } },
  }
  const { proposal_id: id } = (await call('/api/v1/rate-limit/proposals', body)) as { proposal_id: string }
  await call(`/api/v1/rate-limit/proposals/${id}/start`, {})
  return id
}

type Load = { readonly filled: Promise<void>; stop(): void }

/** Ordinary traffic with one abusive client. Goes on until it is stopped. */
function sendLoad(page: Page, { call }: Fixture, ticks: number): Load {
  let isStopped = false
  let fill = () => {}
  const filled = new Promise<void>((resolve) => {
    fill = resolve
  })
  void (async () => {
    for (let tick = 0; !isStopped; tick++) {
      if (tick === ticks) fill()
      await call('/api/v1/rate-limit/check/batch', { checks: checksOf(tick) })
      await page.waitForTimeout(TICK_MS)
    }
  })().catch(() => fill())
  const stop = () => {
    isStopped = true
  }
  return { filled, stop }
}

function checksOf(tick: number): object[] {
  const size = Math.round(60 + 25 * Math.sin(tick / 40) + (tick % 7))
  return Array.from({ length: size }, (_, index) => {
    const isCrawler = index % 6 === 0 && Math.sin(tick / 60) > -0.6
    const user = (tick * 31 + index * 17) % 300
    return {
      client_id: isCrawler ? 'crawler-eu-3' : `user_${user}`,
      endpoint: ['/api/v1/messages', '/api/v1/search', '/api/v1/feed'][(tick + index) % 3],
      method: (tick + index) % 3 === 0 ? 'POST' : 'GET',
      ip_address: isCrawler ? '203.0.113.77' : `198.51.100.${user % 200}`,
      plan: user % 4 === 0 ? 'pro' : 'free',
      tenant: user % 10 === 0 ? 'acme' : 'globex',
    }
  })
}

type Fleet = {
  readonly nodes: readonly { readonly node: string; readonly status: string }[]
  readonly alerts: readonly { readonly type: string }[]
  readonly figures: readonly { readonly p99_us: readonly (number | null)[] }[]
}

/** Waits until every node is ready, no alert is open, and no step of the charts has a latency of a busy machine. */
async function calm(page: Page, { call }: Fixture): Promise<void> {
  const sinceMs = performance.now()
  for (;;) {
    const { nodes, alerts, figures } = (await call('/api/v1/fleet')) as Fleet
    const p99 = Math.max(...figures.flatMap(({ p99_us: values }) => values.filter((value) => value !== null)))
    const reasons = [
      ...nodes.filter(({ status }) => status !== 'ready').map(({ node, status }) => `${node} is ${status}`),
      ...alerts.map(({ type }) => `alert ${type}`),
      ...(p99 > CALM_P99_US ? [`p99 of ${Math.round(p99 / 1000)} ms within five minutes`] : []),
    ]
    if (reasons.length === 0) return
    if (performance.now() - sinceMs > CALM_WITHIN_MS) {
      throw new Error(`no picture was taken: ${reasons.join(', ')}. Run it on an idle machine.`)
    }
    await page.waitForTimeout(CALM_POLL_MS)
  }
}

async function pictureOfRollout(page: Page, { address }: Fixture, proposal: string): Promise<void> {
  await page.goto(`${address}/rules/search_per_ip?range=5m&proposal=${proposal}`)
  await page.getByRole('img', { name: /Newly denied/ }).waitFor()
  await settled(page)
  await picture(page, 'rollout')
}

async function pictures(page: Page, fixture: Fixture): Promise<void> {
  const { address, call } = fixture
  const show = async (name: string, path: string, ready: () => Promise<unknown> = async () => {}) => {
    await page.goto(address + path)
    await page.locator('#main h1').waitFor()
    await ready()
    await settled(page)
    await picture(page, name)
  }
  const text = (wanted: RegExp | string) => () => page.getByText(wanted).first().waitFor()
  await calm(page, fixture)
  await show('overview', '/?range=5m', text('ready'))
  await show('live', '/live', () =>
    page
      .getByRole('button', { name: /refused/ })
      .first()
      .waitFor(),
  )
  await page
    .getByRole('button', { name: /refused/ })
    .first()
    .click()
  await page.getByText(/Retry-After/).waitFor()
  await picture(page, 'why')
  await show('rules', '/rules?range=5m', text('search_per_ip'))
  await show('editor', '/rules/messages_per_user?edit=1', text(/Matches/))
  await show('what-if', '/what-if?range=15m&rule=messages_per_user&limit=8', () =>
    page.locator('[data-figure="refused"]', { hasText: /\d/ }).waitFor(),
  )
  await show('learn', '/learn', () => page.waitForTimeout(8000)) // the buckets need some seconds of arrivals
  await show('clients', '/clients?range=5m', text('crawler-eu-3'))
  const client = '/clients/crawler-eu-3?range=5m&path=/api/v1/messages&method=POST'
  await show('client', client, text(/ per 10 s, up to/))
  await show('exceptions', '/exceptions', text('tenant:acme'))
  await show('incident', '/incident', text('Rule changes are allowed'))
  for (let batch = 0; batch < 12; batch++) {
    const checks = Array.from({ length: 1000 }, (_, index) => ({
      ...{ client_id: index % 4 < 3 ? 'crawler-eu-3' : `user_${index}`, ip_address: `198.51.100.${index % 40}` },
      ...{ endpoint: '/api/v1/messages', method: 'POST' },
    }))
    await call('/api/v1/rate-limit/check/batch', { checks })
  }
  await show('hot-keys', '/hot-keys', text('messages_per_user'))
  await show('settings', '/settings', text('on-call'))
}

async function pictureOfRegions(browser: Browser): Promise<void> {
  const node = await startRegionNode()
  try {
    const { page } = await openPage(browser, { colorScheme: 'light' })
    for (let index = 0; index < 90; index++) {
      await node.call('/api/v1/rate-limit/check', { client_id: `user_${index % 2}`, endpoint: '/api/v1/orders' })
    }
    await signIn(page, node.address, ADMIN_TOKEN)
    await page.goto(`${node.address}/regions`)
    await page.getByText('orders_worldwide').waitFor()
    await picture(page, 'regions')
  } finally {
    await node.close()
  }
}

/** The visible part of the page for the documentation; the whole page in the other looks. */
async function picture(page: Page, name: string): Promise<void> {
  await page.mouse.move(0, 0)
  const isDocumented = DOCUMENTED.includes(name)
  await page.screenshot({
    path: isDocumented ? `${FOLDER}/dashboard-${name}.png` : `${SCREENSHOTS}/load-${name}-light.png`,
  })
  await page.emulateMedia({ colorScheme: 'dark' })
  await page.locator('html[data-theme="dark"]').waitFor({ state: 'attached' })
  await page.screenshot({ path: `${SCREENSHOTS}/load-${name}-dark.png`, fullPage: true })
  await page.emulateMedia({ colorScheme: 'light' })
  await page.setViewportSize({ width: 390, height: 844 })
  await page.locator('html[data-theme="light"]').waitFor({ state: 'attached' })
  await page.screenshot({ path: `${SCREENSHOTS}/load-${name}-phone.png`, fullPage: true })
  await page.setViewportSize({ width: 1280, height: 900 })
}
