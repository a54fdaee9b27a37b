// Lists rules, filtered and paginated. Serialises in slices, so that ten thousand rules do not block checks, and caches
// the JSON of each rule.

import { inSlices, type Limiter, plainRule, type Rule, type Sliced } from 'sluice'
import type { Schema } from './schemas.ts'

const PAGE_MAX = 1000

export const LIST_QUERY: Schema = {
  type: 'object',
  additionalProperties: false,
  properties: {
    enabled: {
      type: 'string', // query parameters are strings
      enum: ['true', 'false', 'any'],
      description: 'Default: true. false: rules that are disabled or have expired.',
      'x-fix': 'use true, false or any',
    },
    scope: {
      type: 'string',
      maxLength: 255,
      description: 'Scope, such as per_user.',
      'x-fix': 'give the name of a scope',
    },
    mode: { type: 'string', enum: ['enforce', 'shadow'], 'x-fix': 'use enforce or shadow' },
    search: {
      type: 'string',
      maxLength: 255,
      description: 'Text that rule_id, name or endpoint_pattern contains, in any case.',
      'x-fix': 'give at most 255 characters',
    },
    limit: {
      type: 'string',
      pattern: '^([1-9][0-9]{0,2}|1000)$',
      description: `Maximum number of rules, from 1 to ${PAGE_MAX}. Default: all.`,
      'x-fix': `give a whole number from 1 to ${PAGE_MAX}`,
    },
    after: {
      type: 'string',
      maxLength: 64,
      description: 'Only rules whose ids sort after this one.',
      'x-fix': 'give the `next` of the previous page',
    },
  },
}

export type ListQuery = {
  readonly enabled?: 'true' | 'false' | 'any'
  readonly scope?: string
  readonly mode?: Rule['mode']
  readonly search?: string
  readonly limit?: string
  readonly after?: string
}

/** Returns JSON. */
export function listRules(limiter: Limiter, query: ListQuery, nowUs: number): Promise<string> {
  return inSlices(listing(limiter.rules, limiter.version, query, nowUs))
}

function* listing(rules: readonly Rule[], version: number, query: ListQuery, nowUs: number): Sliced<string> {
  const { limit = Number.POSITIVE_INFINITY, after = '' } = query
  const isPaged = query.limit !== undefined || query.after !== undefined
  const texts: string[] = []
  let last = ''
  for (const rule of isPaged ? [...rules].sort(byId) : rules) {
    yield
    if ((isPaged && rule.rule_id <= after) || !matchesQuery(rule, query, nowUs)) continue
    if (texts.length === Number(limit)) {
      return `{"version":${version},"rules":[${texts.join(',')}],"next":${JSON.stringify(last)}}`
    }
    texts.push(ruleText(rule))
    last = rule.rule_id
  }
  return `{"version":${version},"rules":[${texts.join(',')}]}`
}

function byId(one: Rule, other: Rule): number {
  return one.rule_id < other.rule_id ? -1 : 1
}

function matchesQuery(rule: Rule, { enabled = 'true', scope, mode, search }: ListQuery, nowUs: number): boolean {
  const active = rule.enabled && !(rule.expires_at !== undefined && Date.parse(rule.expires_at) * 1000 <= nowUs)
  if (enabled !== 'any' && active !== (enabled === 'true')) return false
  if (mode !== undefined && rule.mode !== mode) return false
  if (scope !== undefined && [plainRule(rule).scope].flat().join('+') !== scope) return false
  if (search === undefined) return true
  const wanted = search.toLowerCase()
  return [rule.rule_id, rule.name, rule.endpoint_pattern].some((text) => text?.toLowerCase().includes(wanted))
}

const texts = new WeakMap<Rule, string>()

/** Returns the complete rule as JSON. */
export function ruleText(rule: Rule): string {
  const known = texts.get(rule)
  if (known !== undefined) return known
  const text = JSON.stringify(plainRule(rule))
  texts.set(rule, text)
  return text
}
