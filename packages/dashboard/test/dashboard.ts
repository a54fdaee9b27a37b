// One service and one browser for all tests of the dashboard: starting them takes longer than most tests.

import type { Browser, BrowserContextOptions } from 'playwright-core'
import { afterAll, beforeAll, expect, onTestFinished, vi } from 'vitest'
import { launchChromium, openPage, type Watched } from './chromium.ts'
import { type Fixture, type Role, startFixture } from './fixture.ts'

export type Dashboard = {
  readonly fixture: Fixture
  /** A page that fails its test if anything goes wrong in it; signed in, unless the role is undefined. */
  open(role: Role | undefined, path: string, options?: BrowserContextOptions): Promise<Watched>
}

const RECORDED_MIN = 70

export function useDashboard(): Dashboard {
  let fixture: Fixture
  let browser: Browser
  const cookies = new Map<Role, { name: string; value: string }>()

  beforeAll(async () => {
    const started = await Promise.all([startFixture(), launchChromium()])
    fixture = started[0]
    browser = started[1]
    await fixture.traffic()
    await vi.waitUntil(async () => (await recorded(fixture)) >= RECORDED_MIN, { timeout: 30_000 })
  })

  afterAll(async () => {
    await browser?.close()
    await fixture?.close()
  })

  return {
    get fixture() {
      return fixture
    },
    open: async (role, path, options = {}) => {
      const watched = await openPage(browser, options)
      onTestFinished(async () => {
        await watched.close()
        expect(watched.problems).toEqual([])
      })
      if (role !== undefined) {
        const cookie = cookies.get(role) ?? (await sessionCookie(fixture, role))
        cookies.set(role, cookie)
        await watched.page.context().addCookies([{ ...cookie, url: fixture.address }])
      }
      await watched.page.goto(fixture.address + path)
      if (role !== undefined) await watched.page.locator('#main h1').waitFor()
      return watched
    },
  }
}

async function recorded({ call }: Fixture): Promise<number> {
  const { requests } = (await call('/api/v1/rate-limit/simulate/requests?from=1h')) as { requests: unknown[] }
  return requests.length
}

/** Signs in as the sign-in page does. */
async function sessionCookie({ address, tokens }: Fixture, role: Role): Promise<{ name: string; value: string }> {
  const response = await fetch(`${address}/api/v1/session`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', origin: address },
    body: JSON.stringify({ token: tokens[role].secret }),
  })
  const [pair = ''] = (response.headers.get('set-cookie') ?? '').split(';', 1)
  const at = pair.indexOf('=')
  return { name: pair.slice(0, at), value: pair.slice(at + 1) }
}
