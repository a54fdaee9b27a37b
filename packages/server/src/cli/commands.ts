// Every command, one row each. Dispatch, help, completion and docs/reference/cli.md are made of this table.

import { CHECK } from './check.ts'
import type { Command } from './command.ts'
import { completionCommand } from './completion.ts'
import { DOCTOR } from './doctor.ts'
import { DRILL } from './drill.ts'
import { EXPLAIN } from './explain.ts'
import { RULES_LINT } from './rules-lint.ts'
import { SERVE } from './serve.ts'

export const COMMANDS: readonly Command[] = [
  SERVE,
  CHECK,
  EXPLAIN,
  RULES_LINT,
  DOCTOR,
  DRILL,
  completionCommand(() => COMMANDS),
]

export function commandNamed(name: string): Command | undefined {
  return COMMANDS.find((command) => command.name === name)
}
