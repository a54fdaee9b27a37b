// What differs between two rule sets, as people read it: one line per rule, one per field that differs.

import type { RuleChange } from '../rules/changes.ts'
import { type Paint, paintOn } from './paint.ts'
import type { Terminal } from './terminal.ts'

const SIGNS = { created: '+', updated: '~', deleted: '-' } as const
const COLORS = { created: 'green', updated: 'yellow', deleted: 'red' } as const

export function changesText(changes: readonly RuleChange[], terminal: Terminal): string {
  const paint = paintOn(terminal)
  return changes
    .flatMap((change) => linesOf(change, paint))
    .map((line) => `${line}\n`)
    .join('')
}

/** `2 created, 1 updated, 0 deleted` */
export function summaryOf(changes: readonly RuleChange[]): string {
  const count = (kind: RuleChange['change']) => changes.filter(({ change }) => change === kind).length
  return `${count('created')} created, ${count('updated')} updated, ${count('deleted')} deleted`
}

function linesOf({ rule_id: ruleId, change, before = {}, after = {} }: RuleChange, paint: Paint): string[] {
  const title = paint(COLORS[change], `${SIGNS[change]} ${ruleId}`)
  const fields = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((name) => name !== 'rule_id')
  return [
    title,
    ...fields.filter((name) => !KEPT_BY_STORE.has(name)).map((name) => fieldLine(name, before[name], after[name])),
  ]
}

/** Of a rule that comes or goes as a whole nobody needs to know when it was made. */
const KEPT_BY_STORE: ReadonlySet<string> = new Set(['version', 'created_at', 'updated_at'])

function fieldLine(name: string, before: unknown, after: unknown): string {
  if (before === undefined) return `    ${name}: ${textOf(after)}`
  return after === undefined
    ? `    ${name}: ${textOf(before)} → none`
    : `    ${name}: ${textOf(before)} → ${textOf(after)}`
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}
