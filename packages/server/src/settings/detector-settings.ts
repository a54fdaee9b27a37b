// Settings of the built-in detectors of abuse.

import { durationMs } from '../text/duration.ts'
import type { Setting } from './setting.ts'
import type { Settings } from './settings.ts'

/** More than `count` in `windowMs`. */
type Threshold = { readonly count: number; readonly windowMs: number }

export type DetectorSettings = {
  /** Undefined: off. */
  readonly detectRefusals: Threshold | undefined
  readonly detectKeys: Threshold | undefined
  readonly detectTtlMs: number
}

const COUNT_MAX = 1_000_000
const WINDOW_MS_MAX = 3_600_000
const TTL_MS_MAX = 30 * 86_400_000
const THRESHOLD_FIX = 'give a number and a duration, such as 1000/1m: up to 1000000 in 1s to 1h'

export const DETECTOR_SETTINGS: { readonly [K in keyof DetectorSettings]: Setting<Settings[K]> } = {
  detectRefusals: {
    flag: 'detect-refusals',
    env: 'SLUICE_DETECT_REFUSALS',
    value: '<number>/<duration>',
    help: 'Send the signal many_refusals for a key with more refusals than this in one process.',
    fallback: () => undefined,
    shownFallback: 'off',
    read: readThreshold,
    fix: THRESHOLD_FIX,
    excludes: 'rules',
  },
  detectKeys: {
    flag: 'detect-keys',
    env: 'SLUICE_DETECT_KEYS',
    value: '<number>/<duration>',
    help: 'Send the signal many_keys for an address with more distinct users or API keys than this in one process.',
    fallback: () => undefined,
    shownFallback: 'off',
    read: readThreshold,
    fix: THRESHOLD_FIX,
    excludes: 'rules',
  },
  detectTtlMs: {
    flag: 'detect-ttl',
    env: 'SLUICE_DETECT_TTL',
    value: '<duration>',
    help: 'How long a signal of a detector lasts.',
    fallback: () => 600_000,
    shownFallback: '10m',
    read: (text) => within(durationMs(text), TTL_MS_MAX),
    fix: 'give a duration such as 10m, up to 30d',
  },
}

function readThreshold(text: string): Threshold | undefined {
  const [, digits = '', duration = ''] = /^(\d{1,7})\/(\w+)$/.exec(text) ?? []
  const count = within(Number(digits), COUNT_MAX)
  const windowMs = within(durationMs(duration), WINDOW_MS_MAX)
  return count === undefined || count === 0 || windowMs === undefined ? undefined : { count, windowMs }
}

function within(value: number | undefined, max: number): number | undefined {
  return value === undefined || value > max ? undefined : value
}
