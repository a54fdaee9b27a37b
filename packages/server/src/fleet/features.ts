// Everything that this version understands, for the reports of nodes. Each list is derived where its fact lives.

import { RULE_FEATURES } from 'sluice'
import { ROLE_FEATURES } from '../access/token-table.ts'
import { migrationNames } from '../db/migrate.ts'
import { BYPASS_FEATURES } from '../exceptions/bypass-table.ts'
import { OVERRIDE_FEATURES } from '../exceptions/override.ts'
import { SIGNAL_FEATURES } from '../exceptions/signal-table.ts'
import { FACTOR_FEATURES } from '../incident/factor-table.ts'
import { FREEZE_FEATURES } from '../incident/incident-table.ts'
import { KILL_FEATURES } from '../kill-switch/kill-table.ts'
import { ROLLOUT_FEATURES } from '../rollouts/step.ts'

export const FEATURES: readonly string[] = [
  ...RULE_FEATURES,
  ...OVERRIDE_FEATURES,
  ...BYPASS_FEATURES,
  ...SIGNAL_FEATURES,
  ...FACTOR_FEATURES,
  ...FREEZE_FEATURES,
  ...KILL_FEATURES,
  ...ROLLOUT_FEATURES,
  ...ROLE_FEATURES,
  ...migrationNames().map((name) => `migration.${name}`),
]
