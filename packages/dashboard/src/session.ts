// The session: who is signed in, and what that role may do. The service enforces roles; the page only hides what would
// be refused.

import { computed, signal } from '@preact/signals'

export type Role = 'viewer' | 'editor' | 'approver' | 'admin'

export type Session = {
  readonly token_id: string
  readonly token_name: string
  readonly role: Role
  /** End of the session, RFC 3339. */
  readonly expires_at: string
  readonly csrf: string
}

/** Answer of GET /api/v1/session, which is 200 also while signed out. */
export type SessionAnswer = {
  readonly session: Session | null
  readonly node: string
  readonly version: string
  /** False if no token could sign in. */
  readonly can_sign_in: boolean
}

const RANKS: readonly Role[] = ['viewer', 'editor', 'approver', 'admin']

/** Undefined until the service has answered. */
export const answer = signal<SessionAnswer | undefined>(undefined)
export const session = computed(() => answer.value?.session ?? undefined)
/** Reason that the last session ended, for the sign-in page. */
export const endReason = signal<string | undefined>(undefined)

/** Whether the signed-in role includes `needed`. False while signed out. */
export function can(needed: Role): boolean {
  const role = session.value?.role
  return role !== undefined && RANKS.indexOf(role) >= RANKS.indexOf(needed)
}

export function csrfToken(): string {
  return session.value?.csrf ?? ''
}

/** Keeps the answer of a probe. A session that ended elsewhere says so on the sign-in page. */
export function sessionChanged(probed: SessionAnswer): void {
  if (probed.session === null && session.value !== undefined) endReason.value = 'The session has ended.'
  if (JSON.stringify(probed) !== JSON.stringify(answer.value)) answer.value = probed
}

export function sessionEnded(reason: string | undefined): void {
  if (answer.value === undefined || answer.value.session === null) return
  endReason.value = reason
  answer.value = { ...answer.value, session: null }
}
