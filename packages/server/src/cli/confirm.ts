// Nothing is changed that nobody agreed to: a person is asked, and where there is none, `--yes` has to say it.

import type { Given } from './arguments.ts'
import { CommandError, EXIT, type Flag } from './command.ts'
import type { Terminal } from './terminal.ts'

export const YES_FLAG: Flag = { name: 'yes', help: 'Do not ask for confirmation; needed where nobody can be asked.' }

export async function confirm(given: Given, { ask }: Terminal, question: string): Promise<void> {
  if (given.has('yes')) return
  if (ask === undefined) throw new CommandError('nobody is here to confirm it: say --yes, or --dry-run', EXIT.wrong)
  if (!(await ask(question))) throw new CommandError('nothing was changed', EXIT.no)
}
