// Rules in the database. A change is one transaction over the rules, a new version of the set, the audit entry and the
// notification of all nodes. Changes are serialized across nodes.

import { featuresOf, inSlices, mapped, type Rule, type Sliced } from 'sluice'
import { appendAudit } from '../audit/audit.ts'
import { requireUnderstood } from '../compatibility/requirements.ts'
import type { Database, Queries } from '../db/database.ts'
import { changesBetween, type PlainRule, type RuleChange, summarized } from './changes.ts'
import { compactRule } from './compact-rule.ts'

export const RULES_CHANNEL = 'sluice_rules'

/** Number of versions whose rules are kept; older ones keep only author, time and reason. */
const FULL_VERSIONS_MAX = 1000
/** Rows per query, which bounds how long one query blocks the event loop. */
const PAGE_ROWS = 250

export type StoredSet = {
  readonly version: number
  readonly rules: readonly (PlainRule | Rule)[]
  readonly ageMs: number
}

export type Author = { readonly actor: string; readonly reason: string | undefined }

/** A change of one rule or of the whole set. */
export type Edit = {
  /** Action in the audit log: `rule.update`. */
  readonly action: string
  /** The only rule that it may change. Undefined for the whole set. */
  readonly ruleId?: string
  /** The only rules that it may change, if several. */
  readonly ruleIds?: readonly string[]
  /** Returns the new rules, or throws to cancel the change. */
  readonly next: (present: readonly PlainRule[], version: number) => Promise<readonly Rule[]>
  /** Undoes an edit that harms clients: older nodes, which may ignore the rules from before it, do not prevent that. */
  readonly isUndo?: boolean
}

export type EditOptions = { readonly author: Author; readonly dryRun?: boolean; readonly hooks?: EditHooks | undefined }

/** Runs in the transaction of an edit, which holds the lock of the rules. Throws to cancel the edit. */
export type EditHooks = {
  /** Before the edit, unless it is a dry run. */
  before(queries: Queries): Promise<void>
  /** After it, if it changed anything. */
  after(queries: Queries, applied: Applied): Promise<void>
}

/** Changed rules before and after an edit; null: does not exist. */
export type ChangedRule = {
  readonly ruleId: string
  readonly before: PlainRule | null
  readonly after: PlainRule | null
}

export type Applied = { readonly version: number; readonly author: Author; readonly rules: readonly ChangedRule[] }

export type Edited = { readonly version: number; readonly changes: readonly RuleChange[] }

export type VersionNote = {
  readonly version: number
  readonly rule_count: number
  readonly actor: string
  /** Name of the token that made the change; null if the database does not have the token. */
  readonly actor_name: string | null
  readonly reason: string | null
  readonly created_at: Date
}

type Found = { readonly rule: PlainRule }
/** `at`: database time, in whole milliseconds. */
export type ActiveVersion = { readonly version: number; readonly at: Date }

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
   * Reads a consistent set. With a known version, queries only the rules that changed since and takes the others from
   * `present`.
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

  /** Applies an edit. An edit without changes writes nothing. */
  edit(edit: Edit, options: EditOptions): Promise<Edited> {
    return this.#database.transaction((queries) => editRules(queries, edit, options))
  }

  /** Versions below `before`, newest first. */
  versions(limit: number, before: number): Promise<VersionNote[]> {
    return this.#database.query<VersionNote>(
      `SELECT version, rule_count, actor, name AS actor_name, reason, rule_versions.created_at
       FROM rule_versions LEFT JOIN api_tokens ON id = actor
       WHERE version < $1 ORDER BY version DESC LIMIT $2`,
      [before, limit],
    )
  }

  /** Rules of a version; undefined if it does not exist or its rules are no longer kept. */
  async set(version: number): Promise<readonly PlainRule[] | undefined> {
    const sql = 'SELECT rules FROM rule_versions WHERE version = $1'
    const [row] = await this.#database.query<{ rules: readonly PlainRule[] | null }>(sql, [version])
    return row?.rules ?? undefined
  }
}

/** Applies an edit in the transaction of the caller. */
export async function editRules(queries: Queries, edit: Edit, options: EditOptions): Promise<Edited> {
  const { author, dryRun = false, hooks } = options
  const { version, at } = await lockRules(queries)
  if (!dryRun) await hooks?.before(queries)
  const ruleIds = edit.ruleId === undefined ? edit.ruleIds : [edit.ruleId]
  const present = await rulesIn(queries, ruleIds)
  const next = await inSlices(mapped(await edit.next(present, version), asStored(present, version + 1, at)))
  const changes = await changesBetween(present, next)
  if (changes.length === 0) return { version, changes }
  const edited = { version: version + 1, changes: summarized(changes) }
  if (dryRun) return edited
  const changed = new Set(changes.map(({ rule_id }) => rule_id))
  const rules = await inSlices(changedRulesOf(changed, present, next))
  if (!edit.isUndo) await requireUnderstood(queries, await inSlices(addedFeatures(rules)))
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
  await hooks?.after(queries, { version: version + 1, author, rules })
  return edited
}

/** Writes rules again under a new version, with the same content: buckets that another version changed accept them. */
export async function touchRules(queries: Queries, ruleIds: readonly string[], author: Author): Promise<number> {
  const { version, at } = await lockRules(queries)
  const present = await rulesIn(queries, ruleIds)
  if (present.length === 0) return version
  const touched = present.map((rule) => ({ ...rule, version: version + 1 }))
  await writeRules(queries, version + 1, touched)
  await writeVersion(queries, version + 1, author, at)
  await queries.query(`SELECT pg_notify('${RULES_CHANNEL}', '')`)
  return version + 1
}

function* changedRulesOf(
  changed: ReadonlySet<string>,
  present: readonly PlainRule[],
  next: readonly PlainRule[],
): Sliced<ChangedRule[]> {
  const before = new Map(present.map((rule) => [rule.rule_id, rule]))
  const after = new Map(next.map((rule) => [rule.rule_id, rule]))
  return yield* mapped([...changed], (ruleId) => {
    return { ruleId, before: before.get(ruleId) ?? null, after: after.get(ruleId) ?? null }
  })
}

/** Features that nodes need since the edit. A rule that used a feature before may keep it. */
function* addedFeatures(rules: readonly ChangedRule[]): Sliced<Set<string>> {
  const added = new Set<string>()
  const perRule = yield* mapped(rules, ({ before, after }) => {
    const known = new Set(before === null ? [] : featuresOf(before))
    return after === null ? [] : featuresOf(after).filter((feature) => !known.has(feature))
  })
  for (const feature of perRule.flat()) added.add(feature)
  return added
}

/** Locks the rules until the transaction ends: changes of rules and of proposals are serialized. */
export async function lockRules(queries: Queries): Promise<ActiveVersion> {
  const [row] = await queries.query<ActiveVersion>(
    "SELECT version, date_trunc('milliseconds', clock_timestamp()) AS at FROM rules_in_force FOR UPDATE",
    [],
  )
  if (row === undefined) throw new Error('the table rules_in_force is empty: it was modified by hand')
  return row
}

/** Undefined if a full read is needed: too many changes, deleted rules, or a restored database. */
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

/** All rules, or these. */
export async function rulesIn(queries: Queries, ruleIds?: readonly string[]): Promise<PlainRule[]> {
  if (ruleIds !== undefined) {
    const sql = 'SELECT rule FROM rules WHERE rule_id = ANY($1::text[]) ORDER BY rule_id'
    return (await queries.query<Found>(sql, [ruleIds])).map(({ rule }) => rule)
  }
  const rules: PlainRule[] = []
  for (;;) {
    const sql = `SELECT rule FROM rules WHERE rule_id > $1 ORDER BY rule_id LIMIT ${PAGE_ROWS}`
    const page = await queries.query<Found>(sql, [rules.at(-1)?.rule_id ?? ''])
    for (const { rule } of page) rules.push(rule)
    if (page.length < PAGE_ROWS) return rules
  }
}

/** Adds the metadata of the store: creation and update time, and the version of the set that changed it. */
function asStored(present: readonly PlainRule[], version: number, at: Date): (rule: Rule) => PlainRule {
  const createdAt = new Map(present.map(({ rule_id, created_at }) => [rule_id, created_at]))
  const now = at.toISOString()
  return (rule) => {
    const created = createdAt.get(rule.rule_id) ?? now
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
  const deleted = changes.filter(({ change }) => change === 'deleted').map(({ rule_id }) => rule_id)
  if (deleted.length > 0) await queries.query('DELETE FROM rules WHERE rule_id = ANY($1::text[])', [deleted])
}

async function writeVersion(queries: Queries, version: number, author: Author, at: Date): Promise<void> {
  await queries.query(
    `INSERT INTO rule_versions (version, rules, rule_count, actor, reason, created_at)
     SELECT $1, coalesce(jsonb_agg(rule ORDER BY rule_id), '[]'), count(*), $2, $3, $4 FROM rules`,
    [version, author.actor, author.reason ?? null, at],
  )
  await queries.query('UPDATE rule_versions SET rules = NULL WHERE version = $1', [version - FULL_VERSIONS_MAX])
  await queries.query('UPDATE rules_in_force SET version = $1', [version])
}
