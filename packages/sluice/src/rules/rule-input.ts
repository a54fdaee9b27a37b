// Types of rules as written in code and files: every field and spelling of docs/reference/rules.md. `parseRules` checks
// the values, and turns data of type unknown, such as a file, into rules.

import type { AlgorithmName } from '../algorithms/traits.ts'
import type { Severity } from './exception.ts'
import type { FACTS, Rule } from './rule.ts'

/** Completes these strings in editors, and accepts any: the type of `const rule = { scope: 'per_ip' }` is string. */
type Text<Known extends string> = Known | (string & Record<never, never>)

/** Optional in every form that JSON, YAML and databases use. */
type Optional<Fields> = { readonly [Name in keyof Fields]?: Fields[Name] | null | undefined }

type ScopeName = 'global' | 'per_ip' | 'per_user' | 'per_api_key' | 'per_tenant' | 'per_endpoint'
type Value = string | number | boolean

type LimitNumbers = {
  /** Units per window; 0 refuses everything. The default token bucket holds `burst` units and refills continuously. */
  limit: number | 'unlimited'
  /** `500ms`, `30s`, `1m`, `2h`, `1d`. */
  window: string
  /** The same in seconds. Use one of the two. */
  window_seconds: number
  /** Capacity of a token bucket, queue of a leaky bucket. Default: the limit. */
  burst: number
}

export type LimitInput = Optional<LimitNumbers & { /** Default: the window, `1m`. */ name: string }>

/** Numbers of one plan; omitted ones are inherited from the rule. */
export type PlanInput = 'unlimited' | readonly LimitInput[] | Optional<LimitNumbers & { limits: readonly LimitInput[] }>

export type ConditionInput = Value | readonly Value[] | { readonly not: Value | readonly Value[] }

type Fields = LimitNumbers & {
  /** 1 to 64 of `a-z 0-9 _ . -`. Required. */
  rule_id: string | number
  name: string
  description: string
  created_at: string | Date
  updated_at: string | Date
  /** The rule stops applying at this time. */
  expires_at: string | Date
  version: number
  /** `/users/:id`, `/v1/**`. Default: every path. */
  endpoint_pattern: string
  /** Default: every method. */
  method: string | readonly string[]
  plan: string
  /** Conditions on any fact, all of which must hold. */
  when: { readonly [fact: string]: ConditionInput }
  /** The facts that form the key. Default: `global`, one bucket for all. */
  scope: Text<ScopeName> | readonly Text<(typeof FACTS)[number]>[]
  /** Effect of a missing fact of the key. Default: `skip`. */
  on_missing: Text<Rule['on_missing']>
  /** Default: `token_bucket`. */
  algorithm: Text<AlgorithmName>
  /** Several limits, all of which must allow the request. */
  limits: readonly LimitInput[]
  by_plan: { readonly [plan: string]: PlanInput }
  /** Units per request, or the attribute that carries them. Default: 1. */
  cost: number | string
  group: string
  priority: number
  /** Default: `leased`. */
  consistency: Text<Rule['consistency']>
  lease: NonNullable<Rule['lease']>
  approximate: NonNullable<Rule['approximate']>
  /** Tightens the rule for keys with an abuse signal: kind → factor, above 0 and at most 1. */
  on_signal: { readonly [kind: string]: Readonly<{ factor: number; min_severity?: Text<Severity> }> }
  intent: Text<Rule['intent']>
  /** Applies when Redis does not reply in time. Default: `open`, or `closed` with `intent: abuse`. */
  on_fail: Text<Rule['on_fail']>
  shards: number
  store: string
  spread: Text<Rule['spread']>
  enforce_at: Text<Rule['enforce_at']>
  mode: Text<Rule['mode']>
  enabled: boolean
}

/** Names of these fields in other limiters. */
type Spellings = {
  id: string | number
  http_method: Fields['method']
  limit_count: number
  is_active: boolean
  capacity: number
  burst_capacity: number
  max_tokens: number
  rate: number
  per: Text<'second' | 'minute' | 'hour' | 'day'>
  rate_per_second: number
  refill_rate: number
  match: { readonly dimension?: string; readonly scope?: string }
  key_pattern: string
}

export type RuleInput = Optional<Fields & Spellings>

/** A list of rules, or an object with the list. `parseRules` turns data of type unknown into one. */
export type RulesInput =
  | readonly RuleInput[]
  | { readonly rules: readonly RuleInput[]; readonly version?: number; readonly [note: `x-${string}`]: unknown }
