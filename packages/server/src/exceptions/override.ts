// An override: a rule, or every rule, treats one key differently until the override expires. Parses and validates
// requests to create one.

import { type FieldError, type Rule, suggestion } from 'sluice'
import { invalidRequest, ProblemError } from '../problems/problem.ts'
import { type Key, keyOfRule, parseKey, requirePlain } from './key.ts'
import { expiryIn, LIFETIME_FIX, lifetimeSeconds } from './lifetime.ts'

/** Effect of an override, with the field names of the API. */
export type Effect =
  | { readonly limit: number; readonly limit_name?: string }
  | { readonly factor: number }
  | { readonly ban: BanStatus }
  | { readonly exempt: true }

export type BanStatus = 403 | 429

/** `pending`: needs approvals. */
export type ExceptionState = 'pending' | 'active' | 'removed'

export type StoredOverride = {
  readonly overrideId: string
  readonly state: ExceptionState
  /** null: every rule whose key starts with the fact. */
  readonly ruleId: string | null
  readonly key: Key
  readonly effect: Effect
  readonly reason: string
  readonly actor: string
  readonly actorName: string | null
  readonly createdAt: Date
  /** The same by the clock of the database. */
  readonly recordedAt: Date
  /** null: never. */
  readonly expiresAt: Date | null
  /** Approvals given; not all may count any more. */
  readonly approvals: number
}

export type OverrideRequest = Pick<StoredOverride, 'ruleId' | 'key' | 'effect' | 'reason' | 'expiresAt'> & {
  /** Whether the override is looser than the rule. */
  readonly raises: boolean
}

/** Body of a request; its types were validated by a schema. */
export type OverrideBody = {
  readonly rule_id?: string
  readonly key: string
  readonly limit?: number
  readonly limit_name?: string
  readonly factor?: number
  readonly ban?: true | { readonly status?: BanStatus }
  readonly exempt?: true
  readonly expires_in?: string | number
  readonly forever?: true
  readonly reason: string
}

/** The active rules, as needed to validate an override. */
export type KnownRules = {
  readonly rules: readonly Rule[]
  rule(ruleId: string): Rule | undefined
}

export const EFFECT_FIX = 'give exactly one of limit, factor, ban and exempt'
export const EXPIRY_FIX: string = `give either expires_in or "forever": true; ${LIFETIME_FIX}`
export const EFFECTS = ['limit', 'factor', 'ban', 'exempt'] as const

/** Features that nodes need to apply overrides: `override.ban`. */
export const OVERRIDE_FEATURES: readonly string[] = EFFECTS.map((name) => `override.${name}`)

export function featuresOfEffect(effect: Effect): string[] {
  return Object.keys(effect).flatMap((name) => (name === 'limit_name' ? [] : `override.${name}`))
}

/** Throws a problem that names every invalid field. */
export function parseOverride(
  body: OverrideBody,
  known: KnownRules,
  { nowMs, ipv6Prefix }: { readonly nowMs: number; readonly ipv6Prefix: number },
): OverrideRequest {
  const { rule_id: ruleId = null, reason } = body
  const rule = ruleId === null ? undefined : known.rule(ruleId)
  const errors: FieldError[] = []
  if (ruleId !== null && rule === undefined) {
    const hint = suggestion(
      ruleId,
      known.rules.map(({ rule_id }) => rule_id),
    )
    errors.push({ field: 'rule_id', value: ruleId, fix: `give the id of a rule, or omit it for every rule${hint}` })
  }
  errors.push(...effectErrors(body, rule), ...expiryErrors(body))
  if (errors.length > 0) throw new ProblemError(invalidRequest(errors))
  const effect = effectOf(body)
  return {
    ruleId,
    key: requirePlain(
      rule === undefined ? parseKey(body.key, ipv6Prefix) : keyOfRule(body.key, rule, ipv6Prefix),
      body.key,
    ),
    effect,
    reason,
    expiresAt: body.expires_in === undefined ? null : expiryIn('expires_in', body.expires_in, nowMs),
    raises: raises(effect, rule === undefined ? known.rules : [rule]),
  }
}

/**
 * Overrides of one rule and key replace each other if they share this group: `ban`, `exempt`, or `limit <name>` (a
 * factor: `limit `). Stored in the column `slot`.
 */
export function replacementGroup(effect: Effect): string {
  if ('ban' in effect) return 'ban'
  if ('exempt' in effect) return 'exempt'
  return 'limit' in effect ? `limit ${effect.limit_name ?? ''}` : 'limit '
}

/** Mistakes that look valid but have no effect now. */
export function overrideWarnings(
  { ruleId, key, effect }: OverrideRequest,
  text: string,
  { rules }: KnownRules,
): string[] {
  if (ruleId !== null) {
    return text.startsWith(`${key.fact}:`)
      ? [`key: with rule_id, give the value alone, without "${key.fact}:", unless values start with it`]
      : []
  }
  if ('ban' in effect) return [] // applies to requests without a rule too
  return rules.some(({ scope, enabled }) => enabled && scope[0] === key.fact)
    ? []
    : [`key: no enabled rule has a key that starts with "${key.fact}", so the override has no effect yet`]
}

function effectErrors(body: OverrideBody, rule: Rule | undefined): FieldError[] {
  const given = EFFECTS.filter((name) => body[name] !== undefined)
  const [field = 'limit'] = given
  if (given.length !== 1) return [{ field: given[1] ?? field, value: body[given[1] ?? field], fix: EFFECT_FIX }]
  const { limit_name: limitName } = body
  if (field !== 'limit') {
    if (limitName === undefined) return []
    return [{ field: 'limit_name', value: limitName, fix: `remove it: ${field} applies to every limit of the rule` }]
  }
  if (body.rule_id === undefined && limitName !== undefined)
    return [{ field: 'limit_name', value: limitName, fix: 'give rule_id too: rules name their limits differently' }]
  return rule === undefined ? [] : limitErrors(rule, limitName)
}

function limitErrors(rule: Rule, limitName: string | undefined): FieldError[] {
  const names = limitNames(rule)
  const list = names.join(', ')
  if (names.length === 0)
    return [{ field: 'limit', value: 'unlimited', fix: `use ban: rule ${rule.rule_id} is unlimited` }]
  if (limitName === undefined && names.length > 1)
    return [{ field: 'limit_name', value: limitName, fix: `give the limit to change: one of ${list}` }]
  if (limitName !== undefined && !names.includes(limitName))
    return [{ field: 'limit_name', value: limitName, fix: `use one of ${list}${suggestion(limitName, names)}` }]
  return []
}

/** Names of all limits of a rule, those of its plans included. */
function limitNames({ limits, by_plan: plans }: Rule): string[] {
  return [...new Set([limits, ...Object.values(plans)].flat().map(({ name }) => name))]
}

function expiryErrors({ expires_in: expiresIn, forever }: OverrideBody): FieldError[] {
  if ((expiresIn === undefined) === (forever === undefined))
    return [{ field: 'expires_in', value: expiresIn, fix: EXPIRY_FIX }]
  const isGood = expiresIn === undefined || lifetimeSeconds(expiresIn) !== undefined
  return isGood ? [] : [{ field: 'expires_in', value: expiresIn, fix: LIFETIME_FIX }]
}

function effectOf({ limit, limit_name: limitName, factor, ban }: OverrideBody): Effect {
  if (limit !== undefined) return limitName === undefined ? { limit } : { limit, limit_name: limitName }
  if (factor !== undefined) return { factor }
  if (ban !== undefined) return { ban: (ban === true ? undefined : ban.status) ?? 429 }
  return { exempt: true }
}

/** A limit raises if it is above a limit that it replaces, in any plan. Errs towards yes: nothing to compare raises. */
function raises(effect: Effect, rules: readonly Rule[]): boolean {
  if ('ban' in effect) return false
  if ('exempt' in effect) return true
  if ('factor' in effect) return effect.factor > 1
  const limits = rules.flatMap((rule) => [rule.limits, ...Object.values(rule.by_plan)].flat())
  const named = limits.filter(({ name }) => effect.limit_name === undefined || name === effect.limit_name)
  return named.length === 0 || named.some(({ limit }) => effect.limit > limit)
}
