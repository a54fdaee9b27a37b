// `sluice approvals set`: changes the number of approvals that rule changes need. Only with access to the database: a
// token could otherwise end the protection against itself.

import { wallClock } from 'sluice'
import { countFamilies } from '../approvals/approval-table.ts'
import { setApprovals } from '../approvals/required-approvals.ts'
import { migrate } from '../db/migrate.ts'
import { EXIT } from '../process/exit-codes.ts'
import { type Command, CommandError, defineCommand } from './command.ts'
import { DATABASE_FLAGS, namesDatabase, withDatabase } from './database-flags.ts'

export const APPROVALS_SET: Command = defineCommand({
  name: 'approvals set',
  summary: 'Sets how many approvals a rule change needs, on all nodes.',
  details: 'Opens the database directly: no token can lower the number. Nodes with --approvals can raise it.',
  positionals: [{ name: '<number>', help: 'approvals, from 0 to 10' }],
  flags: DATABASE_FLAGS,
  examples: [
    { does: 'two people must agree', line: 'sluice approvals set 2 --database postgres://127.0.0.1/sluice' },
    { does: 'embedded database, while the node is stopped', line: 'sluice approvals set 0 --data-dir .sluice' },
  ],
  run: async (given, terminal) => {
    const [text = ''] = given.positionals
    if (!/^(\d|10)$/.test(text)) throw new CommandError('<number>: give a whole number from 0 to 10', EXIT.invalid)
    if (!namesDatabase(given)) throw new CommandError('give --database or --data-dir', EXIT.invalid)
    const required = Number(text)
    const { before, approvers, authors } = await withDatabase(given, async (database) => {
      await migrate(database)
      return {
        before: await setApprovals(database, required, 'command', new Date(wallClock.nowUs() / 1000)),
        approvers: await countFamilies(database, ['approver', 'admin']),
        authors: await countFamilies(database, ['editor', 'approver', 'admin']),
      }
    })
    terminal.tell(`approvals: ${before} → ${text}\n`)
    if (required > 0 && (approvers < required || authors <= required)) {
      terminal.tell(
        `warning: no change can get ${required === 1 ? '1 approval' : `${required} approvals`} yet: ` +
          `${approvers} unrelated token${approvers === 1 ? '' : 's'} may approve. Tokens that one admin created are ` +
          'related. Create the tokens of approvers here: sluice token create <name> --role approver ' +
          `${given.has('database') ? '--database <url>' : '--data-dir <folder>'}\n`,
      )
    }
    return EXIT.done
  },
})
