// `sluice rules rollout`: shows rollouts as a live table, and promotes, pauses, resumes or aborts one.

import type { PlainShownProposal } from '../http/bodies/proposal-body.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { escaped } from '../text/escaped.ts'
import { Api, SERVER_FLAGS, WHEN_READY_FLAG } from './api.ts'
import type { Given } from './arguments.ts'
import { type Command, CommandError, defineCommand, OUTPUT_FLAGS } from './command.ts'
import { REASON_FLAG } from './confirm.ts'
import { printList } from './list.ts'
import { hasEnded, listProposals, moveProposal, readProposal } from './proposal-api.ts'
import { rolloutText } from './rollout-table.ts'

const ACTIONS = ['status', 'start', 'promote', 'pause', 'abort'] as const
const INTERVAL_MS = 1000
const LISTED = 20

export const RULES_ROLLOUT: Command = defineCommand({
  name: 'rules rollout',
  summary: 'Shows a rollout as a live table, or moves it.',
  details:
    'status: all proposals or, with an id, a table that is updated until the rollout ends. start: starts, resumes or ' +
    'retries. promote: ends the step. pause: stays at the step; the guard keeps running. abort: cancels or rolls back.',
  positionals: [
    { name: '<action>', help: `one of ${ACTIONS.join(', ')}`, choices: ACTIONS },
    { name: '<proposal_id>', help: 'the id of a proposal', optional: true },
  ],
  flags: [
    { name: 'once', help: 'Print the status once.' },
    REASON_FLAG,
    WHEN_READY_FLAG,
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [
    { does: 'all proposals', line: 'sluice rules rollout status' },
    { does: 'watch one', line: 'sluice rules rollout status prop_1f0c2a9be4d77310' },
    { does: 'next step', line: 'sluice rules rollout promote prop_1f0c2a9be4d77310' },
    { does: 'roll it back', line: 'sluice rules rollout abort prop_1f0c2a9be4d77310 --reason "wrong rule"' },
  ],
  run: async (given, terminal) => {
    const [action = '', id] = given.positionals
    const api = new Api(given, terminal)
    if (action === 'status') return status(api, id, given, terminal)
    if (id === undefined) throw new CommandError('<proposal_id>: give the id of a proposal', EXIT.invalid)
    const moved = await moveProposal(api, id, action, given.text('reason'))
    if (given.has('json')) terminal.out(`${JSON.stringify(moved, null, 2)}\n`)
    else terminal.tell(`${id}: ${escaped(moved.sentence)}\n`)
    return EXIT.done
  },
})

async function status(api: Api, id: string | undefined, given: Given, terminal: Terminal): Promise<number> {
  if (id !== undefined && !given.has('once')) return waitFor(api, id, given, terminal)
  if (id === undefined) {
    const answer = await listProposals(api, LISTED)
    const rows = answer.proposals.map((one) => [
      one.proposal_id,
      one.state.replaceAll('_', ' '),
      one.changes.map(({ rule_id }) => rule_id).join(', '),
      one.author_name ?? one.author,
      one.sentence,
      one.reason ?? '',
    ])
    const header = ['PROPOSAL', 'STATE', 'RULES', 'AUTHOR', 'DETAIL', 'REASON']
    printList({ answer, header, rows, none: 'no proposals' }, given, terminal)
    return EXIT.done
  }
  const proposal = await readProposal(api, id)
  terminal.out(given.has('json') ? `${JSON.stringify(proposal, null, 2)}\n` : rolloutText(proposal, terminal))
  return EXIT.done
}

/** Prints the rollout until it ends: on a terminal in place, elsewhere whenever its sentence changes. */
export async function waitFor(api: Api, id: string, given: Given, terminal: Terminal): Promise<number> {
  const show: Show = given.has('json') ? () => {} : terminal.colors ? liveTable(terminal) : linePrinter(terminal)
  const ended = await untilEnded(api, id, show)
  if (given.has('json')) terminal.out(`${JSON.stringify(ended, null, 2)}\n`)
  else terminal.tell(`${id}: ${escaped(ended.sentence)}\n`)
  return exitCodeOf(ended)
}

/** Polls until the proposal has ended. */
export async function untilEnded(api: Api, id: string, show: Show): Promise<PlainShownProposal> {
  for (;;) {
    const proposal = await readProposal(api, id)
    show(proposal)
    if (hasEnded(proposal)) return proposal
    await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS))
  }
}

/** Exit code of a proposal that has ended. */
export function exitCodeOf({ state }: PlainShownProposal): number {
  return state === 'done' ? EXIT.done : EXIT.negative
}

type Show = (proposal: PlainShownProposal) => void

/** Moves the cursor up and overwrites the table. */
function liveTable(terminal: Terminal): Show {
  let lines = 0
  return (proposal) => {
    const text = rolloutText(proposal, terminal)
    terminal.out(`${lines === 0 ? '' : `\u001b[${lines}A`}${text.replaceAll('\n', '\u001b[K\n')}\u001b[J`)
    lines = text.split('\n').length - 1
  }
}

function linePrinter(terminal: Terminal): Show {
  let last = ''
  return (proposal) => {
    if (proposal.sentence === last) return
    last = proposal.sentence
    terminal.out(rolloutText(proposal, terminal))
  }
}
