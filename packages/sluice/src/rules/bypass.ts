// Bypass of rules by a token. The request is charged to the token's own limit instead of the rules that it bypasses, in
// one take. A wrong, expired or used-up token changes nothing, so responses do not reveal whether a token exists.

import { compileLimit, type Limit, SLIDING_UNITS_MAX } from '../algorithms/limit.ts'
import { pathReadings } from '../canonical/path-readings.ts'
import { optionInvalid } from '../errors.ts'
import { isObject } from '../known-fields.ts'
import type { Taken } from '../store/store.ts'
import type { Subject } from '../subject.ts'
import { ChargeSet, RuleCharge } from './charge-set.ts'
import type { CompiledLimit } from './compile.ts'
import { textOf } from './condition.ts'
import type { AppliedException } from './exception.ts'
import { coversPath } from './explain.ts'

/** Permission of a valid bypass token. */
export type Bypass = {
  /** Id of the token, never the token itself: appears in decisions. */
  readonly id: string
  /** Ids of the rules that it bypasses; undefined: all. */
  readonly rules: readonly string[] | undefined
  /** Patterns of the paths that it is valid for, as in `endpoint_pattern`; undefined: all. */
  readonly paths: readonly string[] | undefined
  /** Units per minute, over all nodes. Above it, the rules apply as without the token. */
  readonly limitPerMinute: number
}

export type VerifyBypass = (token: string) => Bypass | undefined

/** Longer tokens are ignored before they are hashed. */
export const BYPASS_TOKEN_LENGTH_MAX = 512
/** A prefix that no rule id can have. The rest is the limit, so that any node can refund a receipt. */
const LIMIT_ID = '@bypass/'
const WINDOW_US = 60_000_000
const LIMITS_MAX = 1000

const limitsById = new Map<string, Limit>()

/**
 * The charges of a request with a valid token; undefined if the token does not change them. A ban, or a rule with a
 * limit of 0, is never bypassed.
 */
export function bypassing(usual: ChargeSet, subject: Subject, verify: VerifyBypass): ChargeSet | undefined {
  const token = textOf('bypassToken', subject.bypassToken)
  const bypass = token === undefined || token.length > BYPASS_TOKEN_LENGTH_MAX ? undefined : checked(verify(token))
  if (bypass === undefined || isBanned(usual) || !coversRequest(bypass, subject)) return undefined
  const isBypassed = ({ rule }: CompiledLimit) => bypass.rules?.includes(rule.id) ?? true
  const left = usual.limits.filter((limit) => !isBypassed(limit))
  if (left.length === usual.limits.length) return undefined
  // One limit per charge.
  const charges = usual.charges.filter((_, index) => !isBypassed(usual.limits[index] as CompiledLimit))
  const own = new RuleCharge(bypassLimit(bypass.limitPerMinute), bypass.id, '', subject.cost ?? 1, 'enforce')
  const op = left.some(({ rule }) => rule.permits) ? usual.op : undefined
  const rules = [...new Set(usual.limits.filter(isBypassed).map(({ rule }) => rule.id))]
  const applied = rules.map((ruleId): AppliedException => {
    return { kind: 'bypass', id: bypass.id, ruleId, effect: { exempt: true } }
  })
  const others = usual.exceptions.list.filter(({ ruleId }) => ruleId === null || !rules.includes(ruleId))
  const exceptions = { ...usual.exceptions, list: [...others, ...applied] }
  return new ChargeSet([...charges, own], left, op, usual.version, exceptions)
}

/** Whether the store accepted the charge of the token. If not, the rules apply as without it. */
export function isBypassed({ charges }: ChargeSet, { grants }: Taken): boolean {
  return grants[charges.length - 1]?.short === false
}

/** The own limit of bypass tokens with this id; undefined for ids of other limits. */
export function bypassLimitOf(id: string): Limit | undefined {
  const units = id.startsWith(LIMIT_ID) ? Number(id.slice(LIMIT_ID.length)) : 0
  return Number.isSafeInteger(units) && units > 0 ? bypassLimit(units) : undefined
}

/** Strict: the limit counts over all nodes. Closed: without the store, the rules apply. */
function bypassLimit(perMinute: number): Limit {
  const units = Math.min(perMinute, SLIDING_UNITS_MAX)
  const id = `${LIMIT_ID}${units}`
  const known = limitsById.get(id)
  if (known !== undefined) return known
  if (limitsById.size >= LIMITS_MAX) limitsById.clear()
  const window = { algorithm: 'sliding_window', units, windowUs: WINDOW_US } as const
  const limit = compileLimit({ id, fact: 'bypass', ...window, onFail: 'closed' })
  limitsById.set(id, limit)
  return limit
}

/** A version of a rule that is only compared does not ban. */
function isBanned({ charges, limits, exceptions }: ChargeSet): boolean {
  if (exceptions.banned) return true
  return limits.some(({ limit, rule }, index) => {
    return limit.units === 0 && !rule.shadow && charges[index]?.kind !== 'counterfactual'
  })
}

/** A path is covered only if all its readings are, as with rules that exempt a path. A last slash does not matter. */
function coversRequest({ paths }: Bypass, subject: Subject): boolean {
  if (paths === undefined) return true
  const { all } = pathReadings(textOf('path', subject.path) ?? '/')
  const readings = all.map((reading) => reading.replace(/(?<=.)\/$/, ''))
  return readings.every((reading) => paths.some((pattern) => coversPath(pattern, reading)))
}

/** A promise would count as a permission without any bounds. */
function checked(bypass: Bypass | undefined): Bypass | undefined {
  if (bypass === undefined || bypass === null) return undefined
  const { id, limitPerMinute } = isObject(bypass) ? bypass : ({} as Partial<Bypass>)
  if (typeof id === 'string' && Number.isSafeInteger(limitPerMinute) && Number(limitPerMinute) >= 1) return bypass
  const fix = 'return { id, rules, paths, limitPerMinute } or undefined, not a promise'
  throw optionInvalid('bypass', bypass, fix)
}
