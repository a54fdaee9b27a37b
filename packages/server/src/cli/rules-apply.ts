// `sluice rules plan` shows what a rule file would change on a node; `sluice rules apply` makes the change atomically,
// and only if the rules have not changed since the plan.

import { readFileSync } from 'node:fs'
import { wallClock } from 'sluice'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { findingText, lintRuleFile } from '../rules/lint.ts'
import { inputName, isJson } from '../rules/rule-file.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import type { Given } from './arguments.ts'
import { changesText, summaryOf } from './changes-text.ts'
import { type Command, CommandError, defineCommand, type Flag, OUTPUT_FLAGS, type Positional } from './command.ts'
import { confirm, YES_FLAG } from './confirm.ts'
import { ruleInput } from './offline.ts'
import { applyWrite, type Plan, planOf, replaceWith, type Write } from './rule-set-api.ts'

const FILE: Positional = {
  name: '<file>',
  help: 'the complete rule set as YAML or JSON, or - for standard input; rules that are not in it are deleted',
}

const DETAILED = 'detailed-exitcode'
/** As in Terraform. Without the flag, 2 means invalid rules or arguments; with it they exit with 1. */
const PLAN_CHANGES = 2

export const CHANGE_FLAGS: readonly Flag[] = [
  {
    name: 'reason',
    value: '<text>',
    help: 'Reason, for the audit log and the history.',
    accepts: (text) => text.length <= 500,
    fix: 'give 1 to 500 characters',
  },
  {
    name: 'if-version',
    value: '<number>',
    help: 'Apply only if this version, such as that of a plan, is still active.',
    accepts: (text) => /^\d{1,15}$/.test(text),
    fix: 'give the number of a version',
  },
  YES_FLAG,
  { name: 'dry-run', help: 'Show the changes without applying them.' },
]

const PLAN: Command = defineCommand({
  name: 'rules plan',
  summary: 'Shows what a rule file would change on a node.',
  details:
    'Changes nothing. Pass the printed version to sluice rules apply --if-version. With --detailed-exitcode, the ' +
    'exit codes are those of terraform plan: 0 no changes, 1 error, 2 changes.',
  positionals: [FILE],
  flags: [
    { name: DETAILED, help: 'Exit with 0 if nothing would change, 2 if something would, 1 after an error.' },
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [
    { does: 'in a pull request', line: 'sluice rules plan rules.yaml' },
    { does: 'do the rules of a node differ from the file?', line: 'sluice rules plan rules.yaml --detailed-exitcode' },
    { does: 'as JSON', line: 'sluice rules plan rules.yaml --json' },
  ],
  run: async (given, terminal) => {
    const plan = await planOf(new Api(given), await fileWrite(given, terminal))
    printPlan(plan, given, terminal)
    return given.has(DETAILED) && plan.changes.length > 0 ? EXIT.negative : EXIT.done
  },
})

/** `rules plan`, with the exit codes of `terraform plan` if requested. */
export const RULES_PLAN: Command = {
  ...PLAN,
  run: async (args, terminal) => {
    if (!args.some((arg) => arg.split('=', 1)[0] === `--${DETAILED}`)) return PLAN.run(args, terminal)
    const code = await PLAN.run(args, terminal).catch((error: unknown) => {
      throw error instanceof CommandError ? new CommandError(error.message, EXIT.failed) : error
    })
    return code === EXIT.done ? EXIT.done : code === EXIT.negative ? PLAN_CHANGES : EXIT.failed
  },
}

export const RULES_APPLY: Command = defineCommand({
  name: 'rules apply',
  summary: 'Replaces the rules of a node with those of a file.',
  details: 'Atomic. Shows the plan and asks for confirmation. Exits with 5 if the rules have changed since the plan.',
  positionals: [FILE],
  flags: [...CHANGE_FLAGS, ...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [
    { does: 'interactively', line: 'sluice rules apply rules.yaml --reason "raise pro limits"' },
    { does: 'in CI, exactly what was reviewed', line: 'sluice rules apply rules.yaml --if-version 7 --yes' },
  ],
  run: async (given, terminal) => change(given, terminal, await fileWrite(given, terminal)),
})

/** Shows the plan, asks for confirmation, and applies the change. */
export async function change(given: Given, terminal: Terminal, write: Write): Promise<number> {
  const api = new Api(given)
  const ifVersion = given.text('if-version')
  const plan = await planOf(api, write, ifVersion === undefined ? undefined : Number(ifVersion))
  const applies = plan.changes.length > 0 && !given.has('dry-run')
  if (!applies || !given.has('json')) printPlan(plan, given, terminal)
  if (!applies) return EXIT.done
  await confirm(given, terminal, 'Change the rules?')
  const version = await applyWrite(api, write, { ifVersion: plan.version, reason: given.text('reason') })
  if (given.has('json')) terminal.out(`${JSON.stringify({ version, changes: plan.changes }, null, 2)}\n`)
  else terminal.tell(`version ${version} is active\n`)
  return EXIT.done
}

function printPlan(plan: Plan, given: Given, terminal: Terminal): void {
  terminal.out(given.has('json') ? `${JSON.stringify(plan, null, 2)}\n` : changesText(plan.changes, terminal))
  if (given.has('json')) return
  const what = plan.changes.length === 0 ? 'no changes' : summaryOf(plan.changes)
  terminal.tell(`version ${plan.version}: ${what}\n`)
}

/** Reports invalid rules with line numbers before calling the node. */
async function fileWrite({ positionals: [file = ''] }: Given, terminal: Terminal): Promise<Write> {
  const input = await ruleInput(file, terminal)
  const { mistakes } = lintRuleFile(input, wallClock.nowUs() / 1000)
  if (mistakes.length > 0) {
    const lines = mistakes.map((mistake) => findingText(inputName(input), 'error', mistake))
    throw new CommandError(`invalid rules\n${lines.join('\n')}`, EXIT.invalid)
  }
  const bytes = typeof input === 'string' ? readFileSync(input) : input.bytes
  return replaceWith(new TextDecoder().decode(bytes), isJson(input))
}
