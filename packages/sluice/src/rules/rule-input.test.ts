import { readFileSync } from 'node:fs'
import { expect, expectTypeOf, test } from 'vitest'
import { createLimiter } from '../limiter.ts'
import { FIELDS, parseRules } from './parse.ts'
import type { Rule } from './rule.ts'
import type { RuleInput, RulesInput } from './rule-input.ts'

const PAGE = readFileSync(new URL('../../../../docs/reference/rules.md', import.meta.url), 'utf8')

// Does not compile unless this list and the type have the same fields.
const TYPED: Readonly<Record<keyof RuleInput, true>> = {
  ...{ rule_id: true, name: true, description: true, created_at: true, updated_at: true, expires_at: true },
  ...{ version: true, endpoint_pattern: true, method: true, plan: true, when: true, scope: true, on_missing: true },
  ...{ algorithm: true, limit: true, window_seconds: true, window: true, burst: true, limits: true, by_plan: true },
  ...{ cost: true, group: true, priority: true, consistency: true, lease: true, approximate: true, intent: true },
  ...{
    on_signal: true,
    on_fail: true,
    shards: true,
    store: true,
    spread: true,
    enforce_at: true,
    mode: true,
    enabled: true,
  },
  ...{ id: true, http_method: true, limit_count: true, is_active: true, capacity: true, burst_capacity: true },
  ...{ max_tokens: true, rate: true, per: true, rate_per_second: true, refill_rate: true, match: true },
  ...{ key_pattern: true },
}

test('the type of rules has exactly the fields of the parser and the other spellings of the reference page', () => {
  const [, section = ''] = PAGE.split('## Other spellings')
  const rows = [...section.matchAll(/^\| (`[^|]*) \|/gm)].map(([, cell = '']) => cell)
  const spellings = rows.flatMap((cell) => [...cell.replace(/\(.*\)/, '').matchAll(/`(\w+)/g)].map(([, name]) => name))
  const fields = spellings.filter((name) => !['global', 'user', 'ip', 'endpoint'].includes(String(name)))
  expect(Object.keys(TYPED).sort()).toEqual([...new Set([...FIELDS, ...fields])].sort())
})

test('constants and parsed rules have the type of rules', () => {
  const constant = {
    rule_id: 'a',
    scope: 'per_user',
    limit: 1,
    window: '1m',
    algorithm: 'fixed_window',
    mode: 'shadow',
  }
  const several = [
    constant,
    { id: 7, rate: 5, per: 'minute', when: { country: ['fr', 'be'] }, expires_at: new Date(4e12) },
  ]
  const parsed: Rule[] = parseRules(JSON.parse(JSON.stringify(several)))
  const limiters = [several, { rules: several, version: 3 }, parsed, [...parsed]].map((rules: RulesInput) => {
    return createLimiter({ rules }).rules.length
  })
  expect(limiters).toEqual([2, 2, 2, 2])
  expectTypeOf<Rule>().toExtend<RuleInput>()
})

test('mistakes do not compile', () => {
  const rule = { rule_id: 'a', limit: 1, window: '1m' } as const
  // @ts-expect-error: a field that does not exist
  expect(() => createLimiter({ rules: [{ ...rule, scpoe: 'per_user' }] })).toThrow('did you mean "scope"?')
  // @ts-expect-error: a string instead of a number
  expect(() => createLimiter({ rules: [{ ...rule, limit: '100' }] })).toThrow('limit')
  // @ts-expect-error: a number without a unit
  expect(() => createLimiter({ rules: [{ ...rule, window: 60 }] })).toThrow('"60s"')
  // @ts-expect-error: data that was not parsed
  expect(() => createLimiter({ rules: {} as unknown })).toThrow('give a list of rules')
})
