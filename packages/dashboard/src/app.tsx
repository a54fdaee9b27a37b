// The page that matches the URL, inside the shell, or the sign-in page while signed out.

import { useEffect, useState } from 'preact/hooks'
import { ErrorBoundary, LocationProvider, lazy, Route, Router, useLocation } from 'preact-iso'
import { messageOf } from './api.ts'
import { EmptyState } from './components/empty-state.tsx'
import { Failure } from './components/notice.tsx'
import { PageHead } from './components/panel.tsx'
import { ROUTES } from './routes.ts'
import { answer, session } from './session.ts'
import { probeSession } from './session-calls.ts'
import { Shell } from './shell.tsx'
import { SignIn } from './sign-in.tsx'
import { isVisible } from './visibility.ts'

/** Each page is loaded when it is first shown. */
const PAGES = ROUTES.map((route) => ({ route, Page: lazy(() => route.load().then(({ Page }) => Page)) }))

export function App() {
  const [error, setError] = useState<string>()
  const probe = () => {
    setError(undefined)
    probeSession().catch((failure: unknown) => setError(messageOf(failure)))
  }
  useEffect(probe, [])
  if (answer.value === undefined) return error === undefined ? null : <Unreachable error={error} retry={probe} />
  return (
    <LocationProvider>
      <Pages />
    </LocationProvider>
  )
}

function Pages() {
  const { path } = useLocation()
  const isOpen = ROUTES.some((route) => route.role === 'anyone' && route.path === path)
  if (session.value === undefined && !isOpen) return <SignIn />
  return (
    <Shell>
      <ErrorBoundary>
        <Router>
          {PAGES.map(({ route, Page }) => (
            <Route key={route.path} path={route.path} component={isVisible(route) ? Page : Forbidden} />
          ))}
          <Route default component={NotFound} />
        </Router>
      </ErrorBoundary>
    </Shell>
  )
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
