// Conditions for approvers of a change: a token of the role approver or above, older than the change, that is not
// related to its author. Tokens are related if they have a common ancestor: its owner may hold the secrets of both.
// Errs towards no: two colleagues whose tokens one admin created cannot approve each other.

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
  /** Database time from which the token was valid; undefined for the admin token of the settings, which has none. */
  readonly recordedAt: Date | undefined
  /** The root of its creation tree. */
  readonly family: string
  readonly revoked: boolean
  readonly expired: boolean
}

/** Reason why this token may not approve the change of an author of `family`; undefined if it may. */
export function approvalProblem(change: Approvable, family: string, approver: Approver): string | undefined {
  const { id, role, recordedAt, revoked, expired } = approver
  if (revoked) return `the token ${id} was revoked`
  if (expired) return `the token ${id} has expired`
  if (role === undefined || !roleAllows(role, 'approver'))
    return `approving requires the role approver; the token ${id} has the role ${role ?? 'none'}`
  if (id === change.author) return 'the author of a change cannot approve it: use the token of another person'
  if (approver.family === family) return relatedText(id, change.author, 'the author', family)
  if (recordedAt !== undefined && recordedAt >= change.createdAt) return `the token ${id} is newer than the change`
  return undefined
}

/** Whether an approval that was given still counts: a token that was revoked or lost its role no longer approves. */
export function stillCounts(change: Approvable, family: string, approver: Approver): boolean {
  return approvalProblem(change, family, { ...approver, expired: false }) === undefined
}

/** Says what two tokens have in common, and how to get one that has not. */
export function relatedText(id: string, other: string, who: string, family: string): string {
  const how = [id, other].includes(family) ? `${family} created the other` : `both come from ${family}`
  return (
    `the token ${id} is related to ${who}, ${other}: ${how}, directly or through other tokens. Use a token that ` +
    'another admin created, or create one on the host: sluice token create <name> --role approver --database <url>'
  )
}

/** The line of creators of a token, itself included: id and creator of each. */
export type Line = readonly { readonly id: string; readonly created_by: string | null }[]

/** Creators that are no tokens: the command line and the first start of the host. */
export const HOST_ACTORS: readonly string[] = ['command', 'sluice']

/** The root of the creation tree of a token: a token that the host created, or the admin token of the settings. */
export function familyOf(id: string, line: Line): string {
  const creators = new Map(line.map((token) => [token.id, token.created_by]))
  let root = id
  for (let creator = creators.get(root); creator != null && !HOST_ACTORS.includes(creator); ) {
    creators.delete(root)
    root = creator
    creator = creators.get(root)
  }
  return root
}
