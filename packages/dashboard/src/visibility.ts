// Decides which pages the navigation, the search and the router show.

import type { Route } from './routes.ts'
import { can } from './session.ts'

export function isVisible({ role }: Pick<Route, 'role'>): boolean {
  return role === 'anyone' || can(role)
}
