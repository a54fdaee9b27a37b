// Table of all commands, the source of dispatch, help, completion and docs/reference/cli.md.

import { AUDIT_VERIFY } from './audit.ts'
import { AUDIT_LIST } from './audit-list.ts'
import { CHECK } from './check.ts'
import type { Command } from './command.ts'
import { completionCommand } from './completion.ts'
import { DOCTOR } from './doctor.ts'
import { DRILL } from './drill.ts'
import { EVENTS_QUERY, EVENTS_TAIL, EVENTS_TOP } from './events.ts'
import { EVENTS_CONSUME } from './events-consume.ts'
import { EXPLAIN } from './explain.ts'
import { GATEWAY } from './gateway.ts'
import { HOT_KEYS } from './hot-keys.ts'
import { KILL_SWITCH_DISABLE, KILL_SWITCH_ENABLE, KILL_SWITCH_STATUS } from './kill-switch.ts'
import { RESET } from './reset.ts'
import { RULES_APPLY, RULES_PLAN } from './rules-apply.ts'
import { RULES_LINT } from './rules-lint.ts'
import { RULES_EXPORT, RULES_LIST, RULES_SHOW } from './rules-read.ts'
import { RULES_DIFF, RULES_HISTORY, RULES_ROLLBACK } from './rules-versions.ts'
import { SERVE } from './serve.ts'
import { TOKEN_CREATE, TOKEN_LIST, TOKEN_REVOKE } from './token.ts'
import { VIOLATIONS } from './violations.ts'

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
  KILL_SWITCH_STATUS,
  KILL_SWITCH_DISABLE,
  KILL_SWITCH_ENABLE,
  RESET,
  VIOLATIONS,
  HOT_KEYS,
  TOKEN_CREATE,
  TOKEN_LIST,
  TOKEN_REVOKE,
  AUDIT_LIST,
  AUDIT_VERIFY,
  EVENTS_TAIL,
  EVENTS_TOP,
  EVENTS_QUERY,
  EVENTS_CONSUME,
  DOCTOR,
  DRILL,
  completionCommand(() => COMMANDS),
]

export function commandNamed(name: string): Command | undefined {
  return COMMANDS.find((command) => command.name === name)
}
