// Reads the audit log page by page, newest first, filtered. A page is bounded in rows and bytes.

import type { Queries } from '../db/database.ts'

/** An action, or a group of actions: `rule.update`, `rule.*`. */
export const ACTION_FILTER: RegExp = /^(?=.{1,64}$)[a-z_]+(\.[a-z_]+)*(\.\*)?$/
export const ACTION_FIX = 'give an action such as rule.update, or a group of actions such as rule.*'

export type AuditQuery = {
  readonly actor?: string | undefined
  /** Accepted by ACTION_FILTER. */
  readonly action?: string | undefined
  /** The id of a rule also finds its resets, its kill switch, and changes of several rules. */
  readonly target?: string | undefined
  readonly since?: Date | undefined
  /** Exclusive, so that consecutive ranges share no entry. */
  readonly until?: Date | undefined
  /** Only entries before this one: the last of the previous page. */
  readonly beforeSeq?: number | undefined
  readonly limit: number
}

export type ListedEntry = {
  readonly seq: number
  readonly at: string
  readonly actor: string
  /** Name of the token with the id `actor`. */
  readonly actor_name: string | null
  readonly action: string
  readonly target: string
  readonly diff: unknown
  readonly reason: string | null
  readonly hash: string
}

/** `next` is the seq to continue before; null on the last page. */
export type AuditPage = { readonly entries: readonly ListedEntry[]; readonly next: string | null }

export type ListAudit = (query: AuditQuery) => Promise<AuditPage>

type Row = Omit<ListedEntry, 'at' | 'diff'> & { readonly at: Date; readonly diff: string; readonly matched: number }

/** Diffs of a page; the entry that exceeds it is the last. One diff may hold hundreds of rules. */
const PAGE_BYTES_MAX = 1024 * 1024

/** Ordered by seq: it is unique, and clocks of nodes may differ. */
export async function listAudit(queries: Queries, query: AuditQuery): Promise<AuditPage> {
  const { where, parameters } = conditionsOf(query)
  const rows = await queries.query<Row>(
    `SELECT seq, at, actor, name AS actor_name, action, target, diff, reason, page.hash, matched
     FROM (
       SELECT newest.*, count(*) OVER () AS matched,
         sum(octet_length(diff)) OVER (ORDER BY seq DESC) - octet_length(diff) AS bytes_before
       FROM (SELECT * FROM audit ${where} ORDER BY seq DESC LIMIT $${parameters.length + 1}) newest
     ) page LEFT JOIN api_tokens ON id = actor
     WHERE bytes_before < ${PAGE_BYTES_MAX} ORDER BY seq DESC`,
    [...parameters, query.limit + 1],
  )
  const page = rows.slice(0, query.limit)
  const last = page.at(-1)
  const hasMore = last !== undefined && last.matched > page.length
  return { entries: page.map(entryOf), next: hasMore ? String(last.seq) : null }
}

function entryOf({ matched, at, diff, ...row }: Row): ListedEntry {
  const { seq, actor, actor_name, action, target, reason, hash } = row
  return { seq, at: at.toISOString(), actor, actor_name, action, target, diff: parsed(diff), reason, hash }
}

/** A diff that was edited by hand may not be JSON: it is listed as text, and `audit verify` reports it. */
function parsed(diff: string): unknown {
  try {
    return JSON.parse(diff)
  } catch {
    return diff
  }
}

type Conditions = { readonly where: string; readonly parameters: readonly unknown[] }

function conditionsOf({ actor, action, target, since, until, beforeSeq }: AuditQuery): Conditions {
  const conditions: string[] = []
  const parameters: unknown[] = []
  const add = (condition: (placeholder: string) => string, value: unknown) => {
    if (value === undefined) return
    parameters.push(value)
    conditions.push(condition(`$${parameters.length}`))
  }
  add((value) => `actor = ${value}`, actor)
  add(targetCondition, target)
  if (action?.endsWith('.*')) {
    // "/" follows "." in the C collation, so the range is every action that starts with the group and a dot.
    add((value) => `action COLLATE "C" >= ${value}`, action.slice(0, -1))
    add((value) => `action COLLATE "C" < ${value}`, `${action.slice(0, -2)}/`)
  } else add((value) => `action COLLATE "C" = ${value}`, action)
  add((value) => `at >= ${value}::timestamptz`, since)
  add((value) => `at < ${value}::timestamptz`, until)
  add((value) => `seq < ${value}::bigint`, beforeSeq)
  return { where: conditions.length === 0 ? '' : `WHERE ${conditions.join(' AND ')}`, parameters }
}

/** Imports, rollbacks and rollouts have the target `rules`, and the ids of the changed rules in their diff. */
function targetCondition(value: string): string {
  const isChanged = `strpos(diff, '"rule_id":' || to_json(${value}::text)::text) > 0`
  const isOwn = `target <> 'rules' OR ${value} = 'rules' OR ${isChanged}`
  return `target IN (${value}, 'rule ' || ${value}::text, 'rules') AND (${isOwn})`
}
