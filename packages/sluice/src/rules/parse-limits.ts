// The numbers of a rule: `limit` and its window, or several of them under `limits`, and other ones for some plans.

import {
  type AlgorithmName,
  CONCURRENCY_UNITS_MAX,
  compileLimit,
  LOG_UNITS_MAX,
  SLIDING_UNITS_MAX,
  TOO_LARGE,
  WINDOW_US_MAX,
} from '../algorithms/limit.ts'
import { isBucket } from '../algorithms/registry.ts'
import { parseDurationMs } from './duration.ts'
import type { Faults } from './faults.ts'
import { readNumber } from './fields.ts'
import type { RuleLimit } from './rule.ts'

type Fields = Readonly<Record<string, unknown>>

const LIMIT_NAME = /^[a-z0-9_.-]{1,32}$/
const LIMITS_MAX = 16
const UNITS_MAX = 1_000_000_000_000
const OWN_FIELDS = ['limit', 'window_seconds', 'window', 'burst', 'limits'] as const

/** Empty: unlimited. */
export function readLimits(fields: Fields, algorithm: AlgorithmName, faults: Faults): RuleLimit[] {
  const several = fields.limits
  const none = several === undefined || (Array.isArray(several) && several.length === 0)
  if (fields.limit === 'unlimited') return []
  if (none && fields.limit === undefined && isCanonicalUnlimited(fields)) return []
  if (none)
    return [readLimit({ name: 'default', ...pick(fields) }, algorithm, faults)].filter((limit) => limit !== undefined)
  if (!Array.isArray(several) || several.length > LIMITS_MAX) {
    faults.add('limits', several, `give a list of at most ${LIMITS_MAX} limits`)
    return []
  }
  for (const name of ['limit', 'window_seconds', 'window', 'burst']) {
    if (fields[name] !== undefined)
      faults.add(name, fields[name], 'remove it or put it inside "limits": both are given')
  }
  const limits = several.map((item, index) => readNamed(item, algorithm, faults.at(`limits[${index}]`)))
  const names = limits.map((limit) => limit?.name)
  names.forEach((name, index) => {
    if (names.indexOf(name) < index) faults.add(`limits[${index}].name`, name, 'choose another: names are unique')
  })
  return limits.filter((limit) => limit !== undefined)
}

/** `limits: []` with nothing else is what an unlimited rule looks like once parsed. */
function isCanonicalUnlimited(fields: Fields): boolean {
  return Array.isArray(fields.limits) && OWN_FIELDS.every((name) => name === 'limits' || fields[name] === undefined)
}

function readNamed(item: unknown, algorithm: AlgorithmName, faults: Faults): RuleLimit | undefined {
  if (typeof item !== 'object' || item === null)
    return faults.add('', item, 'give an object with limit and window_seconds')
  for (const name of Object.keys(item)) {
    const known = name === 'name' || (name !== 'limits' && OWN_FIELDS.some((field) => field === name))
    if (!known) faults.add(name, (item as Fields)[name], 'unknown field; use name, limit, window_seconds and burst')
  }
  return readLimit(item as Fields, algorithm, faults)
}

function readLimit(fields: Fields, algorithm: AlgorithmName, faults: Faults): RuleLimit | undefined {
  const before = faults.list.length
  const windowSeconds = readWindow(fields, faults) ?? 1
  const { max, why } = unitsMax(algorithm)
  const limit = readNumber(fields, 'limit', { min: 0, max: UNITS_MAX }, faults)
  if (fields.limit === undefined) faults.add('limit', undefined, 'give the number of units per window, or "unlimited"')
  else if (limit !== undefined && limit > max) faults.add('limit', limit, `give at most ${max}: ${why}`)
  const burst = readBurst(fields, algorithm, faults)
  const name = fields.name ?? nameOf(windowSeconds)
  if (typeof name !== 'string' || !LIMIT_NAME.test(name)) {
    faults.add('name', name, 'give 1 to 32 characters of a-z, 0-9, "_", "." and "-"')
  }
  if (faults.list.length > before || limit === undefined) return undefined
  const found = { name: String(name), limit, window_seconds: windowSeconds, ...(burst === undefined ? {} : { burst }) }
  return isExact(found, algorithm) ? found : faults.add('limit', limit, TOO_LARGE)
}

function unitsMax(algorithm: AlgorithmName): { max: number; why: string } {
  if (algorithm === 'sliding_window_log') {
    return { max: LOG_UNITS_MAX, why: 'the log keeps an entry per request; use sliding_window above that' }
  }
  if (algorithm === 'concurrency') return { max: CONCURRENCY_UNITS_MAX, why: 'permits are kept one by one' }
  if (algorithm === 'sliding_window') return { max: SLIDING_UNITS_MAX, why: 'use token_bucket above that' }
  return { max: UNITS_MAX, why: '' }
}

function readBurst(fields: Fields, algorithm: AlgorithmName, faults: Faults): number | undefined {
  if (fields.burst === undefined) return undefined
  if (isBucket(algorithm)) return readNumber(fields, 'burst', { min: 1, max: UNITS_MAX }, faults)
  return faults.add('burst', fields.burst, `remove it: ${algorithm} has no burst; token_bucket and leaky_bucket do`)
}

function readWindow(fields: Fields, faults: Faults): number | undefined {
  const { window, window_seconds: seconds } = fields
  if (window !== undefined && seconds !== undefined)
    return faults.add('window', window, 'remove it or "window_seconds"')
  if (window !== undefined) {
    const ms = typeof window === 'string' ? parseDurationMs(window) : undefined
    return ms === undefined
      ? faults.add('window', window, 'give a duration such as "500ms", "30s", "1m" or "1d"')
      : ms / 1000
  }
  if (seconds === undefined) return faults.add('window_seconds', undefined, 'give the length of the window in seconds')
  const windowUs = typeof seconds === 'number' ? Math.round(seconds * 1e6) : Number.NaN
  if (windowUs >= 1000 && windowUs <= WINDOW_US_MAX && windowUs % 1000 === 0) return windowUs / 1e6
  return faults.add('window_seconds', seconds, 'give seconds from 0.001 to 31622400 (366 days), in whole milliseconds')
}

function isExact({ name, limit, window_seconds, burst }: RuleLimit, algorithm: AlgorithmName): boolean {
  try {
    compileLimit({
      id: name,
      algorithm,
      units: limit,
      windowUs: Math.round(window_seconds * 1e6),
      ...(burst ? { burst } : {}),
    })
    return true
  } catch {
    return false // compileLimit throws for one reason only
  }
}

/** A limit without a name is called by its window: 1s, 1m, 250ms. */
function nameOf(windowSeconds: number): string {
  const units = { d: 86_400, h: 3600, m: 60, s: 1 }
  for (const [unit, seconds] of Object.entries(units)) {
    if (windowSeconds % seconds === 0) return `${windowSeconds / seconds}${unit}`
  }
  return `${Math.round(windowSeconds * 1000)}ms`
}

/** Limits for some plans; what an entry does not say is as in the rule. */
export function readByPlan(fields: Fields, algorithm: AlgorithmName, faults: Faults): Record<string, RuleLimit[]> {
  const { by_plan: byPlan } = fields
  if (byPlan === undefined) return {}
  const plans: Record<string, RuleLimit[]> = {}
  if (typeof byPlan !== 'object' || byPlan === null || Array.isArray(byPlan)) {
    faults.add('by_plan', byPlan, 'give an object of plan: { limit, burst, … }')
    return plans
  }
  for (const [plan, given] of Object.entries(byPlan)) {
    const inside = faults.at(`by_plan.${plan}`)
    if (Array.isArray(given)) plans[plan] = readLimits({ limits: given }, algorithm, inside)
    else if (given === 'unlimited') plans[plan] = []
    else if (typeof given === 'object' && given !== null)
      plans[plan] = readPlan(given as Fields, fields, algorithm, inside)
    else inside.add('', given, 'give { limit, burst, … }, a list of limits, or "unlimited"')
  }
  return plans
}

function readPlan(given: Fields, rule: Fields, algorithm: AlgorithmName, faults: Faults): RuleLimit[] {
  for (const name of Object.keys(given)) {
    if (!OWN_FIELDS.some((field) => field === name)) faults.add(name, given[name], `use only ${OWN_FIELDS.join(', ')}`)
  }
  if (given.limits !== undefined) return readLimits(given, algorithm, faults)
  const base = rule.limits === undefined ? pick(rule) : onlyLimit(rule.limits)
  // A burst of the rule belongs to the rule's limit: with another limit, the burst is that limit unless it is given.
  const inherited = given.limit === undefined ? base : { ...base, burst: undefined }
  const window = given.window ?? given.window_seconds
  const timed = window === undefined ? inherited : { ...inherited, window: undefined, window_seconds: undefined }
  return readLimits({ ...timed, ...given }, algorithm, faults)
}

/** The rule's one limit, for a plan that changes only part of it. */
function onlyLimit(limits: unknown): Fields {
  return Array.isArray(limits) && limits.length === 1 ? pick(limits[0] as Fields) : {}
}

function pick(fields: Fields): Fields {
  return { limit: fields.limit, window_seconds: fields.window_seconds, window: fields.window, burst: fields.burst }
}
