import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { exampleRulesPath } from '../package-facts.ts'
import { isNestedTooDeep, NESTING_MAX } from './nesting.ts'
import { readJson, readYaml } from './source-text.ts'

const staircase = (levels: number) => Array.from({ length: levels }, (_, level) => `${' '.repeat(level)}a:`).join('\n')

test.each([
  ['lists', (levels: number) => '['.repeat(levels)],
  ['lists with brackets in their texts', (levels: number) => '["]", '.repeat(levels)],
  ['objects', (levels: number) => '{a: '.repeat(levels)],
  ['lists of lists on a line', (levels: number) => `${'- '.repeat(levels - 1)}1`],
  ['keys that are objects', (levels: number) => `${'? '.repeat(levels - 1)}1`],
  ['a line further in than the one above it', staircase],
])('%s beyond the maximum depth are rejected without being parsed', (_, textOf) => {
  expect(isNestedTooDeep(textOf(NESTING_MAX))).toBe(false)
  expect(isNestedTooDeep(textOf(NESTING_MAX + 1))).toBe(true)
  const { errors } = readYaml(textOf(5000))
  expect(errors).toEqual([{ field: 'file', value: undefined, fix: 'nest at most 100 levels deep' }])
})

test('long texts, and brackets inside strings, do not count as depth', () => {
  const rule = "- rule_id: a\n  description: '[[[{'\n  limits:\n    - { limit: 1, window: 1s }\n  # [[{\n"
  expect(isNestedTooDeep(rule.repeat(1000))).toBe(false)
  expect(isNestedTooDeep(readFileSync(exampleRulesPath(), 'utf8'))).toBe(false)
})

test('JSON that is too deep has no line numbers', () => {
  const { errors, lineOf } = readJson(`${'['.repeat(50_000)}${']'.repeat(50_000)}`)
  expect([errors, lineOf('rules[0]')]).toEqual([[], undefined])
})
