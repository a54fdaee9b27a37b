// Edits of one rule since the oldest one that is still under guard, and the rule without any of them: all other edits
// applied in their order, field by field, later ones last. Pure. Never invents a rate: a limit and its window that were
// changed together are restored together, or not at all.

import { LimiterError } from 'sluice'
import type { PlainRule } from '../rules/changes.ts'
import { differing, fieldName, fieldsFrom, fieldValues, type RuleFields, setField } from './rebase.ts'
import { parsedRule } from './tightens.ts'

/** null: the rule did not exist, or does not any more. Otherwise the rule, or its top-level fields that differ. */
export type RuleEdit = {
  /** Version of the rule set that the edit became. */
  readonly version: number
  readonly before: RuleFields | null
  readonly after: RuleFields | null
}

/** Oldest first. */
export type History = { readonly base: PlainRule | null; readonly edits: readonly RuleEdit[] }

/** Fields of a rule that a rollback restored, and those it left. The field `rule` stands for its existence. */
export type Undone = {
  readonly reverted: readonly string[]
  readonly kept: readonly { readonly field: string; readonly why: string }[]
}

type Values = Map<string, unknown>

const WHOLE = 'rule'

/** The rule after the edits, up to a version; null: it does not exist. Undefined: its fields contradict each other. */
export function ruleAfter(
  { base, edits }: History,
  ruleId: string,
  version: number = Number.POSITIVE_INFINITY,
): PlainRule | null | undefined {
  let values: Values | null = base === null ? null : fieldValues(base)
  for (const edit of edits) if (edit.version <= version) values = applied(values, edit)
  if (values === null) return null
  const fields = fieldsFrom(values)
  return fields && asRule(fields, ruleId)
}

function applied(values: Values | null, { before, after }: RuleEdit): Values | null {
  if (after === null || before === null) return after === null ? null : fieldValues(after)
  if (values === null) return null
  const [next, changed] = [new Map(values), fieldValues(after)]
  for (const path of differing(before, after)) setField(next, path, changed.get(path))
  return next
}

/** Keeps the top-level fields that differ: an edit is stored with each later one. */
export function editOf(version: number, before: PlainRule | null, after: PlainRule | null): RuleEdit {
  if (before === null || after === null) return { version, before, after }
  const names = new Set(differing(before, after).map((path) => String(JSON.parse(path)[0])))
  const pick = (rule: PlainRule) => Object.fromEntries(Object.entries(rule).filter(([name]) => names.has(name)))
  return { version, before: pick(before), after: pick(after) }
}

/**
 * Removes an edit: `history` has what is left of it. A field that a later edit changed again stays, and so does a rule
 * that a later edit touched after it was created.
 */
export function withoutEdit(history: History, ruleId: string, version: number): { history: History } & Undone {
  const index = history.edits.findIndex((one) => one.version === version)
  const found = history.edits[index]
  if (found === undefined) return { history, reverted: [], kept: [] }
  const base = ruleAfter(history, ruleId, version - 1) ?? null
  // A rule that was created again after a deletion that was undone since: the edit changed the rule.
  const edit =
    found.before === null && found.after !== null ? editOf(version, base, asRule(found.after, ruleId)) : found
  const later = history.edits.slice(index + 1)
  const replacedBy = (edits: readonly RuleEdit[]): History => {
    return { ...history, edits: [...history.edits.slice(0, index), ...edits, ...later] }
  }
  const without = replacedBy([])
  const keeps = (why: string, left = history) => {
    return { history: left, reverted: [], kept: pathsOf(edit).map((field) => ({ field: fieldName(field), why })) }
  }
  const [first] = later
  const deleted = later.findLast(({ after }) => after === null)
  if (edit.before === null) {
    if (first === undefined) return { history: without, reverted: [WHOLE], kept: [] }
    const why = deleted === undefined ? `the rule was changed again by version ${first.version}` : isDeleted(deleted)
    return { history, reverted: [], kept: [{ field: WHOLE, why }] }
  }
  const created = later.findLast(({ before }) => before === null)
  if (edit.after === null) {
    if (created === undefined) return { history: without, reverted: [WHOLE], kept: [] }
    const why = `the rule was created again by version ${created.version}`
    return { history: without, reverted: [], kept: [{ field: WHOLE, why }] }
  }
  if (deleted !== undefined && created === undefined) return keeps(isDeleted(deleted), without)
  const fields = fieldsUndone(edit, later)
  const stays = fields.kept.filter(({ isStill }) => isStill).map(({ path }) => path)
  const left = stays.length === 0 ? without : replacedBy([only(edit, stays)])
  const why = invalidity(left, ruleId)
  if (why !== undefined) return keeps(`without it the rule would be invalid: ${why}`)
  return {
    history: left,
    reverted: fields.reverted.map(fieldName),
    kept: fields.kept.map((one) => ({ field: fieldName(one.path), why: one.why })),
  }
}

function asRule(fields: RuleFields, ruleId: string): PlainRule {
  return { ...fields, rule_id: ruleId }
}

function isDeleted({ version }: RuleEdit): string {
  return `the rule was deleted by version ${version}`
}

type KeptPath = {
  readonly path: string
  readonly why: string
  /** Whether no later edit changed it: it stays because of another field. */
  readonly isStill: boolean
}

function fieldsUndone(edit: RuleEdit, later: readonly RuleEdit[]): { reverted: string[]; kept: KeptPath[] } {
  const paths = pathsOf(edit)
  const again = new Map(paths.map((path) => [path, later.findLast((one) => writes(one, path))?.version]))
  const kept = paths.flatMap((path): KeptPath[] => {
    const version = again.get(path)
    if (version !== undefined) return [{ path, why: `changed again by version ${version}`, isStill: false }]
    const partner = partnerOf(path)
    const other = partner === undefined ? undefined : again.get(partner)
    if (partner === undefined || other === undefined) return []
    const why = `belongs to ${fieldName(partner)}, which was changed again by version ${other}`
    return [{ path, why, isStill: true }]
  })
  const keptPaths = new Set(kept.map(({ path }) => path))
  return { reverted: paths.filter((path) => !keptPaths.has(path)), kept }
}

/** A limit and its window are one rate: restoring one of them would make a rate that no one wrote. */
const RATE: Readonly<Record<string, string>> = { limit: 'window_seconds', window_seconds: 'limit' }

function partnerOf(path: string): string | undefined {
  const steps = JSON.parse(path) as unknown[]
  const partner = RATE[String(steps.at(-1))]
  return partner === undefined ? undefined : JSON.stringify([...steps.slice(0, -1), partner])
}

function pathsOf({ before, after }: RuleEdit): string[] {
  return before === null || after === null ? [JSON.stringify([WHOLE])] : differing(before, after)
}

function writes(edit: RuleEdit, path: string): boolean {
  return edit.before === null || edit.after === null || differing(edit.before, edit.after).includes(path)
}

/** The edit with these of its fields. */
function only({ version, before, after }: RuleEdit, paths: readonly string[]): RuleEdit {
  const [was, is] = [fieldValues(before), fieldValues(after)]
  const values = new Map(was)
  for (const path of paths) setField(values, path, is.get(path))
  return { version, before, after: fieldsFrom(values) ?? before }
}

function invalidity(history: History, ruleId: string): string | undefined {
  const rule = ruleAfter(history, ruleId)
  if (rule === undefined) return 'its fields contradict each other'
  try {
    parsedRule(rule)
    return undefined
  } catch (error) {
    if (error instanceof LimiterError)
      return error.fieldErrors.map(({ field, fix }) => `${field.replace(/^rules\[0\]\./, '')}: ${fix}`).join(', ')
    throw error
  }
}

/**
 * The rule that requests are compared with while an edit is under guard: the rule in force, with each field of the edit
 * as it was before all edits in `open`. An edit is therefore never judged for fields of another one, and cannot hide
 * behind a later edit of the same field. Falls back to the version before the edit if the fields contradict each other.
 */
export function comparedRule(
  history: History,
  ruleId: string,
  version: number,
  open: ReadonlySet<number>,
): PlainRule | null {
  const { base, edits } = history
  const index = edits.findIndex((edit) => edit.version === version)
  const edit = edits[index]
  const before = ruleAfter(history, ruleId, version - 1) ?? null
  if (edit === undefined || edit.after === null) return before
  if (edit.before === null) return recreated(history, ruleId, index, open) ?? null
  const paths = new Set(pathsOf(edit))
  const isAccepted = (path: string, from: number) =>
    edits.slice(from + 1, index).some((one) => !open.has(one.version) && writes(one, path))
  const others = edits.map((one, at): RuleEdit => {
    if (!open.has(one.version) || one.before === null || one.after === null) return one
    const left = pathsOf(one).filter((path) => !paths.has(path) || (at < index && isAccepted(path, at)))
    return only(one, left)
  })
  const compared = ruleAfter({ base, edits: others }, ruleId)
  return compared === undefined || isInvalid(compared) ? before : compared
}

/** A rule that was deleted under guard and created again is compared with the deleted one. */
function recreated({ base, edits }: History, ruleId: string, index: number, open: ReadonlySet<number>) {
  const previous = edits[index - 1]
  const isOpen = previous !== undefined && previous.after === null && open.has(previous.version)
  return ruleAfter({ base, edits: edits.slice(0, isOpen ? index - 1 : index) }, ruleId)
}

function isInvalid(rule: PlainRule | null): boolean {
  try {
    parsedRule(rule)
    return false
  } catch {
    return true
  }
}

/** Whether the edit still has an effect that can be judged: a field that no edit outside `open` has changed since. */
export function isLive({ edits }: History, version: number, open: ReadonlySet<number>): boolean {
  const index = edits.findIndex((edit) => edit.version === version)
  const edit = edits[index]
  if (edit === undefined) return false
  const accepted = edits.slice(index + 1).filter((one) => !open.has(one.version))
  if (edit.before === null) return !accepted.some(({ after }) => after === null)
  return pathsOf(edit).some((path) => !accepted.some((one) => writes(one, path)))
}

/** Whether a later edit in `open` has changed a field of the edit: its value returns if that one is undone. */
export function isCovered({ edits }: History, version: number, open: ReadonlySet<number>): boolean {
  const index = edits.findIndex((edit) => edit.version === version)
  const edit = edits[index]
  if (edit === undefined) return false
  const later = edits.slice(index + 1).filter((one) => open.has(one.version))
  return later.some((one) => one.after === null || pathsOf(edit).some((path) => writes(one, path)))
}

/** Forgets the edits before the oldest open one: they can no longer be undone. */
export function trimmed(history: History, ruleId: string, open: ReadonlySet<number>): History {
  const first = history.edits.findIndex(({ version }) => open.has(version))
  const oldest = history.edits[first]
  if (oldest === undefined) return { base: ruleAfter(history, ruleId) ?? null, edits: [] }
  return { base: ruleAfter(history, ruleId, oldest.version - 1) ?? null, edits: history.edits.slice(first) }
}
