// `sluice serve`: runs the service. Loaded when needed only: other commands start faster without.

import { readCommand } from '../settings/command-line.ts'
import { type Command, EXIT } from './command.ts'
import { usageText } from './help.ts'
import { SETTING_FLAGS } from './setting-flags.ts'

export const SERVE: Command = {
  name: 'serve',
  summary: 'Runs the service; the same as no command at all.',
  positionals: [],
  flags: SETTING_FLAGS,
  examples: [
    { does: 'on this machine, counters in memory', line: 'sluice serve --rules rules.yaml' },
    { does: 'a node of a fleet', line: 'sluice serve --host 0.0.0.0 --redis redis://10.0.0.5:6379' },
  ],
  run: async (args, terminal) => {
    const command = readCommand(args, terminal.env)
    if (command.kind === 'serve') {
      const { serve } = await import('../process/serve.ts')
      return serve(command.settings, command.warnings, terminal)
    }
    terminal.tell(usageText(command.faults))
    return EXIT.wrong
  },
}
