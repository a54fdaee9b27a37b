// `sluice rules propose`, `approve` and `reject`: rule changes that other people approve before they roll out.

import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import type { PlainStep } from '../rollouts/step.ts'
import { escaped } from '../text/escaped.ts'
import { Api, SERVER_FLAGS, WHEN_READY_FLAG } from './api.ts'
import type { Given } from './arguments.ts'
import { type Command, CommandError, defineCommand, type Flag, OUTPUT_FLAGS, type Positional } from './command.ts'
import { REASON_FLAG } from './confirm.ts'
import { FILE, fileWrite, printPlan } from './plan-file.ts'
import { type Moved, moveProposal, propose, startIfApproved } from './proposal-api.ts'
import { waitFor } from './rollout.ts'
import { type Plan, planOf } from './rule-set-api.ts'

export const PROPOSAL_ID: Positional = { name: '<proposal_id>', help: 'the id of a proposal' }
const NO_START: Flag = { name: 'no-start', help: 'Do not start the rollout once it is approved.' }

const STEP_FIX = 'use shadow, shadow:10m, canary:1% or canary:1%:10m'

/** Flags of commands that create a proposal. */
export const PROPOSE_FLAGS: readonly Flag[] = [
  {
    name: 'step',
    value: '<step>',
    help: 'A step: shadow:10m, canary:1%:10m; without a time, sluice rules rollout promote ends it. May be repeated.',
    shownFallback: 'shadow:10m, then canary 1%, 10% and 50% for 10m each',
    repeats: true,
    accepts: (text) => stepIn(text) !== undefined,
    fix: STEP_FIX,
  },
  {
    name: 'guard',
    value: 'off|<json>',
    help: 'Thresholds of the guard, such as {"newly_denied":{"points":2}}, or off.',
    accepts: (text) => text === 'off' || isJson(text),
    fix: 'use off, or a JSON object',
  },
  {
    name: 'wait',
    help: 'Wait until the rollout or guard has ended. Exits with 3 if it was rejected, cancelled or rolled back.',
  },
]

export const RULES_PROPOSE: Command = defineCommand({
  name: 'rules propose',
  summary: 'Proposes the differences between a rule file and the rules of a node.',
  details:
    'The rollout starts once the proposal has its approvals: at once if none are required, otherwise with sluice ' +
    'rules approve. The guard watches it and rolls it back if it refuses too much.',
  positionals: [FILE],
  flags: [
    { ...REASON_FLAG, help: 'Reason, for approvers and the audit log. Required.' },
    ...PROPOSE_FLAGS,
    NO_START,
    WHEN_READY_FLAG,
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [
    { does: 'with the default steps', line: 'sluice rules propose rules.yaml --reason "double the limit"' },
    {
      does: 'with steps',
      line: 'sluice rules propose rules.yaml --reason "lower it" --step shadow:1h --step canary:5%:30m --wait',
    },
  ],
  run: async (given, terminal) => {
    const api = new Api(given, terminal)
    const reason = given.text('reason')
    if (reason === undefined) throw new CommandError('--reason: give a reason', EXIT.invalid)
    const plan = await planOf(api, await fileWrite(given, terminal))
    if (plan.changes.length === 0) {
      printPlan(plan, given, terminal)
      return EXIT.done
    }
    if (!given.has('json')) printPlan(plan, given, terminal)
    return proposePlan(api, plan, { reason, starts: !given.has('no-start') }, given, terminal)
  },
})

/** Creates a proposal, starts it if it is approved, and waits for it if --wait is given. */
export async function proposePlan(
  api: Api,
  plan: Plan,
  { reason, starts }: { readonly reason: string; readonly starts: boolean },
  given: Given,
  terminal: Terminal,
): Promise<number> {
  const steps = given.texts('step').flatMap((text) => stepIn(text) ?? [])
  const guard = guardIn(given.text('guard'))
  const created = await propose(api, plan, { reason, guard, steps: steps.length === 0 ? undefined : steps })
  const moved = starts ? await startIfApproved(api, created) : created
  if (!given.has('json')) terminal.out(`${moved.proposal_id}\n`)
  return report(api, moved, given, terminal)
}

async function report(api: Api, moved: Moved, given: Given, terminal: Terminal): Promise<number> {
  if (given.has('json') && !given.has('wait')) terminal.out(`${JSON.stringify(moved, null, 2)}\n`)
  if (!given.has('json')) {
    terminal.tell(`${moved.proposal_id}: ${escaped(moved.sentence)}\n`)
    if (moved.state === 'draft')
      terminal.tell(`another person approves it with: sluice rules approve ${moved.proposal_id}\n`)
  }
  return given.has('wait') ? waitFor(api, moved.proposal_id, given, terminal) : EXIT.done
}

export const RULES_APPROVE: Command = defineCommand({
  name: 'rules approve',
  summary: 'Approves a proposal, and starts its rollout if that was the last approval.',
  details: 'Needs the role approver. Not possible for the author, nor with a token that the author created.',
  positionals: [PROPOSAL_ID],
  flags: [
    NO_START,
    { name: 'wait', help: 'Wait until the rollout has ended.' },
    WHEN_READY_FLAG,
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [{ does: 'after a review', line: 'sluice rules approve prop_1f0c2a9be4d77310' }],
  run: async (given, terminal) => {
    const [id = ''] = given.positionals
    const api = new Api(given, terminal)
    const approved = await moveProposal(api, id, 'approve')
    const moved = given.has('no-start') ? approved : await startIfApproved(api, approved)
    return report(api, moved, given, terminal)
  },
})

export const RULES_REJECT: Command = defineCommand({
  name: 'rules reject',
  summary: 'Rejects a proposal that has not started.',
  positionals: [PROPOSAL_ID],
  flags: [REASON_FLAG, ...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [{ does: 'with a reason', line: 'sluice rules reject prop_1f0c2a9be4d77310 --reason "too low for pro"' }],
  run: async (given, terminal) => {
    const [id = ''] = given.positionals
    const api = new Api(given)
    return report(api, await moveProposal(api, id, 'reject', given.text('reason')), given, terminal)
  },
})

/** `canary:1%:10m` */
function stepIn(text: string): PlainStep | undefined {
  const [, shadow, shadowTime, share, time] =
    /^(?:(shadow)(?::(\d{1,6}[smhd]))?|canary:(\d{1,3}(?:\.\d{1,4})?%)(?::(\d{1,6}[smhd]))?)$/.exec(text) ?? []
  if (shadow !== undefined) return { shadow: shadowTime ?? true }
  return share === undefined ? undefined : { canary: share, ...(time === undefined ? {} : { for: time }) }
}

function guardIn(text: string | undefined): unknown {
  return text === undefined || text === 'off' ? text : JSON.parse(text)
}

function isJson(text: string): boolean {
  try {
    return typeof JSON.parse(text) === 'object'
  } catch {
    return false
  }
}
