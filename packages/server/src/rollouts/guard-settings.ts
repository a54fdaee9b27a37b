// Settings of the guard, per proposal: thresholds, and what each metric does when it fails. An unknown metric or name
// is a mistake, never ignored.

import { suggestion } from 'sluice'
import { durationMs, durationText } from '../text/duration.ts'

/** revert rolls the change back; pause stops at the step and waits for a person. */
export type Action = 'revert' | 'pause'

export type GuardSettings = {
  /** Length of a window. */
  readonly windowMs: number
  /** A metric fails when `failing` of the last `of` windows do. */
  readonly failing: number
  readonly of: number
  readonly newlyDenied: {
    readonly on: Action
    /** Percentage points of paired requests that only the new version refuses. */
    readonly points: number
    readonly minPairs: number
    /** Fails at once, in one window. */
    readonly hardPoints: number
    readonly hardMinPairs: number
    /** Distinct newly denied keys. */
    readonly minKeys: number
    /** Per cent of the pairs that one key counts for, at most. */
    readonly keyPercent: number
  }
  /** Decisions that `on_fail` made because the store did not answer. */
  readonly errors: { readonly on: Action; readonly percent: number; readonly minDecisions: number }
  /** By how much the p99 of decisions under the candidate exceeds that under the current version. */
  readonly p99: { readonly on: Action; readonly ms: number; readonly minDecisions: number }
}

export type Guard = GuardSettings | 'off'

export const GUARD_DEFAULTS: GuardSettings = {
  windowMs: 10_000,
  failing: 2,
  of: 3,
  newlyDenied: {
    on: 'revert',
    points: 5,
    minPairs: 200,
    hardPoints: 50,
    hardMinPairs: 100,
    minKeys: 20,
    keyPercent: 5,
  },
  errors: { on: 'pause', percent: 5, minDecisions: 200 },
  p99: { on: 'pause', ms: 250, minDecisions: 200 },
}

export type GuardMistake = { readonly field: string; readonly value: unknown; readonly fix: string }

type Plain = Readonly<Record<string, unknown>>
type Range = { readonly min: number; readonly max: number; readonly whole?: true }

const NUMBERS: Readonly<Record<string, Readonly<Record<string, Range>>>> = {
  newly_denied: {
    points: { min: 0.1, max: 100 },
    min_pairs: { min: 1, max: 1_000_000, whole: true },
    hard_points: { min: 0.1, max: 100 },
    hard_min_pairs: { min: 1, max: 1_000_000, whole: true },
    min_keys: { min: 1, max: 10_000, whole: true },
    key_percent: { min: 0.1, max: 100 },
  },
  errors: { percent: { min: 0.01, max: 100 }, min_decisions: { min: 1, max: 1_000_000, whole: true } },
  p99: { ms: { min: 0.001, max: 60_000 }, min_decisions: { min: 1, max: 1_000_000, whole: true } },
}
const TOP: readonly string[] = ['window', 'failing', 'of', ...Object.keys(NUMBERS)]
const WINDOW_MS = { min: 1000, max: 300_000 }

/** Returns the guard with defaults, or every mistake. */
export function parseGuard(value: unknown): Guard | { readonly mistakes: readonly GuardMistake[] } {
  if (value === undefined) return GUARD_DEFAULTS
  if (value === 'off') return 'off'
  if (!isObject(value))
    return { mistakes: [{ field: 'guard', value, fix: 'give "off", or an object with thresholds' }] }
  const mistakes: GuardMistake[] = []
  unknownNames(value, 'guard', TOP, mistakes)
  const plain = plainGuard(GUARD_DEFAULTS) as Readonly<Record<string, Plain>>
  const parts = Object.keys(NUMBERS).map((name) => [name, readMetric(value[name], name, plain[name] ?? {}, mistakes)])
  const merged = { ...plain, ...Object.fromEntries(parts) } as Readonly<Record<string, Plain>>
  const windowMs = value.window === undefined ? GUARD_DEFAULTS.windowMs : windowIn(value.window, mistakes)
  const count = (name: 'failing' | 'of') => wholeIn(value[name] ?? GUARD_DEFAULTS[name], `guard.${name}`, mistakes)
  const [failing, of] = [count('failing'), count('of')]
  if (failing > of) mistakes.push({ field: 'guard.failing', value: failing, fix: 'give at most the value of `of`' })
  return mistakes.length > 0 ? { mistakes } : settingsOf(merged, windowMs, failing, of)
}

/** With the names of the API. */
export function plainGuard(guard: Guard): unknown {
  if (guard === 'off') return 'off'
  const { windowMs, failing, of, newlyDenied: denied, errors, p99 } = guard
  return {
    window: durationText(windowMs),
    failing,
    of,
    newly_denied: {
      on: denied.on,
      points: denied.points,
      min_pairs: denied.minPairs,
      hard_points: denied.hardPoints,
      hard_min_pairs: denied.hardMinPairs,
      min_keys: denied.minKeys,
      key_percent: denied.keyPercent,
    },
    errors: { on: errors.on, percent: errors.percent, min_decisions: errors.minDecisions },
    p99: { on: p99.on, ms: p99.ms, min_decisions: p99.minDecisions },
  }
}

function settingsOf(merged: Readonly<Record<string, Plain>>, windowMs: number, failing: number, of: number): Guard {
  const { newly_denied: denied = {}, errors = {}, p99 = {} } = merged
  const action = (metric: Plain) => metric.on as Action // checked by readMetric
  return {
    windowMs,
    failing,
    of,
    newlyDenied: {
      on: action(denied),
      points: Number(denied.points),
      minPairs: Number(denied.min_pairs),
      hardPoints: Number(denied.hard_points),
      hardMinPairs: Number(denied.hard_min_pairs),
      minKeys: Number(denied.min_keys),
      keyPercent: Number(denied.key_percent),
    },
    errors: { on: action(errors), percent: Number(errors.percent), minDecisions: Number(errors.min_decisions) },
    p99: { on: action(p99), ms: Number(p99.ms), minDecisions: Number(p99.min_decisions) },
  }
}

function readMetric(value: unknown, name: string, defaults: Plain, mistakes: GuardMistake[]): Plain {
  if (value === undefined) return defaults
  const field = `guard.${name}`
  if (!isObject(value)) {
    mistakes.push({ field, value, fix: 'give an object with thresholds' })
    return defaults
  }
  const ranges = NUMBERS[name] ?? {}
  unknownNames(value, field, ['on', ...Object.keys(ranges)], mistakes)
  if (value.on !== undefined && value.on !== 'revert' && value.on !== 'pause')
    mistakes.push({ field: `${field}.on`, value: value.on, fix: 'use revert or pause' })
  for (const [key, { min, max, whole }] of Object.entries(ranges)) {
    const given = value[key]
    if (given === undefined) continue
    const fits = typeof given === 'number' && given >= min && given <= max && (!whole || Number.isInteger(given))
    const kind = whole ? 'a whole number' : 'a number'
    if (!fits) mistakes.push({ field: `${field}.${key}`, value: given, fix: `give ${kind} from ${min} to ${max}` })
  }
  return { ...defaults, ...value }
}

function unknownNames(value: Plain, at: string, known: readonly string[], mistakes: GuardMistake[]): void {
  for (const name of Object.keys(value)) {
    if (known.includes(name)) continue
    const hint = suggestion(name, known) || `; use one of ${known.join(', ')}`
    mistakes.push({ field: `${at}.${name}`, value: value[name], fix: `unknown field${hint}` })
  }
}

function windowIn(value: unknown, mistakes: GuardMistake[]): number {
  const ms = typeof value === 'string' ? durationMs(value) : undefined
  if (ms !== undefined && ms >= WINDOW_MS.min && ms <= WINDOW_MS.max) return ms
  mistakes.push({ field: 'guard.window', value, fix: 'give a time from 1s to 5m, such as 10s' })
  return GUARD_DEFAULTS.windowMs
}

function wholeIn(value: unknown, field: string, mistakes: GuardMistake[]): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= 100) return value
  mistakes.push({ field, value, fix: 'give a whole number from 1 to 100' })
  return 1
}

function isObject(value: unknown): value is Plain {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
