// Settings of rule changes: approvals, and the guard of direct edits.

import { durationMs } from '../text/duration.ts'
import { readInteger, type Setting } from './setting.ts'
import type { Settings } from './settings.ts'

export type RolloutSettings = {
  /** Undefined: the number in the database applies. */
  readonly approvals: number | undefined
  /** 0: direct edits are not guarded. */
  readonly guardEditsMs: number
}

const APPROVALS_MAX = 10
const GUARD_MS_MAX = 86_400_000

export const ROLLOUT_SETTINGS: { readonly [K in keyof RolloutSettings]: Setting<Settings[K]> } = {
  approvals: {
    flag: 'approvals',
    env: 'SLUICE_APPROVALS',
    value: '<number>',
    help:
      'Approvals that a rule change needs, for all nodes of the database. A node can raise the number at its start; ' +
      'only sluice approvals set lowers it.',
    fallback: () => undefined,
    shownFallback: 'the number in the database, initially 0',
    read: (text) => readInteger(text, 0, APPROVALS_MAX),
    fix: `give a whole number from 0 to ${APPROVALS_MAX}`,
    excludes: 'rules',
  },
  guardEditsMs: {
    flag: 'guard-edits',
    env: 'SLUICE_GUARD_EDITS',
    value: '<duration>',
    help: 'How long the guard watches a direct edit of a rule, and reverts it if it refuses too much. 0: never.',
    fallback: () => 300_000,
    shownFallback: '5m',
    read: readGuardMs,
    fix: 'give a whole number and a unit, s, m or h, such as 5m: up to 24h; or 0',
  },
}

function readGuardMs(text: string): number | undefined {
  const ms = text === '0' ? 0 : durationMs(text)
  return ms === undefined || ms > GUARD_MS_MAX ? undefined : ms
}
