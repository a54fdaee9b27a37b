// Conditions for approvers of a change: a token of the role approver or above that is neither the author nor created by
// the author, and that is older than the change. Otherwise one person could propose and approve with two tokens.

import { type Role, roleAllows } from '../access/roles.ts'

/** A change that waits for approval. */
export type Approvable = {
  /** Token that made it. */
  readonly author: string
  /** Database time. */
  readonly createdAt: Date
}

/** A token that wants to approve, as the database knows it now. */
export type Approver = {
  readonly id: string
  readonly role: Role | undefined
  /** Database time at which the token was created; undefined for the admin token of the settings, which has none. */
  readonly recordedAt: Date | undefined
  /** The token that created it, the token that created that one, and so on. */
  readonly creators: readonly string[]
  readonly revoked: boolean
  readonly expired: boolean
}

/** Reason why this token may not approve the change; undefined if it may. */
export function approvalProblem(change: Approvable, approver: Approver): string | undefined {
  const { id, role, recordedAt, creators, revoked, expired } = approver
  if (revoked) return `the token ${id} was revoked`
  if (expired) return `the token ${id} has expired`
  if (role === undefined || !roleAllows(role, 'approver'))
    return `approving requires the role approver; the token ${id} has the role ${role ?? 'none'}`
  if (id === change.author) return 'the author of a change cannot approve it: use the token of another person'
  if (creators.includes(change.author)) return `the token ${id} was created by the author of the change`
  if (recordedAt !== undefined && recordedAt >= change.createdAt) return `the token ${id} is newer than the change`
  return undefined
}

/** Whether an approval that was given still counts: a token that was revoked or lost its role no longer approves. */
export function stillCounts(change: Approvable, approver: Approver): boolean {
  return approvalProblem(change, { ...approver, expired: false }) === undefined
}
