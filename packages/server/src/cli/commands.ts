// Every command, one row each. Dispatch, help, completion and docs/reference/cli.md are made of this table.

import type { Command } from './command.ts'
import { completionCommand } from './completion.ts'
import { DRILL } from './drill.ts'
import { GATEWAY } from './gateway.ts'
import { RULES_LINT } from './rules-lint.ts'
import { SERVE } from './serve.ts'

export const COMMANDS: readonly Command[] = [SERVE, GATEWAY, RULES_LINT, DRILL, completionCommand(() => COMMANDS)]

export function commandNamed(name: string): Command | undefined {
  return COMMANDS.find((command) => command.name === name)
}
