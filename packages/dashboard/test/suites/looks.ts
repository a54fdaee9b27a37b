// Every page in light, dark and on a phone: accessible, not wider than the window, without errors.

import { describe, expect, it } from 'vitest'
import { linkOf, ROUTES } from '../../src/routes.ts'
import { accessibilityProblems, contrastProblems, layoutProblems, overflow, settled } from '../chromium.ts'
import type { Dashboard } from '../dashboard.ts'
import { SCREENSHOTS } from '../fixture.ts'

const PHONE = { width: 390, height: 844 }

const VIEWS = [
  ...ROUTES.map((route) => ({
    name: linkOf(route).slice(1) || 'overview',
    path: linkOf(route),
    role: 'admin' as const,
  })),
  { name: 'rule', path: '/rules/exports', role: 'editor' as const },
  { name: 'client', path: '/clients/user_1', role: 'editor' as const },
  { name: 'address', path: '/clients/203.0.113.1?kind=ip', role: 'viewer' as const },
  { name: 'what-if-changed', path: '/what-if?range=1h&rule=messages_per_user&limit=3', role: 'viewer' as const },
  { name: 'learn-signed-out', path: '/learn', role: undefined },
]

export function looksTests({ open }: Dashboard): void {
  describe.each(VIEWS)('the page $name', ({ name, path, role }) => {
    it('is accessible and clean in light, in dark and on a phone', async () => {
      const { page } = await open(role, path, { colorScheme: 'light' })
      const picture = (look: string) =>
        page.screenshot({ path: `${SCREENSHOTS}/${name}-${look}.png`, fullPage: true, animations: 'disabled' })
      await page.locator('#main h1').waitFor()
      await settled(page)
      expect(await page.locator('h1').count()).toBe(1)
      expect(await accessibilityProblems(page)).toEqual([])
      expect(await overflow(page), 'the page scrolls sideways').toBe(0)
      await picture('light')
      await page.emulateMedia({ colorScheme: 'dark' })
      await page.locator('html[data-theme="dark"]').waitFor({ state: 'attached' })
      expect(await contrastProblems(page)).toEqual([])
      await picture('dark')
      await page.emulateMedia({ colorScheme: 'light' })
      await page.setViewportSize(PHONE)
      await page.locator('html[data-theme="light"]').waitFor({ state: 'attached' })
      expect(await layoutProblems(page)).toEqual([])
      expect(await overflow(page), 'the page scrolls sideways on a phone').toBe(0)
      await picture('phone')
      expect(await page.evaluate('window.attacked')).toBeUndefined()
    })
  })
}
