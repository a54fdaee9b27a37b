// The page that matches the URL, inside the shell, or the sign-in page while signed out.

import { useEffect, useState } from 'preact/hooks'
import { LocationProvider, Route, Router, useLocation } from 'preact-iso'
import { messageOf, probeSession } from './api.ts'
import { EmptyState } from './components/empty-state.tsx'
import { Failure } from './components/notice.tsx'
import { PageBoundary } from './components/page-boundary.tsx'
import { PageHead } from './components/panel.tsx'
import { lazyPage } from './load-page.tsx'
import { ROUTES } from './routes.ts'
import { answer, session } from './session.ts'
import { Shell } from './shell.tsx'
import { SignIn } from './sign-in.tsx'
import { isVisible } from './visibility.ts'

/** Each page is loaded when it is first shown. */
const PAGES = ROUTES.map((route) => ({ route, Page: lazyPage(route) }))

export function App() {
  const [error, setError] = useState<string>()
  const probe = () => {
    setError(undefined)
    probeSession().catch((failure: unknown) => setError(messageOf(failure)))
  }
  useEffect(probe, [])
  useEffect(() => {
    const onVisible = () => document.hidden || void probeSession().catch(() => {}) // requests report what fails
    document.addEventListener('visibilitychange', onVisible)
    return () => document.removeEventListener('visibilitychange', onVisible)
  }, [])
  if (answer.value === undefined) return error === undefined ? null : <Unreachable error={error} retry={probe} />
  return (
    <LocationProvider>
      <Pages />
    </LocationProvider>
  )
}

function Pages() {
  const { path, url } = useLocation()
  const isOpen = ROUTES.some((route) => route.role === 'anyone' && route.path === path)
  if (session.value === undefined && !isOpen) return <SignIn />
  return (
    <Shell>
      <PageBoundary url={url}>
        {isReadable(path) ? (
          <Router>
            {PAGES.map(({ route, Page }) => (
              <Route key={route.path} path={route.path} component={isVisible(route) ? Page : Forbidden} />
            ))}
            <Route default component={NotFound} />
          </Router>
        ) : (
          <NotFound />
        )}
      </PageBoundary>
    </Shell>
  )
}

/** The router decodes the parts of the path, and cannot decode `%zz`. */
function isReadable(path: string): boolean {
  try {
    return decodeURIComponent(path) !== '' // a result that is not used would be optimised away
  } catch {
    return false
  }
}

function Unreachable({ error, retry }: { readonly error: string; readonly retry: () => void }) {
  return (
    <main class="alone">
      <h1>Sluice</h1>
      <Failure error={error} retry={retry} />
    </main>
  )
}

function Forbidden() {
  return (
    <>
      <PageHead title="Not allowed" />
      <EmptyState title="Your role does not include this page">
        Sign in with a token of a higher role to see it.
      </EmptyState>
    </>
  )
}

function NotFound() {
  return (
    <>
      <PageHead title="No such page" />
      <EmptyState title="There is nothing at this address" action={<a href="/">Go to the overview</a>}>
        The link may be from another version of the dashboard.
      </EmptyState>
    </>
  )
}
