// `sluice gateway`: runs a reverse proxy with the limiter built in. Its code is loaded only when needed.

import { beginOpening } from '../db/open-database.ts'
import { GATEWAY_SETTINGS } from '../gateway/settings.ts'
import { EXIT } from '../process/exit-codes.ts'
import { readSettings } from '../settings/command-line.ts'
import type { Command } from './command.ts'
import { usageText } from './help.ts'
import { flagsOf } from './setting-flags.ts'

export const GATEWAY: Command = {
  name: 'gateway',
  summary: 'Runs a reverse proxy that enforces the rules in front of a service.',
  details: 'Also accepts every setting of sluice serve; see docs/guides/gateway.md.',
  positionals: [],
  flags: flagsOf(GATEWAY_SETTINGS),
  examples: [
    { does: 'in front of a service on this machine', line: 'sluice gateway --upstream http://127.0.0.1:3000' },
    {
      does: 'two services, clients identified by their token',
      line: 'sluice gateway --route /api=http://10.0.0.7 --upstream http://10.0.0.8 --user-from jwt:sub',
    },
  ],
  run: async (args, terminal) => {
    const command = readSettings(GATEWAY_SETTINGS, args, terminal.env)
    if (command.kind === 'serve') {
      beginOpening(command.settings)
      const [{ runProgram }, { GATEWAY_PROGRAM }] = await Promise.all([
        import('../process/serve.ts'),
        import('../gateway/program.ts'),
      ])
      return runProgram(GATEWAY_PROGRAM, command, terminal)
    }
    terminal.tell(usageText(command.fieldErrors))
    return EXIT.invalid
  },
}
