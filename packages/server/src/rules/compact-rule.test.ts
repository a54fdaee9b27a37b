import { parseRules } from 'sluice'
import { describe, expect, test } from 'vitest'
import { parse as parseYaml } from 'yaml'
import { exampleRulesPath } from '../package-facts.ts'
import { compactRule } from './compact-rule.ts'
import { readRuleFile } from './rule-file.ts'
import { rulesYaml } from './yaml-writer.ts'

const MINUTE = { limit: 5, window_seconds: 60 }
const TEXTS = [
  'yes',
  'No',
  'null',
  '~',
  '1',
  '1e3',
  '0x1f',
  '- a',
  'a: b',
  'a:',
  '#a',
  'a #b',
  '*a',
  '&a',
  '"a"',
  "it's",
]

const RULES = parseRules([
  ...readRuleFile(exampleRulesPath()),
  { rule_id: 'plain', ...MINUTE },
  { rule_id: 'abuse', ...MINUTE, intent: 'abuse' },
  { rule_id: 'abuse_open', ...MINUTE, intent: 'abuse', on_fail: 'open' },
  { rule_id: 'leaky', ...MINUTE, algorithm: 'leaky_bucket', burst: 3 },
  { rule_id: 'off', ...MINUTE, enabled: false, expires_at: '2030-01-01T00:00:00Z', priority: -3 },
  { rule_id: 'many', ...MINUTE, scope: ['user', 'attributes.x'], when: { ip: { not: '10.0.0.0/8' }, a: ['b*', 'c'] } },
  ...TEXTS.map((name, index) => ({ rule_id: `text_${index}`, ...MINUTE, name, plan: name })),
])

describe('a compact rule', () => {
  test.each(RULES)('$rule_id parses to the same rule again', (rule) => {
    expect(parseRules([compactRule(rule)])).toEqual([rule])
  })

  test('contains no defaulted field', () => {
    const compact = (ruleId: string) => RULES.filter(({ rule_id }) => rule_id === ruleId).map(compactRule)
    expect(compact('plain')).toEqual([{ rule_id: 'plain', ...MINUTE }])
    expect(compact('abuse')).toEqual([{ rule_id: 'abuse', ...MINUTE, intent: 'abuse' }])
    expect(compact('abuse_open')).toEqual([{ rule_id: 'abuse_open', ...MINUTE, intent: 'abuse', on_fail: 'open' }])
  })
})

test('rules written as YAML parse to the same rules, whatever characters their strings contain', async () => {
  const yaml = await rulesYaml(RULES.map(compactRule))
  expect(parseRules(parseYaml(yaml))).toEqual(RULES)
  expect(parseYaml(await rulesYaml([]))).toEqual({ rules: [] })
})
