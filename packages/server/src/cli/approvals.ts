// `sluice approvals set`: changes the number of approvals that rule changes need. Only with access to the database: a
// token could otherwise end the protection against itself.

import { wallClock } from 'sluice'
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
    const before = await withDatabase(given, async (database) => {
      await migrate(database)
      return setApprovals(database, Number(text), 'command', new Date(wallClock.nowUs() / 1000))
    })
    terminal.tell(`approvals: ${before} → ${text}\n`)
    return EXIT.done
  },
})
