// `sluice serve`: runs the service. Loaded only when needed, so that other commands start faster.

import { beginOpening } from '../db/open-database.ts'
import { GATEWAY_SETTINGS } from '../gateway/settings.ts'
import { EXIT } from '../process/exit-codes.ts'
import { readCommand } from '../settings/command-line.ts'
import type { Command } from './command.ts'
import { usageText } from './help.ts'
import { SETTING_FLAGS } from './setting-flags.ts'

export const SERVE: Command = {
  name: 'serve',
  summary: 'Runs the service; the default command.',
  positionals: [],
  flags: SETTING_FLAGS,
  examples: [
    { does: 'on this machine, with a memory store', line: 'sluice serve --rules rules.yaml' },
    { does: 'a node of a fleet', line: 'sluice serve --host 0.0.0.0 --redis redis://10.0.0.5:6379' },
  ],
  run: async (args, terminal) => {
    const command = readCommand(args, terminal.env, { gateway: GATEWAY_SETTINGS })
    if (command.kind === 'serve') {
      beginOpening(command.settings)
      const { serve } = await import('../process/serve.ts')
      return serve(command, terminal)
    }
    terminal.tell(usageText(command.fieldErrors))
    return EXIT.invalid
  },
}
