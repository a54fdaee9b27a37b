import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { lintWarnings } from '../../src/rules/lint-warnings.ts'
import { readRuleFile } from '../../src/rules/rule-file.ts'
import { ruleFile } from '../service.ts'
import { sluice } from './terminal.ts'

const BAD = fileURLToPath(new URL('../../../../examples/bad.yaml', import.meta.url))
const GOOD = fileURLToPath(new URL('../../../../examples/rules.yaml', import.meta.url))

/** Line and field of every finding. */
function placesIn(output: string): string[] {
  return output
    .trim()
    .split('\n')
    .map((line) => /:(\d+: \w+: [^:]+):/.exec(line)?.[1] ?? line)
}

test('every mistake of examples/bad.yaml is named with its line, also one behind another', async () => {
  const { code, out, told } = await sluice(['rules', 'lint', BAD])
  expect(code).toBe(2)
  expect(told).toBe(`${BAD}: 22 rules, 21 errors, 5 warnings\n`)
  expect(placesIn(out)).toEqual([
    '3: error: rules[0].rule_id',
    '8: error: rules[1].limit',
    '13: error: rules[2].window',
    '18: error: rules[3].algoritm',
    '21: error: rules[4].algorithm',
    '22: error: rules[4].method',
    '23: error: rules[4].scope',
    '24: error: rules[4].on_fail',
    '29: error: rules[5].endpoint_pattern',
    '34: error: rules[6].endpoint_pattern',
    '38: error: rules[7].window_seconds',
    '38: error: rules[7].limit',
    '42: error: rules[8].limit',
    '45: error: rules[8].limits[1].limit',
    '47: error: rules[9].rule_id',
    '53: error: rules[10].burst',
    '57: error: rules[11].limit',
    '61: error: rules[12].when.ip',
    '67: error: rules[13].lease',
    '72: error: rules[14].expires_at',
    '78: error: lonely_region.consistency',
    '84: warning: rules[16].enabled',
    '89: warning: rules[17].expires_at',
    '103: warning: rules[19].group',
    '111: warning: rules[20].limits[1]',
    '115: warning: rules[21].by_plan.pro',
  ])
  const lines = readFileSync(BAD, 'utf8').split('\n')
  expect(lines[17]).toContain('algoritm')
})

test('a valid file has neither, and several files are reported one by one', async () => {
  expect(await sluice(['rules', 'lint', GOOD])).toEqual({
    code: 0,
    out: '',
    told: `${GOOD}: 9 rules, 0 errors, 0 warnings\n`,
  })
  expect(await sluice(['rules', 'lint', GOOD, BAD])).toMatchObject({ code: 2 })
})

test('- is standard input, beside files', async () => {
  const input = 'rules:\n  - { rule_id: a, limit: -1, window: 1m }\n'
  expect(await sluice(['rules', 'lint', '-', GOOD], { input })).toEqual({
    code: 2,
    out: expect.stringMatching(/^stdin:2: error: rules\[0\]\.limit: give a whole number/),
    told: `stdin: 1 rule, 1 error, 0 warnings\n${GOOD}: 9 rules, 0 errors, 0 warnings\n`,
  })
  const json = JSON.stringify([{ rule_id: 'a', limit: 1, window: '1m' }])
  expect(await sluice(['rules', 'lint', '-'], { input: json })).toMatchObject({ code: 0 })
  expect(JSON.parse((await sluice(['rules', 'lint', '-', '--json'], { input })).out)).toMatchObject([{ file: 'stdin' }])
  expect((await sluice(['rules', 'lint', '-'], { input: ' '.repeat(8 * 1024 * 1024 + 1) })).out).toContain('at most')
})

test('which stores and regions there are is known to nodes, not to lint', async () => {
  const path = ruleFile(
    '- { rule_id: a, limit: 1, window: 1m, store: hot }\n- { rule_id: b, limit: 9, window: 1m, spread: global }\n',
  )
  expect((await sluice(['rules', 'lint', path])).code).toBe(0)
  expect((await sluice(['check', '--rules', path])).code).toBe(0)
})

test('--json is for programs', async () => {
  const path = ruleFile('- { rule_id: a, limit: -1, window: 1m }\n')
  const { code, out, told } = await sluice(['rules', 'lint', path, '--json'])
  expect({ code, told }).toEqual({ code: 2, told: '' })
  expect(JSON.parse(out)).toEqual([
    {
      file: path,
      mistakes: [{ line: 1, field: 'rules[0].limit', value: -1, fix: expect.stringContaining('give a whole number') }],
      warnings: [],
      rules: 1,
    },
  ])
})

test.each([
  ['not YAML', 'rules:\n  - rule_id: a\n   limit: 1\n', /:3: error: fix the YAML syntax/],
  [
    'what is not UTF-8',
    Buffer.from('- { rule_id: a, limit: 1, window: 1m, name: "caf\xe9" }', 'latin1'),
    /save it as UTF-8/,
  ],
  ['a text', 'hello', /:1: error: rules: give a list of rules \(got "a string of 5 characters"\)/],
])('%s is reported with its line', async (_name, content, expected) => {
  const { code, out } = await sluice(['rules', 'lint', ruleFile(content)])
  expect(code).toBe(2)
  expect(out).toMatch(expected)
})

test('texts that would change what people see are errors, with their lines', async () => {
  const named = (id: string, text: string) => `- { rule_id: ${id}, limit: 1, window: 1m, scope: per_user, ${text} }\n`
  const texts = ['description: "a\\u202eb", name: "a\\u2028b"', 'name: "a\\u200bb"', 'name: "👩\u200d🚀 launch"']
  const content = texts.map((text, index) => named(`r${index}`, text)).join('')
  const { code, out } = await sluice(['rules', 'lint', ruleFile(content)])
  expect(code).toBe(2)
  expect(placesIn(out)).toEqual(['1: error: r0.name', '1: error: r0.description', '2: error: r1.name'])
})

test('a regular expression is reported with the pattern to write instead', async () => {
  const path = ruleFile("- { rule_id: a, limit: 1, window: 1m, endpoint_pattern: '^/users/(\\d+)/posts$' }\n")
  const { out } = await sluice(['rules', 'lint', path])
  expect(out).toBe(
    `${path}:1: error: rules[0].endpoint_pattern: a pattern is a path, not a regular expression; ` +
      'write "/users/*/posts" (got "^/users/(\\\\d+)/posts$")\n',
  )
})

test('of countless errors the first are reported', async () => {
  const { code, out } = await sluice(['rules', 'lint', ruleFile('- a: b: c\n'.repeat(1000))])
  expect(code).toBe(2)
  expect(out.split('\n').length).toBeLessThanOrEqual(101)
})

test('a missing file is reported and hides no other error', async () => {
  const path = ruleFile('- { rule_id: a, limit: -1, window: 1m }\n')
  const { code, out } = await sluice(['rules', 'lint', '/nowhere.yaml', path])
  expect(code).toBe(2)
  expect(out).toMatch(/^\/nowhere\.yaml: error: file: give a readable file: ENOENT/)
  expect(out).toContain(`${path}:1: error: rules[0].limit`)
})

test('--no-color disables colours', async () => {
  const path = ruleFile('- { rule_id: a, limit: -1, window: 1m }\n')
  expect((await sluice(['rules', 'lint', path], { colors: true })).out).toContain('\u001b[31merror\u001b[0m')
  expect((await sluice(['rules', 'lint', path, '--no-color'], { colors: true })).out).not.toContain('\u001b')
})

describe('warnings', () => {
  const NOW_MS = Date.parse('2030-01-31T00:00:00Z')
  const B = 'rule_id: b, limit: 1, window: 1m'
  const GROUP = 'group: g, priority: 1'

  test.each([
    // A rule of the same group that comes first and matches the same or more.
    [`- { rule_id: a, limit: 1, window: 1m, ${GROUP} }`, `- { ${B}, group: g }`, 'group'],
    [`- { rule_id: a, limit: 1, window: 1m, group: g }`, `- { ${B}, group: g }`, 'group'],
    [
      `- { rule_id: a, limit: 1, window: 1m, ${GROUP}, endpoint_pattern: '/a/*/c' }`,
      `- { ${B}, group: g, endpoint_pattern: '/a/:b/c' }`,
      'group',
    ],
    [
      `- { rule_id: a, limit: 1, window: 1m, ${GROUP}, when: { plan: [x, y] } }`,
      `- { ${B}, group: g, plan: x }`,
      'group',
    ],
    // One that does not.
    [`- { rule_id: a, limit: 1, window: 1m, ${GROUP}, plan: x }`, `- { ${B}, group: g }`, undefined],
    [`- { rule_id: a, limit: 1, window: 1m, ${GROUP}, method: GET }`, `- { ${B}, group: g }`, undefined],
    [`- { rule_id: a, limit: 1, window: 1m, ${GROUP}, mode: shadow }`, `- { ${B}, group: g }`, undefined],
    [`- { rule_id: a, limit: 1, window: 1m, ${GROUP}, enforce_at: edge }`, `- { ${B}, group: g }`, undefined],
    [`- { rule_id: a, limit: 1, window: 1m, ${GROUP}, expires_at: '2031-01-01' }`, `- { ${B}, group: g }`, undefined],
    [
      `- { rule_id: a, limit: 1, window: 1m, ${GROUP}, endpoint_pattern: '/a/*' }`,
      `- { ${B}, group: g, endpoint_pattern: '/a/**' }`,
      undefined,
    ],
    // Two conditions of one rule on the same fact.
    ['[]', `- { ${B}, plan: free, when: { plan: [pro] } }`, 'when.plan'],
    ['[]', `- { ${B}, plan: free, when: { plan: { not: [fr*] } } }`, 'when.plan'],
    ['[]', `- { ${B}, plan: free, when: { plan: [fr*] } }`, undefined],
    ['[]', `- { ${B}, method: [GET, HEAD], when: { method: [POST] } }`, 'when.method'],
    // Regular expressions that are paths as well.
    ['[]', `- { ${B}, endpoint_pattern: /api/.+ }`, 'endpoint_pattern'],
    ['[]', `- { ${B}, endpoint_pattern: /api$ }`, 'endpoint_pattern'],
    ['[]', `- { ${B}, endpoint_pattern: /a+b/$x/c(d) }`, undefined],
    // Limits that others imply.
    ['[]', '- { rule_id: b, limits: [{ limit: 1, window: 1s }, { limit: 60, window: 1m }] }', 'limits[1]'],
    ['[]', '- { rule_id: b, limits: [{ limit: 1, window: 1s }, { limit: 59, window: 1m }] }', undefined],
    ['[]', '- { rule_id: b, limits: [{ limit: 2, window: 1s }, { limit: 60, window: 1m }] }', undefined],
    [
      '[]',
      '- { rule_id: b, algorithm: fixed_window, limits: [{ limit: 9, window: 2s }, { limit: 99, window: 5s }] }',
      undefined,
    ],
  ])('%s and then %s: %s', (before, rule, field) => {
    const path = ruleFile(`${before === '[]' ? '' : `${before}\n`}${rule}\n`)
    const rules = readRuleFile(path)
    const found = lintWarnings(rules, NOW_MS).map((doubt) => doubt.field)
    expect(found).toEqual(field === undefined ? [] : [`rules[${rules.length - 1}].${field}`])
  })

  test('a rule expires at its time, not before', () => {
    const rules = readRuleFile(ruleFile("- { rule_id: a, limit: 1, window: 1m, expires_at: '2030-01-31T00:00:00Z' }\n"))
    expect(lintWarnings(rules, NOW_MS - 1)).toEqual([])
    expect(lintWarnings(rules, NOW_MS)).toMatchObject([{ field: 'rules[0].expires_at' }])
  })
})
