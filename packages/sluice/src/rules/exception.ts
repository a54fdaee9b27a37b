// Exceptions to rules: overrides of one key, abuse signals and the global factor. Types, and the validation of input.

import { canonicalAddress } from '../canonical/address.ts'
import { type FieldError, optionsInvalid } from '../errors.ts'
import { isObject } from '../known-fields.ts'

/** Limits the key, exempts it from the rule, or refuses all its requests with this status. */
export type OverrideEffect =
  /**
   * `limitName`: the limit to change. Required if the rule has several limits: an override without it affects only
   * rules that have one limit.
   */
  | { readonly limit: number; readonly limitName?: string | undefined }
  | { readonly factor: number }
  | { readonly ban: 429 | 403 }
  | { readonly exempt: true }

/** Exception for one key: of one rule, or of every rule whose key starts with the fact. */
export type Override = {
  readonly id: string
  /** null: every rule whose key starts with `fact`; a ban then refuses every request that has the fact. */
  readonly ruleId: string | null
  /** First fact of the scope: `user`, `ip`, `tenant`, …; `` with the scope `global`. */
  readonly fact: string
  readonly owner: string
  readonly effect: OverrideEffect
  /** By wall-clock time; null: forever. */
  readonly expiresAtMs: number | null
}

/** Mildest first. */
export const SEVERITIES = ['low', 'medium', 'high', 'critical'] as const

export type Severity = (typeof SEVERITIES)[number]

/** Suspicion against one key. Rules that list its kind in `on_signal` tighten for the key until it expires. */
export type Signal = {
  readonly fact: string
  readonly owner: string
  /** `credential_stuffing`, …: 1 to 64 of `a-z 0-9 _ . -`. */
  readonly kind: string
  readonly severity: Severity
  /** By wall-clock time; null: forever. */
  readonly expiresAtMs: number | null
}

/** Multiplies every limit. The result is at least 1. */
export type GlobalFactor = {
  readonly factor: number
  /** By wall-clock time; null: forever. */
  readonly expiresAtMs: number | null
}

/** Overrides to add or replace, by id, and ids to remove. `replaceAll` removes all others. */
export type OverrideChanges = {
  readonly set?: readonly Override[] | undefined
  readonly remove?: readonly string[] | undefined
  readonly replaceAll?: boolean | undefined
}

/** An exception that changed a decision. Does not name the key, because it could end up in logs. */
export type AppliedException = {
  readonly kind: 'override' | 'signal' | 'factor' | 'bypass'
  /** Id of the override or bypass token, kind of the signal; `global` for the factor. */
  readonly id: string
  /** Rule that it was applied to; null: the request as a whole. */
  readonly ruleId: string | null
  readonly effect: OverrideEffect
}

/** The exceptions of one request. */
export type AppliedExceptions = {
  readonly list: readonly AppliedException[]
  /** Status of a ban; undefined for 429. */
  readonly status: 403 | undefined
  /** Whether a ban of the key refuses the request, whatever rules match. */
  readonly banned: boolean
}

export const NOTHING_APPLIED: AppliedExceptions = { list: [], status: undefined, banned: false }

export const OVERRIDES_MAX = 100_000
export const SIGNALS_MAX = 100_000
/** Largest factor of an override, and the largest global one. */
export const FACTOR_MAX = 1000
export const SIGNAL_KIND: RegExp = /^[a-z0-9_.-]{1,64}$/
const LIMIT_MAX = 1_000_000_000_000
/** Most mistakes named in one error. */
const ERRORS_MAX = 20
/** These facts depend on the matched rule, so an override of them has to name it. */
const OF_ONE_RULE: readonly string[] = ['', 'endpoint', 'method']

/** Throws OPTION_INVALID, and names every mistake. */
export function checkOverrides(overrides: unknown): void {
  if (!Array.isArray(overrides)) throw optionsInvalid([{ field: 'set', value: overrides, fix: 'give a list' }])
  throwIfAny(overrides, (override, index) => overrideErrors(override, `set[${index}]`))
}

/** Throws OPTION_INVALID, and names every mistake. */
export function checkSignals(signals: unknown): void {
  if (!Array.isArray(signals)) throw optionsInvalid([{ field: 'signals', value: signals, fix: 'give a list' }])
  if (signals.length > SIGNALS_MAX) {
    throw optionsInvalid([{ field: 'signals', value: signals.length, fix: `give at most ${SIGNALS_MAX} signals` }])
  }
  throwIfAny(signals, (signal, index) => signalErrors(signal, `signals[${index}]`))
}

/** Throws OPTION_INVALID. */
export function checkGlobalFactor(given: unknown): void {
  if (given === undefined) return
  const fields = isObject(given) ? given : {}
  const errors = isFactor(fields.factor) ? [] : [factorError('factor', fields.factor)]
  errors.push(...expiryErrors(fields.expiresAtMs, 'expiresAtMs'))
  if (errors.length > 0) throw optionsInvalid(errors)
}

/** The owner as rules spell it: addresses in canonical form. */
export function canonicalOwner(fact: string, owner: string, ipv6Prefix: number): string {
  if (fact !== 'ip') return owner
  const [address = ''] = owner.split('/') // an IPv6 network is named as in a decision: 2001:db8::/64
  return canonicalAddress(address, ipv6Prefix) ?? owner
}

function throwIfAny(items: readonly unknown[], errorsOf: (item: unknown, index: number) => FieldError[]): void {
  const errors: FieldError[] = []
  for (let index = 0; index < items.length && errors.length < ERRORS_MAX; index += 1) {
    errors.push(...errorsOf(items[index], index))
  }
  if (errors.length > 0) throw optionsInvalid(errors)
}

function overrideErrors(given: unknown, path: string): FieldError[] {
  if (!isObject(given)) return [{ field: path, value: given, fix: 'give an override: { id, ruleId, fact, … }' }]
  const { id, ruleId, expiresAtMs } = given
  const errors = keyErrors(given, path)
  if (typeof id !== 'string' || id === '') errors.push({ field: `${path}.id`, value: id, fix: 'give a unique id' })
  if (ruleId !== null && typeof ruleId !== 'string') {
    errors.push({ field: `${path}.ruleId`, value: ruleId, fix: 'give the id of a rule, or null for every rule' })
  }
  if (ruleId === null && OF_ONE_RULE.some((fact) => fact === given.fact)) {
    errors.push({ field: `${path}.ruleId`, value: ruleId, fix: `name the rule: its key starts with "${given.fact}"` })
  }
  errors.push(...expiryErrors(expiresAtMs, `${path}.expiresAtMs`))
  return [...errors, ...effectErrors(given.effect, `${path}.effect`)]
}

function effectErrors(effect: unknown, path: string): FieldError[] {
  const names = isObject(effect) ? Object.keys(effect).filter((name) => name !== 'limitName') : []
  const [name] = names
  if (!isObject(effect) || names.length !== 1) {
    return [{ field: path, value: effect, fix: 'give exactly one of limit, factor, ban and exempt' }]
  }
  const { limit, limitName, factor, ban, exempt } = effect
  const field = `${path}.${name}`
  if (limitName !== undefined && (name !== 'limit' || typeof limitName !== 'string')) {
    return [{ field: `${path}.limitName`, value: limitName, fix: 'give the name of a limit, together with limit' }]
  }
  if (name === 'limit') return isLimit(limit) ? [] : [{ field, value: limit, fix: LIMIT_FIX }]
  if (name === 'factor') return isFactor(factor) ? [] : [factorError(field, factor)]
  if (name === 'ban') return ban === 429 || ban === 403 ? [] : [{ field, value: ban, fix: 'use 429 or 403' }]
  if (name === 'exempt' && exempt === true) return []
  return [{ field, value: effect[name ?? ''], fix: 'use limit, factor, ban, or exempt: true' }]
}

const LIMIT_FIX = `give a whole number from 1 to ${LIMIT_MAX}; to refuse every request, use ban`

function signalErrors(given: unknown, path: string): FieldError[] {
  if (!isObject(given)) return [{ field: path, value: given, fix: 'give a signal: { fact, owner, kind, … }' }]
  const { kind, severity, expiresAtMs } = given
  const errors = keyErrors(given, path)
  if (typeof kind !== 'string' || !SIGNAL_KIND.test(kind)) {
    errors.push({ field: `${path}.kind`, value: kind, fix: 'give 1 to 64 characters of a-z, 0-9, "_", "." and "-"' })
  }
  if (!SEVERITIES.some((known) => known === severity)) {
    errors.push({ field: `${path}.severity`, value: severity, fix: `use one of ${SEVERITIES.join(', ')}` })
  }
  return [...errors, ...expiryErrors(expiresAtMs, `${path}.expiresAtMs`)]
}

function keyErrors({ fact, owner }: Readonly<Record<string, unknown>>, path: string): FieldError[] {
  const errors: FieldError[] = []
  if (typeof fact !== 'string') errors.push({ field: `${path}.fact`, value: fact, fix: 'give a fact, such as "user"' })
  const isEmpty = owner === '' && fact !== '' // a rule with the scope `global` has neither
  if (typeof owner !== 'string' || isEmpty) {
    errors.push({ field: `${path}.owner`, value: owner, fix: 'give the value of the fact, such as a user id' })
  } else if (fact === 'ip' && canonicalAddress(owner.split('/')[0] ?? '') === undefined) {
    errors.push({ field: `${path}.owner`, value: owner, fix: 'give an IPv4 or IPv6 address' })
  }
  return errors
}

function isLimit(value: unknown): boolean {
  return Number.isSafeInteger(value) && Number(value) >= 1 && Number(value) <= LIMIT_MAX
}

function isFactor(value: unknown): boolean {
  return typeof value === 'number' && value > 0 && value <= FACTOR_MAX
}

function factorError(field: string, value: unknown): FieldError {
  return { field, value, fix: `give a number above 0 and at most ${FACTOR_MAX}` }
}

function expiryErrors(value: unknown, field: string): FieldError[] {
  if (value === null || (typeof value === 'number' && Number.isFinite(value))) return []
  return [{ field, value, fix: 'give a time in milliseconds since the epoch, or null for never' }]
}
