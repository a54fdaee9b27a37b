// The rules in the database. A change is one transaction: the rules, a new version of the whole set, its entry in the
// audit and the word to all nodes, or nothing of it. Changes come one after the other, on all nodes together.

import { inSlices, mapped, type Rule } from 'sluice'
import { appendAudit } from '../audit/audit.ts'
import type { Database, Queries } from '../db/database.ts'
import { changesBetween, type PlainRule, type RuleChange, told } from './changes.ts'
import { compactRule } from './compact-rule.ts'

export const RULES_CHANNEL = 'sluice_rules'

/** Sets that are kept as a whole; of older versions only who, when and why. */
const SETS_MAX = 1000
/** Rows that are read or written together: their number bounds how long they hold up this process. */
const PAGE_ROWS = 250

export type StoredSet = {
  readonly version: number
  readonly rules: readonly (PlainRule | Rule)[]
  readonly ageMs: number
}

export type Author = { readonly actor: string; readonly reason: string | undefined }

/** What is to become of the rules that it looks at: all of them, or one. */
export type Edit = {
  /** For the audit: `rule.update`. */
  readonly action: string
  /** Undefined: the whole set. */
  readonly ruleId?: string
  /** The rules as they shall be. Throws to refuse, and then nothing happens. */
  readonly next: (present: readonly PlainRule[], version: number) => Promise<readonly Rule[]>
}

export type EditOptions = { readonly author: Author; readonly dryRun?: boolean }

export type Edited = { readonly version: number; readonly changes: readonly RuleChange[] }

export type VersionNote = {
  readonly version: number
  readonly rule_count: number
  readonly actor: string
  /** Name of the token that made it; null when that was no token of the database. */
  readonly actor_name: string | null
  readonly reason: string | null
  readonly created_at: Date
}

type Found = { readonly rule: PlainRule }
type InForce = { readonly version: number; readonly at: Date }

export class RuleStore {
  readonly #database: Database

  constructor(database: Database) {
    this.#database = database
  }

  async version(): Promise<number> {
    const [row] = await this.#database.query<{ version: number }>('SELECT version FROM rules_in_force', [])
    return row?.version ?? 0
  }

  /**
   * The set in force, all of one moment. Of a set that is known already, only what has changed since is asked for: the
   * other rules are those that were handed in.
   */
  read(known?: number, present?: readonly Rule[]): Promise<StoredSet> {
    return this.#database.transaction(async (queries) => {
      await queries.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY')
      const [row] = await queries.query<{ version: number; age: number | null }>(
        `SELECT version, 1000 * extract(epoch FROM clock_timestamp() - created_at)::float8 AS age
         FROM rules_in_force LEFT JOIN rule_versions USING (version)`,
        [],
      )
      const { version = 0, age } = row ?? {}
      const isLater = known !== undefined && known < version
      const rules = (isLater && present && (await changedRules(queries, known, present))) || (await rulesIn(queries))
      return { version, rules, ageMs: age ?? 0 }
    })
  }

  /** Makes an edit of the present rules. One that changes nothing leaves no trace. */
  edit(edit: Edit, { author, dryRun = false }: EditOptions): Promise<Edited> {
    return this.#database.transaction(async (queries) => {
      const { version, at } = await lockedVersion(queries)
      const present = await rulesIn(queries, edit.ruleId)
      const next = await inSlices(mapped(await edit.next(present, version), asStored(present, version + 1, at)))
      const changes = await changesBetween(present, next)
      if (changes.length === 0) return { version, changes }
      const edited = { version: version + 1, changes: told(changes) }
      if (dryRun) return edited
      const changed = new Set(changes.map(({ rule_id }) => rule_id))
      await writeRules(
        queries,
        version + 1,
        next.filter(({ rule_id }) => changed.has(rule_id)),
      )
      await deleteRules(queries, changes)
      await writeVersion(queries, version + 1, author, at)
      const entry = { ...author, action: edit.action, target: edit.ruleId ?? 'rules', diff: edited }
      await appendAudit(queries, entry, at)
      await queries.query(`SELECT pg_notify('${RULES_CHANNEL}', '')`)
      return edited
    })
  }

  /** The newest first, of those before `before`. */
  versions(limit: number, before: number): Promise<VersionNote[]> {
    return this.#database.query<VersionNote>(
      `SELECT version, rule_count, actor, name AS actor_name, reason, rule_versions.created_at
       FROM rule_versions LEFT JOIN api_tokens ON id = actor
       WHERE version < $1 ORDER BY version DESC LIMIT $2`,
      [before, limit],
    )
  }

  /** The set of a version; undefined when there is none, or when it is no longer kept. */
  async set(version: number): Promise<readonly PlainRule[] | undefined> {
    const sql = 'SELECT rules FROM rule_versions WHERE version = $1'
    const [row] = await this.#database.query<{ rules: readonly PlainRule[] | null }>(sql, [version])
    return row?.rules ?? undefined
  }
}

async function lockedVersion(queries: Queries): Promise<InForce> {
  const [row] = await queries.query<InForce>(
    "SELECT version, date_trunc('milliseconds', clock_timestamp()) AS at FROM rules_in_force FOR UPDATE",
    [],
  )
  if (row === undefined) throw new Error('the table rules_in_force is empty: somebody emptied it by hand')
  return row
}

/** Undefined when it is not that simple: rules were deleted, or the database is not the one that it was. */
async function changedRules(
  queries: Queries,
  known: number,
  present: readonly Rule[],
): Promise<(PlainRule | Rule)[] | undefined> {
  const [row] = await queries.query<{ count: number; changed: number }>(
    'SELECT count(*) AS count, count(*) FILTER (WHERE revision > $1) AS changed FROM rules',
    [known],
  )
  if (row === undefined || row.changed > PAGE_ROWS) return undefined
  const sql = 'SELECT rule FROM rules WHERE revision > $1 ORDER BY rule_id'
  const changed = new Map((await queries.query<Found>(sql, [known])).map(({ rule }) => [rule.rule_id, rule]))
  const rules = present.map((rule) => changed.get(rule.rule_id) ?? rule)
  for (const { rule_id } of present) changed.delete(rule_id)
  if (rules.length + changed.size !== row.count) return undefined
  return changed.size === 0 ? rules : [...rules, ...changed.values()].sort(byId)
}

function byId(one: PlainRule | Rule, other: PlainRule | Rule): number {
  return one.rule_id < other.rule_id ? -1 : 1
}

async function rulesIn(queries: Queries, ruleId?: string): Promise<PlainRule[]> {
  if (ruleId !== undefined) {
    const rows = await queries.query<Found>('SELECT rule FROM rules WHERE rule_id = $1', [ruleId])
    return rows.map(({ rule }) => rule)
  }
  const rules: PlainRule[] = []
  for (;;) {
    const sql = `SELECT rule FROM rules WHERE rule_id > $1 ORDER BY rule_id LIMIT ${PAGE_ROWS}`
    const page = await queries.query<Found>(sql, [rules.at(-1)?.rule_id ?? ''])
    for (const { rule } of page) rules.push(rule)
    if (page.length < PAGE_ROWS) return rules
  }
}

/** With the notes that the store keeps about it: when it was made and last changed, and by which version of the set. */
function asStored(present: readonly PlainRule[], version: number, at: Date): (rule: Rule) => PlainRule {
  const madeAt = new Map(present.map(({ rule_id, created_at }) => [rule_id, created_at]))
  const now = at.toISOString()
  return (rule) => {
    const created = madeAt.get(rule.rule_id) ?? now
    return { ...compactRule(rule), version, created_at: created, updated_at: now }
  }
}

async function writeRules(queries: Queries, version: number, rules: readonly PlainRule[]): Promise<void> {
  for (let start = 0; start < rules.length; start += PAGE_ROWS) {
    await queries.query(
      `INSERT INTO rules (rule_id, revision, rule) SELECT item->>'rule_id', $1, item FROM jsonb_array_elements($2) item
       ON CONFLICT (rule_id) DO UPDATE SET revision = excluded.revision, rule = excluded.rule`,
      [version, JSON.stringify(rules.slice(start, start + PAGE_ROWS))],
    )
  }
}

async function deleteRules(queries: Queries, changes: readonly RuleChange[]): Promise<void> {
  const gone = changes.filter(({ change }) => change === 'deleted').map(({ rule_id }) => rule_id)
  if (gone.length > 0) await queries.query('DELETE FROM rules WHERE rule_id = ANY($1::text[])', [gone])
}

async function writeVersion(queries: Queries, version: number, author: Author, at: Date): Promise<void> {
  await queries.query(
    `INSERT INTO rule_versions (version, rules, rule_count, actor, reason, created_at)
     SELECT $1, coalesce(jsonb_agg(rule ORDER BY rule_id), '[]'), count(*), $2, $3, $4 FROM rules`,
    [version, author.actor, author.reason ?? null, at],
  )
  await queries.query('UPDATE rule_versions SET rules = NULL WHERE version = $1', [version - SETS_MAX])
  await queries.query('UPDATE rules_in_force SET version = $1', [version])
}
