// A rule in canonical form: complete, snake_case, the same in JSON, YAML and memory. Created by `parseRules`.

import type { OnFail } from '../algorithms/limit.ts'
import type { AlgorithmName } from '../algorithms/traits.ts'
import type { Severity } from './exception.ts'

export type RuleLimit = {
  /** Unique within the rule; `default` when there is only one. */
  readonly name: string
  readonly limit: number
  readonly window_seconds: number
  /** Capacity of a token bucket, queue of a leaky bucket; the other algorithms have none. */
  readonly burst?: number
}

/** Accepted values of a fact (`prefix*`, and CIDRs for `ip`), or rejected ones with `not`. */
export type RuleCondition = readonly string[] | { readonly not: readonly string[] }

export type Lease = { readonly max_units?: number; readonly max_share?: number; readonly ttl_ms?: number }

export type Approximate = { readonly sync_ms?: number; readonly max_unsynced?: number }

/** Effect of a signal on a rule, for one key: its limits are multiplied by the factor, above 0 and at most 1. */
export type SignalReaction = { readonly factor: number; readonly min_severity?: Severity }

export type Rule = {
  readonly rule_id: string
  readonly name?: string
  readonly description?: string
  readonly created_at?: string
  readonly updated_at?: string
  readonly expires_at?: string
  /** Increases with each edit; stores use it so that an older rule set cannot overwrite a newer one. */
  readonly version: number
  readonly endpoint_pattern: string
  /** Empty: every method. */
  readonly method: readonly string[]
  readonly plan?: string
  readonly when: Readonly<Record<string, RuleCondition>>
  /** The facts that form the key; empty: one bucket for all. */
  readonly scope: readonly string[]
  readonly on_missing: 'skip' | 'refuse' | 'by_ip'
  readonly algorithm: AlgorithmName
  /** All must allow the request. Empty: unlimited. */
  readonly limits: readonly RuleLimit[]
  readonly by_plan: Readonly<Record<string, readonly RuleLimit[]>>
  /** Units per request, or the attribute that carries them. */
  readonly cost: number | string
  readonly group?: string
  readonly priority: number
  readonly consistency: 'strict' | 'leased' | 'approximate' | 'local'
  readonly lease?: Lease
  readonly approximate?: Approximate
  /** By kind of signal. */
  readonly on_signal?: Readonly<Record<string, SignalReaction>>
  readonly intent: 'fairness' | 'abuse'
  readonly on_fail: OnFail
  readonly shards: number
  readonly store: string
  readonly spread: 'regional' | 'global'
  readonly enforce_at: 'edge' | 'service' | 'any'
  readonly mode: 'enforce' | 'shadow'
  readonly enabled: boolean
}

/** Built-in facts; any other fact is an attribute. */
export const FACTS = ['ip', 'user', 'api_key', 'tenant', 'plan', 'method', 'endpoint'] as const

/** Prefix of attributes in a scope, so that a mistyped fact is not taken for an attribute. */
export const ATTRIBUTE = 'attributes.'

/** Scopes of at most one fact, by name. */
export const SCOPES: Readonly<Record<string, readonly string[]>> = {
  global: [],
  per_ip: ['ip'],
  per_user: ['user'],
  per_api_key: ['api_key'],
  per_tenant: ['tenant'],
  per_endpoint: ['endpoint'],
}

/** Display name of a scope: `per_user`, `global`, `user+endpoint`. */
export function scopeName(scope: readonly string[]): string {
  const known = Object.entries(SCOPES).find(([, facts]) => facts.join() === scope.join())
  return known?.[0] ?? scope.join('+')
}

/** A rule in the short form of rule files: a single limit, or `unlimited`, is inlined. */
export function plainRule(rule: Rule): Readonly<Record<string, unknown>> {
  const { limits, scope, method, ...rest } = rule
  const [only, ...more] = limits
  const numbers =
    only === undefined
      ? { limit: 'unlimited' }
      : more.length > 0 || only.name !== 'default'
        ? { limits }
        : {
            limit: only.limit,
            window_seconds: only.window_seconds,
            ...(only.burst === undefined ? {} : { burst: only.burst }),
          }
  const named = scopeName(scope)
  return {
    ...rest,
    ...(method.length === 0 ? {} : { method: method.length === 1 ? method[0] : method }),
    scope: named in SCOPES ? named : scope,
    ...numbers,
  }
}
