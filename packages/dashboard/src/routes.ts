// Every page of the dashboard. To add one: a folder in pages/ and a row here. Navigation, keyboard shortcuts, search,
// page titles and the tests of all pages follow from this table.

import type { FunctionComponent } from 'preact'
import type { Role } from './session.ts'

export type Route = {
  /** Path with parameters as in preact-iso: `/rules/:id?`. The component receives them in `useRoute().params`. */
  readonly path: string
  readonly title: string
  /** Shown in the navigation under this heading; undefined: reached by links only. */
  readonly section: 'Watch' | 'Change' | 'Operate' | undefined
  /** Second key of the shortcut `g x`. Unique. */
  readonly key: string | undefined
  /** Least role that sees the page. `anyone`: also without a session. */
  readonly role: Role | 'anyone'
  /** One sentence for the search. */
  readonly about: string
  readonly load: () => Promise<{ readonly Page: FunctionComponent }>
}

export const ROUTES: readonly Route[] = [
  {
    path: '/',
    title: 'Overview',
    section: 'Watch',
    key: 'o',
    role: 'viewer',
    about: 'Requests, refusals, latency and health of the fleet',
    load: () => import('./pages/overview/page.tsx'),
  },
  {
    path: '/live',
    title: 'Live tail',
    section: 'Watch',
    key: 'l',
    role: 'viewer',
    about: 'Decisions as they happen, and why a request was refused',
    load: () => import('./pages/live/page.tsx'),
  },
  {
    path: '/clients/:id?',
    title: 'Clients',
    section: 'Watch',
    key: 'c',
    role: 'viewer',
    about: 'One user, key, address or tenant: buckets, refusals, overrides and bans',
    load: () => import('./pages/clients/page.tsx'),
  },
  {
    path: '/rules/:id?',
    title: 'Rules',
    section: 'Change',
    key: 'r',
    role: 'viewer',
    about: 'Limits, their traffic, proposals and rollouts',
    load: () => import('./pages/rules/page.tsx'),
  },
  {
    path: '/what-if',
    title: 'What if',
    section: 'Change',
    key: 'w',
    role: 'viewer',
    about: 'Drag a limit over recorded traffic: who would be refused',
    load: () => import('./pages/what-if/page.tsx'),
  },
  {
    path: '/learn',
    title: 'Learn and try',
    section: 'Change',
    key: 't',
    role: 'anyone',
    about: 'A simulator of every algorithm, in the browser',
    load: () => import('./pages/learn/page.tsx'),
  },
  {
    path: '/exceptions',
    title: 'Exceptions',
    section: 'Operate',
    key: 'e',
    role: 'viewer',
    about: 'Overrides, bypass tokens and abuse signals',
    load: () => import('./pages/exceptions/page.tsx'),
  },
  {
    path: '/incident',
    title: 'Incident',
    section: 'Operate',
    key: 'i',
    role: 'viewer',
    about: 'Kill switch, freeze, global factor and drill',
    load: () => import('./pages/incident/page.tsx'),
  },
  {
    path: '/hot-keys',
    title: 'Hot keys',
    section: 'Operate',
    key: 'h',
    role: 'viewer',
    about: 'The busiest keys, and their share of the traffic',
    load: () => import('./pages/hot-keys/page.tsx'),
  },
  {
    path: '/regions',
    title: 'Regions',
    section: 'Operate',
    key: 'n',
    role: 'viewer',
    about: 'How regions share limits',
    load: () => import('./pages/regions/page.tsx'),
  },
  {
    path: '/settings',
    title: 'Settings',
    section: 'Operate',
    key: 's',
    role: 'viewer',
    about: 'API tokens, event sinks and webhooks',
    load: () => import('./pages/settings/page.tsx'),
  },
]

/** Path without its parameters, for links: `/rules/:id?` → `/rules`. */
export function linkOf({ path }: Route): string {
  return path.replace(/\/:.*$/, '') || '/'
}
