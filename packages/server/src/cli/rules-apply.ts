// `sluice rules plan` shows what a rule file would change on a node; `sluice rules apply` makes the change atomically,
// and only if the rules have not changed since the plan.

import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import type { EditGuard } from '../rollouts/edit-hooks.ts'
import { escaped } from '../text/escaped.ts'
import { Api, SERVER_FLAGS, WHEN_READY_FLAG } from './api.ts'
import type { Given } from './arguments.ts'
import { type Command, CommandError, defineCommand, type Flag, OUTPUT_FLAGS } from './command.ts'
import { confirm, YES_FLAG } from './confirm.ts'
import { FILE, fileWrite, printPlan } from './plan-file.ts'
import { listProposals } from './proposal-api.ts'
import { exitCodeOf, untilEnded, waitFor } from './rollout.ts'
import { applyWrite, type Plan, planOf, type Write } from './rule-set-api.ts'
import { PROPOSE_FLAGS, proposePlan } from './rules-propose.ts'

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
    const api = new Api(given)
    const plan = await planOf(api, await fileWrite(given, terminal))
    printPlan(plan, given, terminal)
    const required = plan.changes.length === 0 || given.has('json') ? 0 : await approvalsOf(api)
    if (required > 0) terminal.tell(`${approvalsText(required)}: sluice rules apply creates a proposal\n`)
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
  details:
    'Atomic. Shows the plan and asks for confirmation. Exits with 5 if the rules have changed since the plan. The ' +
    'guard watches the change, and reverts it if it refuses too many requests. If rule changes need approval, ' +
    'creates a proposal instead, which needs a reason.',
  positionals: [FILE],
  flags: [...CHANGE_FLAGS, ...PROPOSE_FLAGS, WHEN_READY_FLAG, ...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [
    { does: 'interactively', line: 'sluice rules apply rules.yaml --reason "raise pro limits"' },
    { does: 'in CI, exactly what was reviewed', line: 'sluice rules apply rules.yaml --if-version 7 --yes' },
  ],
  run: async (given, terminal) => change(given, terminal, await fileWrite(given, terminal), true),
})

/** Shows the plan, asks for confirmation, and applies the change. `mayPropose`: proposes it if it needs approval. */
export async function change(given: Given, terminal: Terminal, write: Write, mayPropose = false): Promise<number> {
  const api = new Api(given, terminal)
  const ifVersion = given.text('if-version')
  const plan = await planOf(api, write, ifVersion === undefined ? undefined : Number(ifVersion))
  const applies = plan.changes.length > 0 && !given.has('dry-run')
  if (!applies || !given.has('json')) printPlan(plan, given, terminal)
  if (!applies) return EXIT.done
  const required = mayPropose ? await approvalsOf(api) : 0
  if (required > 0) return proposeInstead(api, plan, required, given, terminal)
  await confirm(given, terminal, 'Change the rules?')
  const options = { ifVersion: plan.version, reason: given.text('reason'), isOff: isGuardOff(given) }
  const { version, guard } = await applyWrite(api, write, options)
  const guardId = guard !== undefined && 'proposal_id' in guard ? guard.proposal_id : undefined
  if (!given.has('json')) {
    terminal.tell(`version ${version} is active\n${guardText(guard)}`)
    return guardId !== undefined && given.has('wait') ? waitFor(api, guardId, given, terminal) : EXIT.done
  }
  const ended = guardId !== undefined && given.has('wait') ? await untilEnded(api, guardId, () => {}) : undefined
  const answer = { version, changes: plan.changes, guard, proposal: ended }
  terminal.out(`${JSON.stringify(answer, null, 2)}\n`)
  return ended === undefined ? EXIT.done : exitCodeOf(ended)
}

/** Thresholds are for proposals; a direct edit is guarded with the default ones, or not at all. */
function isGuardOff(given: Given): boolean {
  const guard = given.text('guard')
  if (guard === undefined || guard === 'off') return guard === 'off'
  const fix = 'use off, or sluice rules propose: a direct edit has the default thresholds'
  throw new CommandError(`--guard: ${fix}`, EXIT.invalid)
}

function guardText(guard: EditGuard | undefined): string {
  if (guard === undefined) return ''
  if ('off' in guard) return `not guarded: ${escaped(guard.off)}\n`
  const { proposal_id: id, until, unguarded = [] } = guard
  const without = unguarded.map(({ rule_id, why }) => `not guarded: rule ${escaped(`${rule_id}: ${why}`)}\n`)
  return (
    `guarded until ${until}: it is reverted if it refuses too many requests; ` +
    `sluice rules rollout status ${id}\n${without.join('')}`
  )
}

async function proposeInstead(
  api: Api,
  plan: Plan,
  required: number,
  given: Given,
  terminal: Terminal,
): Promise<number> {
  const reason = given.text('reason')
  if (reason === undefined) throw new CommandError(`--reason: give a reason; ${approvalsText(required)}`, EXIT.invalid)
  await confirm(given, terminal, `Propose the change? ${approvalsText(required)}.`)
  return proposePlan(api, plan, { reason, starts: true }, given, terminal)
}

async function approvalsOf(api: Api): Promise<number> {
  return (await listProposals(api, 1)).approvals_required
}

function approvalsText(required: number): string {
  return `rule changes need ${required === 1 ? '1 approval' : `${required} approvals`}`
}
