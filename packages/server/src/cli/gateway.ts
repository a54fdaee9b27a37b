// `sluice gateway`: the service as a reverse proxy in front of another one. Loaded when needed only.

import { GATEWAY_SETTINGS } from '../gateway/settings.ts'
import { readSettings } from '../settings/command-line.ts'
import { type Command, EXIT } from './command.ts'
import { usageText } from './help.ts'
import { flagsOf } from './setting-flags.ts'

export const GATEWAY: Command = {
  name: 'gateway',
  summary: 'Stands in front of a service as a reverse proxy that keeps the rules.',
  details: 'It takes every setting of the service as well; docs/guides/gateway.md tells more.',
  positionals: [],
  flags: flagsOf(GATEWAY_SETTINGS),
  examples: [
    { does: 'in front of a service on this machine', line: 'sluice gateway --upstream http://127.0.0.1:3000' },
    {
      does: 'two services, clients known by their token',
      line: 'sluice gateway --route /api=http://10.0.0.7 --upstream http://10.0.0.8 --user-from jwt:sub',
    },
  ],
  run: async (args, terminal) => {
    const command = readSettings(GATEWAY_SETTINGS, args, terminal.env)
    if (command.kind === 'serve') {
      const [{ runProgram }, { GATEWAY_PROGRAM }] = await Promise.all([
        import('../process/serve.ts'),
        import('../gateway/program.ts'),
      ])
      return runProgram(GATEWAY_PROGRAM, command.settings, command.warnings, terminal)
    }
    terminal.tell(usageText(command.faults))
    return EXIT.wrong
  },
}
