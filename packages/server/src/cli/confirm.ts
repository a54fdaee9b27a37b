// Asks for confirmation before a change. Without a terminal, `--yes` is required.

import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import type { Given } from './arguments.ts'
import { CommandError, type Flag } from './command.ts'

export const YES_FLAG: Flag = { name: 'yes', help: 'Do not ask for confirmation; required without a terminal.' }
export const DRY_RUN_FLAG: Flag = { name: 'dry-run', help: 'Show what would change without changing it.' }

export const REASON_FLAG: Flag = {
  name: 'reason',
  value: '<text>',
  help: 'Reason, for the audit log.',
  accepts: (text) => text !== '' && text.length <= 1024,
  fix: 'give 1 to 1024 characters',
}

const NO_TERMINAL = 'cannot ask for confirmation without a terminal: pass --yes or --dry-run'

/** The mistake to report together with others if `confirm` would fail. */
export function unconfirmable(given: Given, { ask }: Terminal): string[] {
  return ask !== undefined || given.has('yes') || given.has('dry-run') ? [] : [NO_TERMINAL]
}

export async function confirm(given: Given, { ask }: Terminal, question: string): Promise<void> {
  if (given.has('yes')) return
  if (ask === undefined) throw new CommandError(NO_TERMINAL, EXIT.invalid)
  if (!(await ask(question))) throw new CommandError('aborted; nothing was changed', EXIT.negative)
}
