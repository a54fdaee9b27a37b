import { LimiterError } from 'sluice'
import { describe, expect, test } from 'vitest'
import { exampleRulesPath } from '../src/package-facts.ts'
import { readRuleFile } from '../src/rules/rule-file.ts'
import { readYaml } from '../src/rules/source-text.ts'
import { MESSAGES_RULE, ruleFile } from './service.ts'

function mistakesOf(content: string, name?: string): string[] {
  const path = ruleFile(content, name)
  try {
    readRuleFile(path)
  } catch (error) {
    if (!(error instanceof LimiterError)) throw error
    expect(error.code).toBe('RULE_INVALID')
    return error.message
      .replace('[RULE_INVALID] ', '')
      .split('\n')
      .map((line) => line.replace(path, 'file'))
  }
  return []
}

describe('a valid rule file', () => {
  const yaml = `rules:\n  - ${JSON.stringify(MESSAGES_RULE)}\n`

  test.each([
    ['YAML with rules', yaml, 'rules.yaml'],
    ['a YAML list', `- ${JSON.stringify(MESSAGES_RULE)}`, 'rules.yml'],
    ['JSON with rules', JSON.stringify({ rules: [MESSAGES_RULE] }), 'rules.json'],
    ['a JSON list', JSON.stringify([MESSAGES_RULE]), 'rules.json'],
    ['JSON in a file of another name', JSON.stringify([MESSAGES_RULE]), 'rules'],
  ])('%s', (_name, content, name) => {
    expect(readRuleFile(ruleFile(content, name))).toMatchObject([
      { rule_id: 'messages_per_min', limits: [{ limit: 100 }] },
    ])
  })

  test('a rule may extend another by alias and merge key', () => {
    const content = '- &first { rule_id: a, limit: 100, window: 1m }\n- { <<: *first, rule_id: b, scope: per_ip }\n'
    const [first, second] = readRuleFile(ruleFile(content))
    expect(second).toEqual({ ...first, rule_id: 'b', scope: ['ip'] })
  })

  test('the example rules are valid, and show the main features', () => {
    const rules = readRuleFile(exampleRulesPath())
    const algorithms = new Set(rules.map(({ algorithm }) => algorithm))
    expect(rules.length).toBeGreaterThanOrEqual(8)
    expect(algorithms.size).toBeGreaterThanOrEqual(5)
    expect(rules.some(({ mode }) => mode === 'shadow')).toBe(true)
    expect(rules.some(({ limits }) => limits.length === 4)).toBe(true)
    expect(rules.some(({ by_plan: byPlan }) => 'pro' in byPlan)).toBe(true)
  })
})

const TEN_MISTAKES = `# ten mistakes
rules:
  - rule_id: Upper Case
    limit: 1
    window_seconds: 1
  - rule_id: b
    limit: -5
    window_seconds: 1
  - rule_id: c
    limit: 1
    window_seconds: 0
  - rule_id: d
    limit: 1
    window_seconds: 1
    method: GTE
  - rule_id: e
    limit: 1
    window_seconds: 1
    algoritm: fixed_window
  - rule_id: f
    limit: 1
    window_seconds: 1
    scope: per_usr
  - rule_id: g
    limit: 1
    window_seconds: 1
    burst: 0
  - rule_id: h
    window_seconds: 1
  - rule_id: b
    limit: 1
    window_seconds: 1
    endpoint_pattern: no-slash
  - rule_id: c
    limits:
      - limit: 1
        window_seconds: 1
      - limit: many
        window: 1m
`

test('ten mistakes yield ten messages, each with file, line, field, value and fix', () => {
  const mistakes = mistakesOf(TEN_MISTAKES)
  for (const mistake of mistakes) expect(mistake).toMatch(/^file:\d+: rules\[\d\]\S+: .+ \(got .+\)$/)
  const places = mistakes.map((mistake) => /^file:(\d+): (\S+):/.exec(mistake)?.slice(1).join(' '))
  expect(places).toEqual([
    '3 rules[0].rule_id',
    '7 rules[1].limit',
    '11 rules[2].window_seconds',
    '15 rules[3].method',
    '19 rules[4].algoritm',
    '23 rules[5].scope',
    '27 rules[6].burst',
    '28 rules[7].limit',
    '33 rules[8].endpoint_pattern',
    '38 rules[9].limits[1].limit',
  ])
  expect(mistakes[3]).toBe('file:15: rules[3].method: unknown method; did you mean "GET"? (got "GTE")')
  expect(mistakes[4]).toBe('file:19: rules[4].algoritm: unknown field; did you mean "algorithm"? (got "fixed_window")')
})

describe('a file that is not a rule file', () => {
  test.each([
    [
      'malformed YAML',
      'rules:\n  - rule_id: a\n   limit: 1\n',
      'rules.yaml',
      /^file:3: fix the YAML syntax: .+ \(got "limit: 1"\)$/,
    ],
    [
      'a key given twice',
      'rules: []\nrules: []\n',
      'rules.yaml',
      /^file:2: fix the YAML syntax: Map keys must be unique/,
    ],
    [
      'several documents',
      'rules: []\n---\nrules: []\n',
      'rules.yaml',
      /^file:2: fix the YAML syntax: .*multiple documents/,
    ],
    ['an unknown tag', 'rules: !js [1]\n', 'rules.yaml', /^file:1: fix the YAML syntax: Unresolved tag: !js/],
    [
      'malformed JSON',
      '[\n  {"rule_id": "a",}\n]',
      'rules.json',
      /^file:2: fix the JSON syntax: unexpected character in column 19/,
    ],
    ['JSON that ends early', '[\n', 'rules.json', /^file:2: fix the JSON syntax: unexpected end/],
    ['a text', 'hello', 'rules.yaml', /^file:1: rules: give a list of rules \(got "a string of 5 characters"\)$/],
    ['nothing', '', 'rules.yaml', /^file.*: rules: give a list of rules/],
    ['a number in the list', '- 1\n', 'rules.yaml', /^file:1: rules\[0\]: give an object .*\(got 1\)$/],
    [
      'a file of 9 MB',
      `#${'x'.repeat(9_000_000)}`,
      'rules.yaml',
      /^file: file: give a file of at most 8388608 bytes \(got "9000001 bytes"\)$/,
    ],
    [
      'a mistake in JSON',
      '[\n{"rule_id":"a",\n"limit":-1,"window_seconds":1}]',
      'rules.json',
      /^file:3: rules\[0\]\.limit: give a whole number/,
    ],
  ])('%s', (_name, content, name, expected) => expect(mistakesOf(content, name)[0]).toMatch(expected))

  test('an alias without an anchor has its line, and a trailing --- is no second document', () => {
    const rule = (id: string, window: string) => `- { rule_id: ${id}, limit: 1, window: ${window} }\n`
    expect(mistakesOf(`${rule('a', '1m')}${rule('b', '*nope')}`)).toEqual([
      expect.stringMatching(/^file:2: fix the YAML syntax: \*nope: no value before it has the anchor &nope/),
    ])
    expect(readRuleFile(ruleFile(`${rule('a', '1m')}---\n# end\n`))).toHaveLength(1)
  })

  test('nested aliases are rejected before they expand', () => {
    const levels = Array.from({ length: 20 }, (_, level) => {
      return `a${level}: &a${level} [${Array(9)
        .fill(level === 0 ? 'x' : `*a${level - 1}`)
        .join(',')}]`
    })
    expect(mistakesOf(levels.join('\n'))[0]).toMatch(/use at most 100 aliases/)
  })

  test('a hundred thousand brackets do not exhaust the stack', () => {
    expect(mistakesOf('['.repeat(100_000)).length).toBeGreaterThan(0)
    expect(mistakesOf(`${'['.repeat(100_000)}${']'.repeat(100_000)}`, 'rules.json').length).toBeGreaterThan(0)
  })

  test('a file that is not there', () => {
    expect(() => readRuleFile('/nowhere/rules.yaml')).toThrow(/give a readable file: ENOENT/)
  })

  test('a folder', () => expect(() => readRuleFile('/tmp')).toThrow(/give a readable file: EISDIR/))
})

/** Plain scalars that YAML 1.1 and 1.2 read differently, or that are not exact. */
const AMBIGUOUS = [
  ...['010', '-010', '00', '0o10', '0x10', '0b11', '1_000', '1:30', '1:30.5', '1e3', '1E+3', '1.5e3'],
  ...['.inf', '-.Inf', '.NaN', 'yes', 'No', 'ON', 'off', '9007199254740993', '99999999999999999999'],
]

describe('an ambiguous scalar', () => {
  test.each(AMBIGUOUS)('%s is refused with field, value and fix, wherever it is', (scalar) => {
    for (const [line, field] of [
      [`limit: ${scalar}`, 'limit'],
      [`name: ${scalar}`, 'name'],
      [`when: { country: ${scalar} }`, 'when.country'],
      [`when: { country: [NL, ${scalar}] }`, 'when.country[1]'],
    ] as const) {
      const list = mistakesOf(`- rule_id: a\n  ${line}\n`)
      expect(list[0]).toMatch(/^file:2: /)
      expect(list[0]).toMatch(
        new RegExp(`: rules\\[0\\]\\.${field.replace(/[[\]]/g, '\\$&')}: (write|put it in quotes) `),
      )
      expect(list[0]).toContain(`(got ${JSON.stringify(scalar)})`)
    }
    expect(mistakesOf(`rules:\n  - rule_id: a\n    limit: ${scalar}\n`)[0]).toMatch(
      /rules\[0\]\.limit: (write|put it in quotes) /,
    )
  })

  test.each(AMBIGUOUS)('%s is refused as the name of a field, and accepted in quotes', (name) => {
    const rule = (key: string) => `- rule_id: a\n  by_plan:\n    pro: { limit: 9 }\n    ${key}: { limit: 5 }\n`
    const [mistake = ''] = mistakesOf(rule(name))
    expect(mistake).toContain(`: rules[0].by_plan.${name}: `)
    expect(mistake).toMatch(/^file:[234]: .*(put it in quotes if it is a text)/)
    expect(mistake).toContain(`(got ${JSON.stringify(name)})`)
    expect(readYaml(rule(`"${name}"`)).errors).toEqual([])
  })

  test.each(['yes', 'No', 'ON', 'off'])('%s is probably a text: the fix begins with quotes', (word) => {
    const fix = 'put it in quotes if it is a text, or write true or false'
    expect(readYaml(`- { ${word}: 1, name: ${word} }`).errors).toMatchObject([{ fix }, { fix }])
  })

  test.each(AMBIGUOUS)('"%s" in quotes is a text, which is no number', (scalar) => {
    expect(readYaml(`- { rule_id: a, name: "${scalar}", limit: 1, window: 1d }`).errors).toEqual([])
    expect(mistakesOf(`- { rule_id: a, limit: "${scalar}", window: 1d }`)[0]).toContain('limit')
  })

  test.each(['0', '1', '10', '-5', '1000', '1.5', '9007199254740991', 'true', 'null', '~', '1d', '10m', '1/s', 'v010'])(
    '%s is not ambiguous',
    (scalar) => {
      expect(readYaml(`- { rule_id: a, limit: ${scalar} }`).errors).toEqual([])
    },
  )

  test.each(['2001:db8::1', '10.0.0.0/8', '2031-01-01T00:00:00Z', '/api/0x10', 'deadbeef', 'e10', '12:ab'])(
    'the text %s is not ambiguous',
    (scalar) => {
      expect(readYaml(`- { rule_id: a, name: ${scalar} }`).errors).toEqual([])
    },
  )
})
