// Loads pages when they are first shown. After an upgrade the files of a page have other names: the dashboard then
// reloads itself once, and if that does not help, says so.

import type { FunctionComponent } from 'preact'
import { lazy } from 'preact-iso'
import { probeSession } from './api.ts'
import { Notice } from './components/notice.tsx'
import { PageHead } from './components/panel.tsx'
import type { Route } from './routes.ts'

/** Set while the dashboard reloads for a page that was not found. */
const KEY = 'sluice-reloading'

export function lazyPage(route: Route): FunctionComponent {
  return lazy(async () => {
    try {
      const { Page } = await route.load()
      setReloading(false)
      return Page
    } catch {
      return notLoaded(route)
    }
  })
}

/** Resolves in any case: preact-iso would show nothing for ever after a rejection. */
async function notLoaded({ title }: Route): Promise<FunctionComponent> {
  const answers = await probeSession().then(
    () => true,
    () => false,
  )
  if (answers && !isReloading() && setReloading(true)) {
    location.reload()
    return () => null
  }
  setReloading(false)
  const reason = answers
    ? 'A new version of Sluice is running. Reload to use its dashboard.'
    : 'The service does not answer. Reload once it is running.'
  return () => (
    <>
      <PageHead title={title} />
      <Notice tone="warning">
        This page could not be loaded. {reason}{' '}
        <button type="button" class="link" onClick={() => location.reload()}>
          Reload
        </button>
      </Notice>
    </>
  )
}

function isReloading(): boolean {
  try {
    return sessionStorage.getItem(KEY) !== null
  } catch {
    return true // storage is blocked: a reload could repeat for ever
  }
}

/** False if storage is blocked. */
function setReloading(value: boolean): boolean {
  try {
    if (value) sessionStorage.setItem(KEY, '1')
    else sessionStorage.removeItem(KEY)
    return true
  } catch {
    return false
  }
}
