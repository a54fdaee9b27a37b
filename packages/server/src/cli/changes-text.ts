// Formats the differences between two rule sets: one line per rule, one per changed field.

import type { Terminal } from '../process/terminal.ts'
import type { RuleChange } from '../rules/changes.ts'
import { type Paint, paintOn } from './paint.ts'

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
  const fields = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((name) => !HIDDEN.has(name))
  const values = fields.map((name) => {
    if (change !== 'updated') return textOf(before[name] ?? after[name])
    return `${textOf(before[name])} → ${textOf(after[name])}`
  })
  return [title, ...fields.map((name, index) => `    ${name}: ${values[index]}`)]
}

const HIDDEN: ReadonlySet<string> = new Set(['rule_id', 'version', 'created_at', 'updated_at'])

function textOf(value: unknown): string {
  return value === undefined ? '(unset)' : typeof value === 'string' ? value : JSON.stringify(value)
}
