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
import { parseDurationMs, windowFix } from './duration.ts'
import { Faults } from './faults.ts'
import { hasControl, isFields, readNumber } from './fields.ts'
import type { Rule, RuleLimit } from './rule.ts'

type Fields = Readonly<Record<string, unknown>>

const LIMIT_NAME = /^[a-z0-9_.-]{1,32}$/
const LIMITS_MAX = 16
const UNITS_MAX = 1_000_000_000_000
const OWN_FIELDS = ['limit', 'window_seconds', 'window', 'burst', 'limits'] as const

export function readNumbers(
  fields: Fields,
  algorithm: AlgorithmName,
  faults: Faults,
): Pick<Rule, 'limits' | 'by_plan'> {
  const before = faults.list.length
  const limits = readLimits(fields, algorithm, faults)
  return { limits, by_plan: readByPlan(fields, algorithm, faults, faults.list.length > before) }
}

/** Empty: unlimited. */
function readLimits(fields: Fields, algorithm: AlgorithmName, faults: Faults): RuleLimit[] {
  const several = fields.limits
  const none = several === undefined || (Array.isArray(several) && several.length === 0)
  if (fields.limit === 'unlimited') return readUnlimited(fields, none, faults)
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
    if (name !== undefined && names.indexOf(name) < index)
      faults.add(`limits[${index}].name`, name, 'choose another: names are unique')
  })
  return limits.filter((limit) => limit !== undefined)
}

/** The window of an unlimited rule may be meant for its plans; other numbers would do nothing. */
function readUnlimited(fields: Fields, none: boolean, faults: Faults): RuleLimit[] {
  const fix = 'remove it: with limit "unlimited" there is none'
  if (fields.burst !== undefined) faults.add('burst', fields.burst, fix)
  if (!none) faults.add('limits', fields.limits, fix)
  return []
}

/** `limits: []` with nothing else is what an unlimited rule looks like once parsed. */
function isCanonicalUnlimited(fields: Fields): boolean {
  return Array.isArray(fields.limits) && OWN_FIELDS.every((name) => name === 'limits' || fields[name] === undefined)
}

function readNamed(item: unknown, algorithm: AlgorithmName, faults: Faults): RuleLimit | undefined {
  if (!isFields(item)) return faults.add('', item, 'give an object with limit and window_seconds')
  for (const name of Object.keys(item)) {
    const known = name === 'name' || (name !== 'limits' && OWN_FIELDS.some((field) => field === name))
    if (!known) faults.add(name, item[name], 'unknown field; use name, limit, window_seconds and burst')
  }
  return readLimit(item, algorithm, faults)
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
    const windowMs = typeof window === 'string' ? parseDurationMs(window) : undefined
    if (windowMs !== undefined && isWindow(windowMs * 1000)) return windowMs / 1000
    return faults.add('window', window, windowFix(window))
  }
  if (seconds === undefined) return faults.add('window_seconds', undefined, 'give the length of the window in seconds')
  const windowUs = typeof seconds === 'number' ? Math.round(seconds * 1e6) : Number.NaN
  if (isWindow(windowUs)) return windowUs / 1e6
  return faults.add('window_seconds', seconds, 'give seconds from 0.001 to 31622400 (366 days), in whole milliseconds')
}

function isWindow(us: number): boolean {
  return us >= 1000 && us <= WINDOW_US_MAX && us % 1000 === 0
}

/** Each part of a split bucket has to hold a request, and to count as exactly as the whole. */
export function checkShards(rule: Rule, faults: Faults): void {
  const { shards, algorithm, consistency, limits, by_plan, cost } = rule
  if (shards === 1) return
  if (algorithm === 'concurrency') {
    faults.add('shards', shards, 'use 1: permits are kept in one bucket; add a fact to "scope" instead')
    return
  }
  if (consistency === 'approximate' || consistency === 'local') {
    faults.add('shards', shards, `use 1: with ${consistency} there is no load on Redis to be split`)
    return
  }
  const split = [...limits, ...Object.values(by_plan).flat()].filter(({ limit }) => limit > 0)
  const price = typeof cost === 'number' ? cost : 1
  const fits = split.map(({ limit, burst = limit }) => Math.min(limit, Math.floor(burst / price)))
  const most = Math.max(1, Math.min(...fits))
  if (shards > most) {
    faults.add('shards', shards, `use at most ${most}: a part of each limit and burst must be worth a request`)
  } else if (!split.every((limit) => isExact(limit, algorithm, shards))) {
    faults.add('shards', shards, 'choose a number that divides the limit: its parts are too large for exact arithmetic')
  }
}

function isExact({ name, limit, window_seconds, burst }: RuleLimit, algorithm: AlgorithmName, shards = 1): boolean {
  try {
    compileLimit({
      id: name,
      algorithm,
      units: limit,
      windowUs: Math.round(window_seconds * 1e6),
      shards,
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
function readByPlan(
  fields: Fields,
  algorithm: AlgorithmName,
  faults: Faults,
  ruleIsWrong: boolean,
): Record<string, RuleLimit[]> {
  const { by_plan: byPlan = {} } = fields
  if (!isFields(byPlan)) {
    faults.add('by_plan', byPlan, 'give an object of plan: { limit, burst, … }')
    return {}
  }
  const plans = Object.entries(byPlan).map(([plan, given]): [string, RuleLimit[]] => {
    const inside = faults.at(`by_plan.${plan}`)
    if (plan === '' || hasControl(plan)) inside.add('', given, 'give the plan a name without control characters')
    if (Array.isArray(given)) return [plan, readLimits({ limits: given }, algorithm, inside)]
    if (isFields(given)) return [plan, readPlan(given, fields, algorithm, inside, ruleIsWrong)]
    if (given !== 'unlimited') inside.add('', given, 'give { limit, burst, … }, a list of limits, or "unlimited"')
    return [plan, []]
  })
  return Object.fromEntries(plans) // not by assignment, in which a plan called `__proto__` would be lost
}

function readPlan(
  given: Fields,
  rule: Fields,
  algorithm: AlgorithmName,
  faults: Faults,
  ruleIsWrong: boolean,
): RuleLimit[] {
  for (const name of Object.keys(given)) {
    if (!OWN_FIELDS.some((field) => field === name)) faults.add(name, given[name], `use only ${OWN_FIELDS.join(', ')}`)
  }
  if (given.limits !== undefined) return readLimits(given, algorithm, faults)
  const base = rule.limits === undefined ? pick(rule) : onlyLimit(rule.limits)
  // A burst of the rule belongs to the rule's limit: with another limit, the burst is that limit unless it is given.
  const inherited = given.limit === undefined ? base : { ...base, burst: undefined }
  const window = given.window ?? given.window_seconds
  const timed = window === undefined ? inherited : { ...inherited, window: undefined, window_seconds: undefined }
  const found = new Faults()
  const limits = readLimits({ ...timed, ...given }, algorithm, found)
  for (const { field, value, fix } of found.list) {
    // What is wrong with the rule's own numbers has been said where they stand.
    if (given[field] !== undefined || !ruleIsWrong) faults.add(field, value, fix)
  }
  return limits
}

/** The rule's one limit, for a plan that changes only part of it. */
function onlyLimit(limits: unknown): Fields {
  return Array.isArray(limits) && limits.length === 1 && isFields(limits[0]) ? pick(limits[0]) : {}
}

function pick(fields: Fields): Fields {
  return { limit: fields.limit, window_seconds: fields.window_seconds, window: fields.window, burst: fields.burst }
}
