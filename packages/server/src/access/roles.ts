// Roles of tokens, and the access that a route requires.

import type { Session } from './session.ts'

/**
 * In ascending order. Each role includes the roles before it, except that only `admin` includes `check`.
 */
export const ROLES = ['check', 'viewer', 'editor', 'approver', 'admin'] as const

export type Role = (typeof ROLES)[number]

/**
 * Requirement of a route: a role, or none. `proxy`: called by proxies on behalf of their clients. Such a route checks
 * the proxy itself, because the Authorization header belongs to the client and is meant for another service.
 */
export type Access = Role | 'open' | 'proxy'

const RANKS: readonly Role[] = ['viewer', 'editor', 'approver', 'admin']

export function roleAllows(role: Role, needed: Role): boolean {
  return role === needed || role === 'admin' || (RANKS.indexOf(role) > RANKS.indexOf(needed) && needed !== 'check')
}

/** Sender of a request. */
export type Caller = {
  /** `anonymous`, or the id of the token: for logs and the audit log. */
  readonly id: string
  readonly role: Role | undefined
  /** Session of the dashboard that sent the request; undefined for a bearer token. */
  readonly session?: Session | undefined
}
