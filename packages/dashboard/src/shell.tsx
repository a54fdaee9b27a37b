// Frame of every page: navigation, search, theme, who is signed in, and the keyboard shortcuts.

import type { ComponentChildren } from 'preact'
import { useLayoutEffect, useMemo, useState } from 'preact/hooks'
import { useLocation } from 'preact-iso'
import { Help } from './help.tsx'
import { useShortcuts } from './keyboard.ts'
import { usePageUrl } from './location.ts'
import { linkOf, ROUTES, type Route } from './routes.ts'
import { Search } from './search.tsx'
import { answer, session } from './session.ts'
import { signOut } from './session-calls.ts'
import { isDark, nextTheme } from './theme.ts'
import { isVisible } from './visibility.ts'

const SECTIONS = ['Watch', 'Change', 'Operate'] as const

export function Shell({ children }: { readonly children: ComponentChildren }) {
  const { path, route } = useLocation()
  const pageUrl = usePageUrl()
  const [open, setOpen] = useState<'menu' | 'search' | 'help'>()
  const close = () => setOpen(undefined)
  const keys = useMemo(() => ({ '/': () => setOpen('search'), '?': () => setOpen('help') }), [])
  useShortcuts({
    go: (letter) => {
      const target = ROUTES.find((one) => one.key === letter && isVisible(one))
      if (target !== undefined) route(pageUrl(linkOf(target)))
    },
    keys,
  })
  const current = currentRoute(path)
  // A layout effect: the next key press may open something on the new page.
  useLayoutEffect(() => {
    document.title = current === undefined ? 'Sluice' : `${current.title} · Sluice`
    close()
  }, [path])
  return (
    <div class="shell">
      <a class="skip" href="#main">
        Skip to content
      </a>
      <TopBar onMenu={() => setOpen(open === 'menu' ? undefined : 'menu')} onSearch={() => setOpen('search')} />
      <Navigation current={current} isOpen={open === 'menu'} />
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      {open === 'search' && <Search onClose={close} />}
      {open === 'help' && <Help onClose={close} />}
    </div>
  )
}

function TopBar({ onMenu, onSearch }: { readonly onMenu: () => void; readonly onSearch: () => void }) {
  return (
    <header class="top">
      <button type="button" class="icon menu-button" aria-label="Menu" onClick={onMenu}>
        ☰
      </button>
      <a class="brand" href="/">
        <img src="/favicon.svg" alt="" width="20" height="20" />
        Sluice
      </a>
      <span class="node muted">{answer.value?.node}</span>
      <button type="button" class="search-button" onClick={onSearch}>
        <span>Search</span> <kbd>/</kbd>
      </button>
      <button
        type="button"
        class="icon"
        aria-label={isDark.value ? 'Light theme' : 'Dark theme'}
        title={isDark.value ? 'Light theme' : 'Dark theme'}
        onClick={nextTheme}
      >
        {isDark.value ? '☀' : '☾'}
      </button>
      {session.value === undefined ? (
        <a class="button" href="/">
          Sign in
        </a>
      ) : (
        <span class="who">
          <span class="who-name">
            {session.value.token_name === '--admin-token' ? 'admin token' : session.value.token_name}{' '}
            <span class="muted">{session.value.role}</span>
          </span>
          <button type="button" class="link" onClick={() => void signOut()}>
            Sign out
          </button>
        </span>
      )}
    </header>
  )
}

function Navigation({ current, isOpen }: { readonly current: Route | undefined; readonly isOpen: boolean }) {
  const pageUrl = usePageUrl()
  return (
    <nav class={isOpen ? 'nav nav-open' : 'nav'} aria-label="Pages">
      {SECTIONS.map((section) => {
        const routes = ROUTES.filter((route) => route.section === section && isVisible(route))
        if (routes.length === 0) return null
        return (
          <div key={section} class="nav-section">
            <p class="nav-title" id={`nav-${section}`}>
              {section}
            </p>
            <ul aria-labelledby={`nav-${section}`}>
              {routes.map((route) => (
                <li key={route.path}>
                  <a href={pageUrl(linkOf(route))} aria-current={route === current ? 'page' : undefined}>
                    {route.title}
                    {route.key !== undefined && <kbd>g {route.key}</kbd>}
                  </a>
                </li>
              ))}
            </ul>
          </div>
        )
      })}
      <p class="nav-foot muted">Sluice {answer.value?.version}</p>
    </nav>
  )
}

function currentRoute(path: string): Route | undefined {
  return ROUTES.find((route) => {
    const link = linkOf(route)
    return path === link || (link !== '/' && path.startsWith(`${link}/`))
  })
}
