// docs/reference/rules.md is correct: its rules parse, every field is documented, and its defaults are the parser's.

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createLimiter, parseRules } from 'sluice'
import { describe, expect, test } from 'vitest'
import { FIELDS } from '../src/rules/parse.ts'

const page = readFileSync(new URL('../../../docs/reference/rules.md', import.meta.url), 'utf8')
/** From the server: the library does not depend on a YAML parser. */
const yaml: { parse(text: string): unknown } = createRequire(new URL('../../server/package.json', import.meta.url))(
  'yaml',
)
const READERS = { json: JSON.parse, yaml: yaml.parse }

const blocks = [...page.matchAll(/^```(json|yaml)\n([\s\S]*?)^```$/gm)].map(([, language, text = ''], index) => {
  const line = page.slice(0, page.indexOf(text)).split('\n').length
  return { index, line, language: language as keyof typeof READERS, text }
})

/** The tables of fields: name → default. */
const described = new Map(
  page
    .slice(page.indexOf('## Fields'), page.indexOf('## Patterns'))
    .split('\n')
    .filter((line) => line.startsWith('| `'))
    .map((line) => line.split('|').map((cell) => cell.trim()))
    .map(([, name = '', , fallback = '']) => [name.replaceAll('`', ''), fallback]),
)

test.each(blocks)('the $language of line $line parses and is accepted unchanged', ({ language, text }) => {
  const rules = parseRules(READERS[language](text))
  expect(rules.length).toBeGreaterThan(0)
  expect(createLimiter({ rules }).rules).toEqual(rules)
})

describe('the tables of fields', () => {
  test('list every field of the parser exactly once, and no other', () => {
    expect([...described.keys()].sort()).toEqual([...FIELDS].sort())
  })

  const [rule] = parseRules([{ rule_id: 'a', limit: 1, window_seconds: 1 }])
  const written = [...described].filter(([, fallback]) => fallback.startsWith('`'))

  test.each(written)('%s defaults to %s', (name, fallback) => {
    const { [name]: value } = { ...rule } as Record<string, unknown>
    const global = name === 'scope' && Array.isArray(value) && value.length === 0
    expect(global ? 'global' : String(value)).toBe(fallback.replaceAll('`', ''))
  })

  test('have an example of every field, except those with their own guide', () => {
    const withOwnGuide = ['lease', 'store', 'spread']
    const given = blocks.flatMap(({ language, text }) => [READERS[language](text)].flat() as object[])
    const names = given
      .flatMap((block) => ('rules' in block ? (block.rules as object[]) : [block]))
      .flatMap(Object.keys)
    expect(FIELDS.filter((field) => !names.includes(field) && !withOwnGuide.includes(field))).toEqual([])
  })
})

test.each([
  ...['id', 'http_method', 'limit_count', 'is_active', 'capacity', 'burst_capacity', 'max_tokens', 'refill_rate'],
  ...['rate', 'per', 'rate_per_second', 'match', 'key_pattern', 'user_endpoint', 'fail_open', 'fail_closed'],
])('the spelling %s is described', (spelling) => {
  const section = page.slice(page.indexOf('## Other spellings'), page.indexOf('## What has no effect yet'))
  expect(section).toContain(`\`${spelling}`)
})
