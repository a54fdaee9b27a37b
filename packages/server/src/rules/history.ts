// History of the rules, as rollbacks see it: which version is the predecessor, and which rules were withdrawn. A
// rollback moves back in the history instead of adding to it, so repeated rollbacks never return to what they left.

import { isDeepStrictEqual } from 'node:util'
import type { Queries } from '../db/database.ts'
import type { ChangedRule, PlainRule } from './changes.ts'
import type { WritePathName } from './write-paths.ts'

/** `rollbackTo`: the version whose rules are written again. `undoes`: base of the edit that is taken back. */
export type Retreat = { readonly rollbackTo: number } | { readonly undoes: number }

const PAGE_ROWS = 250

export type Rollback = { readonly path: WritePathName; readonly about: string }

/** The write path of a rollback, and its reason for an error. */
export async function rollbackPath(
  queries: Queries,
  { active, target }: { readonly active: number; readonly target: number },
  changed: readonly ChangedRule[],
): Promise<Rollback> {
  const [found] = await queries.query<{ predecessor: number; same: boolean | null }>(
    `SELECT present.predecessor, target.content = (
       SELECT content FROM rule_versions WHERE version = present.predecessor) AS same
     FROM rule_versions target,
       (SELECT coalesce(position, version) - 1 AS predecessor FROM rule_versions WHERE version = $1) present
     WHERE target.version = $2`,
    [active, target],
  )
  for (const rows of pagesOf(changed)) {
    const withdrawn = await queries.query<{ rule_id: string }>(
      `SELECT DISTINCT rule_id FROM withdrawn_rules JOIN jsonb_to_recordset($1::jsonb) item (rule_id text, after jsonb)
         USING (rule_id) WHERE content = coalesce(rule_content(after), '') ORDER BY rule_id LIMIT 10`,
      [rows],
    )
    if (withdrawn.length === 0) continue
    const names = withdrawn.map(({ rule_id }) => rule_id).join(', ')
    return { path: 'rules.reactivate', about: `Version ${target} brings back what was rolled back (${names}). ` }
  }
  if (found !== undefined && (found.predecessor === target || found.same === true)) {
    return { path: 'rules.undo', about: '' }
  }
  const predecessor = found?.predecessor ?? 0
  const which = predecessor > 0 ? `, version ${predecessor}` : ', which it does not have'
  return { path: 'rules.restore', about: `Version ${target} is not the predecessor of version ${active}${which}. ` }
}

/** Records a version that was just written: its content, its place in the history, and the rules that it withdraws. */
export async function recordVersion(
  queries: Queries,
  version: number,
  changed: readonly ChangedRule[],
  retreat: Retreat | undefined,
): Promise<void> {
  const sql = `UPDATE rule_versions SET content = (
    SELECT md5(coalesce(string_agg(rule_id || rule_content(rule), ',' ORDER BY rule_id), '')) FROM rules)
    WHERE version = $1`
  await queries.query(sql, [version])
  for (const rows of pagesOf(changed)) {
    await queries.query(
      `DELETE FROM withdrawn_rules USING jsonb_to_recordset($1::jsonb) item (rule_id text, after jsonb)
       WHERE withdrawn_rules.rule_id = item.rule_id AND content = coalesce(rule_content(after), '')`,
      [rows],
    )
    if (retreat === undefined) continue
    await queries.query(
      `INSERT INTO withdrawn_rules SELECT rule_id, coalesce(rule_content(before), '')
       FROM jsonb_to_recordset($1::jsonb) item (rule_id text, before jsonb) ON CONFLICT DO NOTHING`,
      [rows],
    )
  }
  if (retreat === undefined) return
  const place = 'rollbackTo' in retreat ? PLACE_OF_TARGET : PLACE_BEFORE_EDIT
  const from = 'rollbackTo' in retreat ? retreat.rollbackTo : retreat.undoes
  await queries.query(`UPDATE rule_versions SET position = ${place} WHERE version = $1`, [version, from])
}

const PLACE_OF_TARGET = '(SELECT coalesce(target.position, $2) FROM rule_versions target WHERE target.version = $2)'

/** If later edits stay, the rules are new: then they stand where the edit stood that is taken back. */
const PLACE_BEFORE_EDIT = `coalesce((
  SELECT coalesce(earlier.position, earlier.version) FROM rule_versions earlier
  WHERE earlier.version < $1 AND earlier.content = rule_versions.content
  ORDER BY earlier.version DESC LIMIT 1), $2 + 1)`

/** Pages bound how long one query blocks the event loop. Each rule has its changed values beside it. */
function* pagesOf(changed: readonly ChangedRule[]): Generator<string> {
  for (let start = 0; start < changed.length; start += PAGE_ROWS) {
    const page = changed.slice(start, start + PAGE_ROWS)
    const rows = page.flatMap((rule) => [rule, ...changedValues(rule)])
    yield JSON.stringify(rows.map(({ ruleId, before, after }) => ({ rule_id: ruleId, before, after })))
  }
}

/** Decisions do not depend on these. */
const NOTES: readonly string[] = ['rule_id', 'name', 'description', 'version', 'created_at', 'updated_at']
/** One rate: a limit that was withdrawn may return with another window. */
const RATE: readonly string[] = ['limit', 'limits', 'window_seconds']

type Fields = Readonly<Record<string, unknown>>
type ChangedValue = { readonly ruleId: string; readonly before?: Fields | null; readonly after: Fields | null }

/**
 * The rule without its notes, and each value that the edit changed: what was withdrawn stays withdrawn when a later
 * edit changes another field. A created rule brings back each of its values.
 */
function changedValues({ ruleId, before, after }: ChangedRule): ChangedValue[] {
  const [old, fresh] = [before && withoutNotes(before), after && withoutNotes(after)]
  if (isDeepStrictEqual(old, fresh)) return []
  const whole = { ruleId, before: old, after: fresh }
  if (fresh === null) return [whole]
  const others = Object.keys({ ...old, ...fresh }).filter((name) => !RATE.includes(name))
  const values = [RATE, ...others.map((name) => [name])].flatMap((names): ChangedValue[] => {
    const value = partOf(fresh, names)
    if (old === null) return [{ ruleId, after: value }]
    const oldValue = partOf(old, names)
    return isDeepStrictEqual(oldValue, value) ? [] : [{ ruleId, before: oldValue, after: value }]
  })
  return [whole, ...values]
}

function withoutNotes(rule: PlainRule): Fields {
  return Object.fromEntries(Object.entries(rule).filter(([name]) => !NOTES.includes(name)))
}

function partOf(fields: Fields, names: readonly string[]): Fields {
  return Object.fromEntries(names.map((name) => [name, fields[name] ?? null]))
}
