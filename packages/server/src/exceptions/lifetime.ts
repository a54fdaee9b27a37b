// Lifetime of an exception: a duration such as 30s, 15m, 12h or 7d, or a number of seconds.

import { invalidField } from '../problems/problem.ts'
import { durationMs } from '../text/duration.ts'

const SECONDS_MAX = 3660 * 86_400
export const LIFETIME_FIX =
  'give a duration from 1s to 3660d, such as "30s", "15m", "12h" or "7d", or a number of seconds'

/** Undefined if the value is not a lifetime. */
export function lifetimeSeconds(value: unknown): number | undefined {
  const seconds = typeof value === 'string' ? (durationMs(value) ?? Number.NaN) / 1000 : value
  const isGood = typeof seconds === 'number' && Number.isInteger(seconds) && seconds >= 1 && seconds <= SECONDS_MAX
  return isGood ? seconds : undefined
}

/** Throws a problem if the value is not a lifetime. */
export function expiryIn(field: string, value: unknown, nowMs: number): Date {
  const seconds = lifetimeSeconds(value)
  if (seconds === undefined) throw invalidField(field, value, LIFETIME_FIX)
  return new Date(nowMs + seconds * 1000)
}
