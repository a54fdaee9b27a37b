// `sluice rules plan` and `sluice rules apply`: what a rule file would change on a node, and then the change itself, as
// a whole or not at all, and only if nobody else changed anything in between.

import { readFileSync } from 'node:fs'
import { wallClock } from 'sluice'
import { findingText, lintRuleFile } from '../rules/lint.ts'
import { inputName, isJson } from '../rules/rule-file.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import type { Given } from './arguments.ts'
import { changesText, summaryOf } from './changes-text.ts'
import { type Command, CommandError, defineCommand, EXIT, type Flag, OUTPUT_FLAGS, type Positional } from './command.ts'
import { confirm, YES_FLAG } from './confirm.ts'
import { ruleInput } from './offline.ts'
import { carryOut, type Plan, planOf, replaceWith, type Write } from './rule-set-api.ts'
import type { Terminal } from './terminal.ts'

const FILE: Positional = {
  name: '<file>',
  help: 'the whole rule set, YAML or JSON, - for standard input: rules that are not in it are deleted',
}

const DETAILED = 'detailed-exitcode'
/** As of Terraform. Without the flag, 2 stands for wrong rules and arguments: with it they are a 1. */
const PLAN_CHANGES = 2

export const CHANGE_FLAGS: readonly Flag[] = [
  {
    name: 'reason',
    value: '<text>',
    help: 'Why, for the audit and the history.',
    accepts: (text) => text.length <= 500,
    fix: 'give 1 to 500 characters',
  },
  {
    name: 'if-version',
    value: '<number>',
    help: 'Only if that is still the version in force: the one that a plan was made for.',
    accepts: (text) => /^\d{1,15}$/.test(text),
    fix: 'give the number of a version',
  },
  YES_FLAG,
  { name: 'dry-run', help: 'Only tell what would change.' },
]

const PLAN: Command = defineCommand({
  name: 'rules plan',
  summary: 'Tells what a rule file would change on a node.',
  details:
    'Changes nothing. Its version is what sluice rules apply --if-version takes. With --detailed-exitcode, the exit ' +
    'codes are those of terraform plan: 0 nothing to change, 1 any error, 2 something to change.',
  positionals: [FILE],
  flags: [
    { name: DETAILED, help: 'End with 0 if nothing would change, with 2 if something would, with 1 after any error.' },
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [
    { does: 'in a pull request', line: 'sluice rules plan rules.yaml' },
    { does: 'has a node other rules than the file?', line: 'sluice rules plan rules.yaml --detailed-exitcode' },
    { does: 'for programs', line: 'sluice rules plan rules.yaml --json' },
  ],
  run: async (given, terminal) => {
    const plan = await planOf(new Api(given), await fileWrite(given, terminal))
    printPlan(plan, given, terminal)
    return given.has(DETAILED) && plan.changes.length > 0 ? EXIT.no : EXIT.done
  },
})

/** `rules plan` with the exit codes of `terraform plan` where its flag asks for them. */
export const RULES_PLAN: Command = {
  ...PLAN,
  run: async (args, terminal) => {
    if (!args.some((arg) => arg.split('=', 1)[0] === `--${DETAILED}`)) return PLAN.run(args, terminal)
    const code = await PLAN.run(args, terminal).catch((error: unknown) => {
      throw error instanceof CommandError ? new CommandError(error.message, EXIT.failed) : error
    })
    return code === EXIT.done ? EXIT.done : code === EXIT.no ? PLAN_CHANGES : EXIT.failed
  },
}

export const RULES_APPLY: Command = defineCommand({
  name: 'rules apply',
  summary: 'Makes the rules of a node those of a file.',
  details:
    'All of it or nothing. Shows the plan and asks first; ends with 5 when the rules changed after the plan was made.',
  positionals: [FILE],
  flags: [...CHANGE_FLAGS, ...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [
    { does: 'by hand', line: 'sluice rules apply rules.yaml --reason "more for pro"' },
    { does: 'in CI, exactly what was reviewed', line: 'sluice rules apply rules.yaml --if-version 7 --yes' },
  ],
  run: async (given, terminal) => change(given, terminal, await fileWrite(given, terminal)),
})

/** Plans, shows, asks, and carries out. */
export async function change(given: Given, terminal: Terminal, write: Write): Promise<number> {
  const api = new Api(given)
  const wanted = given.text('if-version')
  const plan = await planOf(api, write, wanted === undefined ? undefined : Number(wanted))
  const isWanted = plan.changes.length > 0 && !given.has('dry-run')
  if (!isWanted || !given.has('json')) printPlan(plan, given, terminal)
  if (!isWanted) return EXIT.done
  await confirm(given, terminal, 'Change the rules?')
  const version = await carryOut(api, write, { ifVersion: plan.version, reason: given.text('reason') })
  if (given.has('json')) terminal.out(`${JSON.stringify({ version, changes: plan.changes }, null, 2)}\n`)
  else terminal.tell(`version ${version} is in force\n`)
  return EXIT.done
}

function printPlan(plan: Plan, given: Given, terminal: Terminal): void {
  terminal.out(given.has('json') ? `${JSON.stringify(plan, null, 2)}\n` : changesText(plan.changes, terminal))
  if (given.has('json')) return
  const what = plan.changes.length === 0 ? 'nothing to change' : summaryOf(plan.changes)
  terminal.tell(`version ${plan.version}: ${what}\n`)
}

/** Mistakes are told here, with lines, before a node is asked. */
async function fileWrite({ positionals: [file = ''] }: Given, terminal: Terminal): Promise<Write> {
  const input = await ruleInput(file, terminal)
  const { mistakes } = lintRuleFile(input, wallClock.nowUs() / 1000)
  if (mistakes.length > 0) {
    const lines = mistakes.map((mistake) => findingText(inputName(input), 'error', mistake))
    throw new CommandError(`the rules are wrong\n${lines.join('\n')}`, EXIT.wrong)
  }
  const bytes = typeof input === 'string' ? readFileSync(input) : input.bytes
  return replaceWith(new TextDecoder().decode(bytes), isJson(input))
}
