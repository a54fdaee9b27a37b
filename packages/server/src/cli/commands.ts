// Every command, one row each. Dispatch, help, completion and docs/reference/cli.md are made of this table.

import { AUDIT_VERIFY } from './audit.ts'
import { CHECK } from './check.ts'
import type { Command } from './command.ts'
import { completionCommand } from './completion.ts'
import { DOCTOR } from './doctor.ts'
import { DRILL } from './drill.ts'
import { EXPLAIN } from './explain.ts'
import { GATEWAY } from './gateway.ts'
import { RULES_APPLY, RULES_PLAN } from './rules-apply.ts'
import { RULES_LINT } from './rules-lint.ts'
import { RULES_EXPORT, RULES_LIST, RULES_SHOW } from './rules-read.ts'
import { RULES_DIFF, RULES_HISTORY, RULES_ROLLBACK } from './rules-versions.ts'
import { SERVE } from './serve.ts'
import { TOKEN_CREATE, TOKEN_LIST, TOKEN_REVOKE } from './token.ts'

export const COMMANDS: readonly Command[] = [
  SERVE,
  GATEWAY,
  CHECK,
  EXPLAIN,
  RULES_LINT,
  RULES_PLAN,
  RULES_APPLY,
  RULES_LIST,
  RULES_SHOW,
  RULES_DIFF,
  RULES_HISTORY,
  RULES_ROLLBACK,
  RULES_EXPORT,
  TOKEN_CREATE,
  TOKEN_LIST,
  TOKEN_REVOKE,
  AUDIT_VERIFY,
  DOCTOR,
  DRILL,
  completionCommand(() => COMMANDS),
]

export function commandNamed(name: string): Command | undefined {
  return COMMANDS.find((command) => command.name === name)
}
