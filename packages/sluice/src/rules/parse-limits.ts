// Parses the limits of a rule: `limit` and its window, or several under `limits`, and those of `by_plan`.

import {
  CONCURRENCY_UNITS_MAX,
  compileLimit,
  LOG_UNITS_MAX,
  SLIDING_UNITS_MAX,
  TOO_LARGE,
  WINDOW_US_MAX,
} from '../algorithms/limit.ts'
import { ALGORITHMS, type AlgorithmName, hasPermits } from '../algorithms/traits.ts'
import { parseDurationMs, windowFix } from './duration.ts'
import { FieldErrors } from './field-errors.ts'
import { hasControl, isFields, readNumber } from './fields.ts'
import type { Rule, RuleLimit } from './rule.ts'

type Fields = Readonly<Record<string, unknown>>

const LIMIT_NAME = /^[a-z0-9_.-]{1,32}$/
const LIMITS_MAX = 16
const PLANS_MAX = 1000
const UNITS_MAX = 1_000_000_000_000
const OWN_FIELDS = ['limit', 'window_seconds', 'window', 'burst', 'limits'] as const
/** Fields of one of several limits. */
export const LIMIT_FIELDS: readonly string[] = ['name', ...OWN_FIELDS.filter((name) => name !== 'limits')]

export function readNumbers(
  fields: Fields,
  algorithm: AlgorithmName,
  errors: FieldErrors,
): Pick<Rule, 'limits' | 'by_plan'> {
  const before = errors.list.length
  const limits = readLimits(fields, algorithm, errors)
  return { limits, by_plan: readByPlan(fields, algorithm, errors, errors.list.length > before) }
}

/** Empty: unlimited. */
function readLimits(fields: Fields, algorithm: AlgorithmName, errors: FieldErrors): RuleLimit[] {
  const several = fields.limits
  const none = several === undefined || (Array.isArray(several) && several.length === 0)
  if (fields.limit === 'unlimited') return readUnlimited(fields, none, errors)
  if (none && fields.limit === undefined && isCanonicalUnlimited(fields)) return []
  if (none)
    return [readLimit({ name: 'default', ...pick(fields) }, algorithm, errors)].filter((limit) => limit !== undefined)
  if (!Array.isArray(several) || several.length > LIMITS_MAX) {
    errors.add('limits', several, `give a list of at most ${LIMITS_MAX} limits`)
    return []
  }
  for (const name of ['limit', 'window_seconds', 'window', 'burst']) {
    if (fields[name] !== undefined) errors.add(name, fields[name], 'remove it or put it inside "limits": both are set')
  }
  const limits = several.map((item, index) => readNamed(item, algorithm, errors.at(`limits[${index}]`)))
  const names = limits.map((limit) => limit?.name)
  names.forEach((name, index) => {
    if (name !== undefined && names.indexOf(name) < index)
      errors.add(`limits[${index}].name`, name, 'choose another: names must be unique')
  })
  return limits.filter((limit) => limit !== undefined)
}

/** An unlimited rule may have a window for its plans; other numbers would have no effect. */
function readUnlimited(fields: Fields, none: boolean, errors: FieldErrors): RuleLimit[] {
  const fix = 'remove it: with limit "unlimited" it has no effect'
  if (fields.burst !== undefined) errors.add('burst', fields.burst, fix)
  if (!none) errors.add('limits', fields.limits, fix)
  return []
}

/** `limits: []` with nothing else is the canonical form of an unlimited rule. */
function isCanonicalUnlimited(fields: Fields): boolean {
  return Array.isArray(fields.limits) && OWN_FIELDS.every((name) => name === 'limits' || fields[name] === undefined)
}

function readNamed(item: unknown, algorithm: AlgorithmName, errors: FieldErrors): RuleLimit | undefined {
  if (!isFields(item)) return errors.add('', item, 'give an object with limit and window_seconds')
  for (const name of Object.keys(item)) {
    if (!LIMIT_FIELDS.includes(name))
      errors.add(name, item[name], 'unknown field; use name, limit, window_seconds and burst')
  }
  return readLimit(item, algorithm, errors)
}

/** Fix for `10/s`, the spelling of other limiters. */
function rateFix(limit: unknown): string | undefined {
  const [, units, unit = ''] = /^(\d+) *\/ *([a-z]+)$/i.exec(typeof limit === 'string' ? limit : '') ?? []
  const letter = unit.charAt(0).toLowerCase()
  if (units === undefined || !'smhd'.includes(letter)) return undefined
  return `give the number alone, and the time in "window": limit: ${units}, window: 1${letter}`
}

function readLimit(fields: Fields, algorithm: AlgorithmName, errors: FieldErrors): RuleLimit | undefined {
  const before = errors.list.length
  const windowSeconds = readWindow(fields, errors) ?? 1
  const { max, why } = UNITS_MAX_OF[algorithm]
  const rate = rateFix(fields.limit)
  if (rate !== undefined) return errors.add('limit', fields.limit, rate)
  const limit = readNumber(fields, 'limit', { min: 0, max: UNITS_MAX }, errors)
  if (fields.limit === undefined) errors.add('limit', undefined, 'give the number of units per window, or "unlimited"')
  else if (limit !== undefined && limit > max) errors.add('limit', limit, `give at most ${max}: ${why}`)
  const burst = readBurst(fields, algorithm, errors)
  const name = fields.name ?? nameOf(windowSeconds)
  if (typeof name !== 'string' || !LIMIT_NAME.test(name)) {
    errors.add('name', name, 'give 1 to 32 characters of a-z, 0-9, "_", "." and "-"')
  }
  if (errors.list.length > before || limit === undefined) return undefined
  const found = { name: String(name), limit, window_seconds: windowSeconds, ...(burst === undefined ? {} : { burst }) }
  return isExact(found, algorithm) ? found : errors.add('limit', limit, TOO_LARGE)
}

const UNITS_MAX_OF: Readonly<Record<AlgorithmName, { readonly max: number; readonly why: string }>> = {
  token_bucket: { max: UNITS_MAX, why: '' },
  leaky_bucket: { max: UNITS_MAX, why: '' },
  fixed_window: { max: UNITS_MAX, why: '' },
  sliding_window: { max: SLIDING_UNITS_MAX, why: 'use token_bucket above that' },
  sliding_window_log: {
    max: LOG_UNITS_MAX,
    why: 'the log keeps an entry per request; use sliding_window above that',
  },
  concurrency: { max: CONCURRENCY_UNITS_MAX, why: 'each permit is stored separately' },
}

/** Largest limit that a rule with this algorithm can have. */
export function unitsMaxOf(algorithm: AlgorithmName): number {
  return UNITS_MAX_OF[algorithm].max
}

function readBurst(fields: Fields, algorithm: AlgorithmName, errors: FieldErrors): number | undefined {
  if (fields.burst === undefined) return undefined
  if (ALGORITHMS[algorithm].burst) return readNumber(fields, 'burst', { min: 1, max: UNITS_MAX }, errors)
  return errors.add('burst', fields.burst, `remove it: ${algorithm} has no burst; token_bucket and leaky_bucket do`)
}

function readWindow(fields: Fields, errors: FieldErrors): number | undefined {
  const { window, window_seconds: seconds } = fields
  if (window !== undefined && seconds !== undefined)
    return errors.add('window', window, 'remove it or "window_seconds"')
  if (window !== undefined) {
    const windowMs = typeof window === 'string' ? parseDurationMs(window) : undefined
    if (windowMs !== undefined && isWindow(windowMs * 1000)) return windowMs / 1000
    return errors.add('window', window, windowFix(window))
  }
  if (seconds === undefined) return errors.add('window_seconds', undefined, 'give the length of the window in seconds')
  const windowUs = typeof seconds === 'number' ? Math.round(seconds * 1e6) : Number.NaN
  if (isWindow(windowUs)) return windowUs / 1e6
  return errors.add('window_seconds', seconds, 'give seconds from 0.001 to 31622400 (366 days), in whole milliseconds')
}

function isWindow(us: number): boolean {
  return us >= 1000 && us <= WINDOW_US_MAX && us % 1000 === 0
}

/** Each shard must hold at least one request, and count as exactly as the whole limit. */
export function checkShards(rule: Rule, errors: FieldErrors): void {
  const { shards, algorithm, consistency, limits, by_plan, cost } = rule
  if (shards === 1) return
  if (hasPermits(rule)) {
    errors.add('shards', shards, 'use 1: permits are kept in one bucket; add a fact to "scope" instead')
    return
  }
  if (consistency === 'approximate' || consistency === 'local') {
    errors.add('shards', shards, `use 1: with ${consistency} there is no load on Redis to split`)
    return
  }
  const split = [...limits, ...Object.values(by_plan).flat()].filter(({ limit }) => limit > 0)
  const price = typeof cost === 'number' ? cost : 1
  const fits = split.map(({ limit, burst = limit }) => Math.min(limit, Math.floor(burst / price)))
  const most = Math.max(1, Math.min(...fits))
  if (shards > most) {
    errors.add('shards', shards, `use at most ${most}: each shard of the limit and burst must hold a request`)
  } else if (!split.every((limit) => isExact(limit, algorithm, shards))) {
    errors.add(
      'shards',
      shards,
      'choose a number that divides the limit: the shards are too large for exact arithmetic',
    )
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
    return false // compileLimit throws only TOO_LARGE
  }
}

/** Default name of a limit: its window, such as 1s, 1m or 250ms. */
function nameOf(windowSeconds: number): string {
  const units = { d: 86_400, h: 3600, m: 60, s: 1 }
  for (const [unit, seconds] of Object.entries(units)) {
    if (windowSeconds % seconds === 0) return `${windowSeconds / seconds}${unit}`
  }
  return `${Math.round(windowSeconds * 1000)}ms`
}

/** Limits by plan; fields that an entry omits are inherited from the rule. */
function readByPlan(
  fields: Fields,
  algorithm: AlgorithmName,
  errors: FieldErrors,
  ruleIsInvalid: boolean,
): Record<string, RuleLimit[]> {
  const { by_plan: byPlan = {} } = fields
  if (!isFields(byPlan)) {
    errors.add('by_plan', byPlan, 'give an object of plan: { limit, burst, … }')
    return {}
  }
  const given = Object.entries(byPlan)
  if (given.length > PLANS_MAX) {
    errors.add('by_plan', given.length, `give at most ${PLANS_MAX} plans`)
    return {}
  }
  const plans = given.map(([plan, given]): [string, RuleLimit[]] => {
    const inside = errors.at(`by_plan.${plan}`)
    if (plan === '' || hasControl(plan)) inside.add('', given, 'give the plan a name without control characters')
    if (Array.isArray(given)) return [plan, readLimits({ limits: given }, algorithm, inside)]
    if (isFields(given)) return [plan, readPlan(given, fields, algorithm, inside, ruleIsInvalid)]
    if (given !== 'unlimited') inside.add('', given, 'give { limit, burst, … }, a list of limits, or "unlimited"')
    return [plan, []]
  })
  return Object.fromEntries(plans) // assignment would lose a plan called `__proto__`
}

function readPlan(
  given: Fields,
  rule: Fields,
  algorithm: AlgorithmName,
  errors: FieldErrors,
  ruleIsInvalid: boolean,
): RuleLimit[] {
  for (const name of Object.keys(given)) {
    if (!OWN_FIELDS.some((field) => field === name)) errors.add(name, given[name], `use only ${OWN_FIELDS.join(', ')}`)
  }
  if (given.limits !== undefined) return readLimits(given, algorithm, errors)
  const base = rule.limits === undefined ? pick(rule) : onlyLimit(rule.limits)
  // The burst is inherited only together with the limit. With another limit, the default burst is that limit.
  const inherited = given.limit === undefined ? base : { ...base, burst: undefined }
  const window = given.window ?? given.window_seconds
  const timed = window === undefined ? inherited : { ...inherited, window: undefined, window_seconds: undefined }
  const found = new FieldErrors()
  const limits = readLimits({ ...timed, ...given }, algorithm, found)
  for (const { field, value, fix } of found.list) {
    // Errors in the rule's own numbers are already reported there.
    if (given[field] !== undefined || !ruleIsInvalid) errors.add(field, value, fix)
  }
  return limits
}

/** The rule's only limit, from which a plan inherits. */
function onlyLimit(limits: unknown): Fields {
  return Array.isArray(limits) && limits.length === 1 && isFields(limits[0]) ? pick(limits[0]) : {}
}

function pick(fields: Fields): Fields {
  return { limit: fields.limit, window_seconds: fields.window_seconds, window: fields.window, burst: fields.burst }
}
