// Reads the rule file of `rules plan`, `apply` and `propose`, and prints what it would change.

import { readFileSync } from 'node:fs'
import { wallClock } from 'sluice'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { findingText, lintRuleFile } from '../rules/lint.ts'
import { inputName, isJson } from '../rules/rule-file.ts'
import type { Given } from './arguments.ts'
import { changesText, summaryOf } from './changes-text.ts'
import { CommandError, type Positional } from './command.ts'
import { ruleInput } from './offline.ts'
import { type Plan, replaceWith, type Write } from './rule-set-api.ts'

export const FILE: Positional = {
  name: '<file>',
  help: 'the complete rule set as YAML or JSON, or - for standard input; rules that are not in it are deleted',
}

export function printPlan(plan: Plan, given: Given, terminal: Terminal): void {
  terminal.out(given.has('json') ? `${JSON.stringify(plan, null, 2)}\n` : changesText(plan.changes, terminal))
  if (given.has('json')) return
  const what = plan.changes.length === 0 ? 'no changes' : summaryOf(plan.changes)
  terminal.tell(`version ${plan.version}: ${what}\n`)
}

/** Reports invalid rules with line numbers before calling the node. */
export async function fileWrite({ positionals: [file = ''] }: Given, terminal: Terminal): Promise<Write> {
  const input = await ruleInput(file, terminal)
  const { mistakes } = lintRuleFile(input, wallClock.nowUs() / 1000)
  if (mistakes.length > 0) {
    const lines = mistakes.map((mistake) => findingText(inputName(input), 'error', mistake))
    throw new CommandError(`invalid rules\n${lines.join('\n')}`, EXIT.invalid)
  }
  const bytes = typeof input === 'string' ? readFileSync(input) : input.bytes
  return replaceWith(new TextDecoder().decode(bytes), isJson(input))
}
