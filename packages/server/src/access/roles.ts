// Who may do what. A route declares the role it needs; a token carries the role it has.

/** `check` asks for decisions only; the others each may do what those before them may, and `admin` everything. */
export const ROLES = ['check', 'viewer', 'editor', 'approver', 'admin'] as const

export type Role = (typeof ROLES)[number]

/**
 * What a route asks of its callers: a role, or nothing. `proxy` is for routes that proxies ask on behalf of their
 * clients, and that see to it themselves which proxies may: the header Authorization is that of the client, and meant
 * for somebody else.
 */
export type Access = Role | 'open' | 'proxy'

const LADDER: readonly Role[] = ['viewer', 'editor', 'approver', 'admin']

export function roleAllows(role: Role, needed: Role): boolean {
  return role === needed || role === 'admin' || (LADDER.indexOf(role) > LADDER.indexOf(needed) && needed !== 'check')
}
