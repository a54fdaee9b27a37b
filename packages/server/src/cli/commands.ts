// Table of all commands, the source of dispatch, help, completion and docs/reference/cli.md.

import { APPROVALS_SET } from './approvals.ts'
import { AUDIT_VERIFY } from './audit.ts'
import { AUDIT_LIST } from './audit-list.ts'
import { BYPASS_APPROVE, BYPASS_CREATE, BYPASS_LIST, BYPASS_REVOKE, BYPASS_ROTATE } from './bypass.ts'
import { CHECK } from './check.ts'
import type { Command } from './command.ts'
import { completionCommand } from './completion.ts'
import { DOCTOR } from './doctor.ts'
import { DRILL } from './drill.ts'
import { ENVOY_LINT } from './envoy-lint.ts'
import { EVENTS_QUERY, EVENTS_TAIL, EVENTS_TOP } from './events.ts'
import { EVENTS_CONSUME } from './events-consume.ts'
import { EXPLAIN } from './explain.ts'
import { FLEET } from './fleet.ts'
import { GATEWAY } from './gateway.ts'
import { GRPC_CHECK, GRPC_HEALTH, GRPC_LIST } from './grpc.ts'
import { HOT_KEYS } from './hot-keys.ts'
import { INCIDENT_APPROVE, INCIDENT_FACTOR, INCIDENT_FREEZE, INCIDENT_STATUS, INCIDENT_UNFREEZE } from './incident.ts'
import { KILL_SWITCH_DISABLE, KILL_SWITCH_ENABLE, KILL_SWITCH_STATUS } from './kill-switch.ts'
import { OVERRIDES_APPROVE, OVERRIDES_LIST, OVERRIDES_REMOVE, OVERRIDES_SET } from './overrides.ts'
import { RESET } from './reset.ts'
import { RULES_ROLLOUT } from './rollout.ts'
import { RULES_APPLY, RULES_PLAN } from './rules-apply.ts'
import { RULES_LINT } from './rules-lint.ts'
import { RULES_APPROVE, RULES_PROPOSE, RULES_REJECT } from './rules-propose.ts'
import { RULES_EXPORT, RULES_LIST, RULES_SHOW } from './rules-read.ts'
import { RULES_SIMULATE } from './rules-simulate.ts'
import { RULES_DIFF, RULES_HISTORY, RULES_ROLLBACK } from './rules-versions.ts'
import { SERVE } from './serve.ts'
import { SIGNALS_LIST, SIGNALS_REMOVE, SIGNALS_SEND } from './signals.ts'
import { TOKEN_APPROVE, TOKEN_CREATE, TOKEN_LIST, TOKEN_REVOKE } from './token.ts'
import { VIOLATIONS } from './violations.ts'

export const COMMANDS: readonly Command[] = [
  SERVE,
  GATEWAY,
  CHECK,
  EXPLAIN,
  GRPC_LIST,
  GRPC_CHECK,
  GRPC_HEALTH,
  RULES_LINT,
  RULES_SIMULATE,
  RULES_PLAN,
  RULES_APPLY,
  RULES_PROPOSE,
  RULES_APPROVE,
  RULES_REJECT,
  RULES_ROLLOUT,
  RULES_LIST,
  RULES_SHOW,
  RULES_DIFF,
  RULES_HISTORY,
  RULES_ROLLBACK,
  RULES_EXPORT,
  KILL_SWITCH_STATUS,
  KILL_SWITCH_DISABLE,
  KILL_SWITCH_ENABLE,
  OVERRIDES_LIST,
  OVERRIDES_SET,
  OVERRIDES_REMOVE,
  OVERRIDES_APPROVE,
  BYPASS_LIST,
  BYPASS_CREATE,
  BYPASS_ROTATE,
  BYPASS_REVOKE,
  BYPASS_APPROVE,
  SIGNALS_LIST,
  SIGNALS_SEND,
  SIGNALS_REMOVE,
  INCIDENT_STATUS,
  INCIDENT_FREEZE,
  INCIDENT_UNFREEZE,
  INCIDENT_FACTOR,
  INCIDENT_APPROVE,
  RESET,
  VIOLATIONS,
  HOT_KEYS,
  FLEET,
  TOKEN_CREATE,
  TOKEN_APPROVE,
  TOKEN_LIST,
  TOKEN_REVOKE,
  APPROVALS_SET,
  AUDIT_LIST,
  AUDIT_VERIFY,
  EVENTS_TAIL,
  EVENTS_TOP,
  EVENTS_QUERY,
  EVENTS_CONSUME,
  ENVOY_LINT,
  DOCTOR,
  DRILL,
  completionCommand(() => COMMANDS),
]

export function commandNamed(name: string): Command | undefined {
  return COMMANDS.find((command) => command.name === name)
}
