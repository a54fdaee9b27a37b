// `sluice rules lint`: prints the errors and warnings in rule files with line numbers. Needs no node.

import { wallClock } from 'sluice'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { findingText, type LintResult, lintRuleFile } from '../rules/lint.ts'
import { inputName } from '../rules/rule-file.ts'
import { type Command, defineCommand, OUTPUT_FLAGS } from './command.ts'
import { ruleInput } from './offline.ts'
import { paintOn } from './paint.ts'

export const RULES_LINT: Command = defineCommand({
  name: 'rules lint',
  summary: 'Lists errors in rule files, with line numbers.',
  details: 'Also warns about rules that are disabled, expired or never apply, and limits that never refuse.',
  positionals: [
    {
      name: '<file>',
      help: 'rule files, YAML or JSON, or - for standard input; each is checked as a separate rule set',
      repeats: true,
    },
  ],
  flags: OUTPUT_FLAGS,
  examples: [
    { does: 'before a commit', line: 'sluice rules lint rules.yaml' },
    { does: 'from standard input', line: 'sluice rules export | sluice rules lint -' },
    { does: 'as JSON', line: 'sluice rules lint rules.yaml --json' },
  ],
  run: async (given, terminal) => {
    const nowMs = wallClock.nowUs() / 1000
    const inputs = await Promise.all(given.positionals.map((file) => ruleInput(file, terminal)))
    const files = inputs.map((input) => ({ file: inputName(input), ...lintRuleFile(input, nowMs) }))
    if (given.has('json')) terminal.out(`${JSON.stringify(files, null, 2)}\n`)
    else for (const { file, ...findings } of files) print(file, findings, terminal)
    return files.some(({ mistakes }) => mistakes.length > 0) ? EXIT.invalid : EXIT.done
  },
})

function print(file: string, { mistakes, warnings, rules }: LintResult, terminal: Terminal): void {
  const paint = paintOn(terminal)
  for (const mistake of mistakes) terminal.out(`${findingText(file, paint('red', 'error'), mistake)}\n`)
  for (const warning of warnings) terminal.out(`${findingText(file, paint('yellow', 'warning'), warning)}\n`)
  const found = [counted(mistakes.length, 'error'), counted(warnings.length, 'warning')].join(', ')
  terminal.tell(`${file}: ${counted(rules, 'rule')}, ${found}\n`)
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}
