// Three-way comparison of rules by field. A field is named by its path, so that edits of two plans, or of two limits,
// do not touch each other: `limit`, `limits.1m.burst`, `by_plan.pro.limit`, `when.ip`. A change whose base has moved
// applies cleanly, or each conflict is named by rule and field.

import { isDeepStrictEqual } from 'node:util'
import type { PlainRule } from '../rules/changes.ts'
import type { ProposedChange } from './proposal.ts'

export type Conflict = {
  readonly rule_id: string
  readonly field: string
  readonly proposed: unknown
  readonly current: unknown
}

export type Rebased = { readonly changes: readonly ProposedChange[]; readonly conflicts: readonly Conflict[] }

/** Top-level fields of a rule, or those of them that differ. */
export type RuleFields = Readonly<Record<string, unknown>>

/** Values by path, as JSON: names of fields, and `[name]` for the limit of that name in a list. */
export type FieldValues = ReadonlyMap<string, unknown>

type Step = string | readonly [name: string]
type Container = Record<string, unknown> | unknown[]

/** Added by the rule store. */
const METADATA: readonly string[] = ['version', 'created_at', 'updated_at']

/** `current` holds the rules that exist now, by id. */
export function rebase(changes: readonly ProposedChange[], current: ReadonlyMap<string, PlainRule>): Rebased {
  const conflicts: Conflict[] = []
  const rebased = changes.map((change) => rebaseOne(change, current.get(change.ruleId) ?? null, conflicts))
  return { changes: rebased, conflicts }
}

function rebaseOne(change: ProposedChange, current: PlainRule | null, conflicts: Conflict[]): ProposedChange {
  const { ruleId, base, rule } = change
  const conflict = (path: string, proposed: unknown, now: unknown) => {
    conflicts.push({ rule_id: ruleId, field: fieldName(path), proposed, current: now })
  }
  if (sameRule(base, current)) return { ...change, base: current }
  if (sameRule(rule, current)) return { ...change, base: current } // somebody made the same change
  if (current === null) {
    conflict('["rule_id"]', rule === null ? null : ruleId, null)
    return change
  }
  const [proposed, now] = [fieldValues(rule), fieldValues(current)]
  if (base === null || rule === null) {
    for (const path of differing(base ?? rule, current)) conflict(path, proposed.get(path), now.get(path))
    return change
  }
  const was = fieldValues(base)
  const merged = new Map(now)
  for (const path of differing(base, rule)) {
    const [before, after, present] = [was.get(path), proposed.get(path), now.get(path)]
    if (!isDeepStrictEqual(before, present) && !isDeepStrictEqual(after, present)) conflict(path, after, present)
    setField(merged, path, after)
  }
  const fields = fieldsFrom(merged)
  if (fields === undefined) conflict('["rule_id"]', ruleId, ruleId)
  return { ...change, base: current, rule: { ...(fields ?? rule), rule_id: ruleId } }
}

/** Ignores the metadata of the rule store. */
export function sameRule(one: PlainRule | null, other: PlainRule | null): boolean {
  if (one === null || other === null) return one === other
  return differing(one, other).length === 0
}

/** Paths whose values differ. */
export function differing(one: RuleFields | null, other: RuleFields | null): string[] {
  const [before, after] = [fieldValues(one), fieldValues(other)]
  const paths = new Set([...before.keys(), ...after.keys()])
  return [...paths].filter((path) => !isDeepStrictEqual(before.get(path), after.get(path)))
}

/** undefined removes the field. */
export function setField(values: Map<string, unknown>, path: string, value: unknown): void {
  if (value === undefined) values.delete(path)
  else values.set(path, value)
}

/** `by_plan.pro.limit` */
export function fieldName(path: string): string {
  return (JSON.parse(path) as Step[]).flat().join('.')
}

export function fieldValues(rule: RuleFields | null): Map<string, unknown> {
  const values = new Map<string, unknown>()
  for (const [name, value] of Object.entries(rule ?? {})) if (!METADATA.includes(name)) collect(value, [name], values)
  return values
}

function collect(value: unknown, path: readonly Step[], values: Map<string, unknown>): void {
  const kind = kindOf(value)
  if (isUnit(path) && kind !== undefined) values.set(JSON.stringify(path), kind)
  if (isNamedList(value)) {
    for (const { name, ...fields } of value) collect(fields, [...path, [name]], values)
  } else if (isObject(value) && (isUnit(path) || Object.keys(value).length > 0)) {
    for (const [name, inner] of Object.entries(value)) collect(inner, [...path, name], values)
  } else values.set(JSON.stringify(path), value)
}

/** Plans and named limits exist or not: without this value, the fields below do not count. */
function isUnit(path: readonly Step[]): boolean {
  return Array.isArray(path.at(-1)) || (path.length === 2 && path[0] === 'by_plan')
}

const KINDS = { list: { several: 'limits' }, fields: { one: 'limit' } } as const

function kindOf(value: unknown): object | undefined {
  if (isNamedList(value)) return KINDS.list
  return isObject(value) ? KINDS.fields : undefined
}

/** The rule with these values. Undefined if a field has a value and fields below it: no rule had this shape. */
export function fieldsFrom(values: FieldValues): RuleFields | undefined {
  const root: Record<string, unknown> = {}
  const made = new Set<unknown>([root])
  const entries = [...values].map(([path, value]) => [JSON.parse(path) as Step[], value] as const)
  const isKind = (value: unknown) => value === KINDS.list || value === KINDS.fields
  for (const [path, kind] of entries
    .filter(([, value]) => isKind(value))
    .sort(([one], [two]) => one.length - two.length)) {
    if (!isPresent(path, values)) continue
    const value = kind === KINDS.list ? [] : {}
    if (!put(root, path, value, made)) return undefined
  }
  for (const [path, value] of entries) {
    if (!isKind(value) && isPresent(path, values) && !put(root, path, value, made)) return undefined
  }
  return root
}

/** Whether the plan and the limit that a field belongs to exist, in the form that the field has. */
function isPresent(path: readonly Step[], values: FieldValues): boolean {
  return path.every((step, index) => {
    const above = path.slice(0, index)
    if (index === 0 || !isUnit(above)) return true
    return values.get(JSON.stringify(above)) === (Array.isArray(step) ? KINDS.list : KINDS.fields)
  })
}

/** `made`: containers of the result; values of fields are never changed. */
function put(root: Container, path: readonly Step[], value: unknown, made: Set<unknown>): boolean {
  let inner = root
  for (const [index, step] of path.slice(0, -1).entries()) {
    const next = entryOf(inner, step) ?? added(inner, step, Array.isArray(path[index + 1]) ? [] : {}, made)
    if (!made.has(next)) return false
    inner = next as Container // only containers are in `made`
  }
  const last = path.at(-1) ?? ''
  if (entryOf(inner, last) !== undefined) return isEmpty(value)
  added(inner, last, isEmpty(value) ? structuredClone(value) : value, isEmpty(value) ? made : new Set())
  return true
}

function entryOf(container: Container, step: Step): unknown {
  if (Array.isArray(container)) return container.find((item) => isObject(item) && item.name === step[0])
  return Object.hasOwn(container, String(step)) ? container[String(step)] : undefined
}

function added(container: Container, step: Step, value: unknown, made: Set<unknown>): unknown {
  made.add(value)
  if (Array.isArray(container))
    container.push(Object.assign(value as object, { name: step[0] })) // made here
  else Object.defineProperty(container, String(step), { value, enumerable: true, writable: true, configurable: true })
  return value
}

function isEmpty(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.keys(value).length === 0
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isNamedList(value: unknown): value is readonly { readonly name: string }[] {
  return (
    Array.isArray(value) && value.length > 0 && value.every((item) => isObject(item) && typeof item.name === 'string')
  )
}
