// Configurations of envoyproxy/ratelimit: all 16 keys are read, every mistake has a line, and traps are warnings.

import { describe, expect, it } from 'vitest'
import type { ConfigNode } from './config-finding.ts'
import { lintConfig } from './config-lint.ts'
import { CONFIG_KEYS, readConfig } from './config-reader.ts'
import { matchesWildcard } from './wildcard.ts'

const ALL_KEYS = `
domain: all
descriptors:
  - key: path
    value: /api/*
    share_threshold: yes
    value_to_metric: true
    detailed_metric: false
    metadata: { tier: 1, tags: [a, b] }
    rate_limit:
      name: api
      unit: MINUTE
      requests_per_unit: 10
      replaces: [{ name: other }]
    descriptors:
      - key: version
        value: 1.0
        shadow_mode: true
        quota_mode: true
        rate_limit: { unit: week, requests_per_unit: 4294967295, name: other }
  - key: staff
    rate_limit: { unlimited: true }
`

/** One limit as the body of a descriptor. */
const LIMIT = 'rate_limit: { unit: second, requests_per_unit: 1 }'

describe('a configuration of envoyproxy/ratelimit', () => {
  it('has 16 keys, and all of them are read', () => {
    expect(CONFIG_KEYS).toHaveLength(16)
    for (const key of CONFIG_KEYS) expect(ALL_KEYS, key).toContain(`${key}:`)
    const { domain, findings } = readConfig(ALL_KEYS)
    expect(findings).toEqual([])
    expect(domain).toMatchObject({
      domain: 'all',
      children: [
        {
          composite: 'path_/api/*',
          ...{ shareThreshold: true, valueToMetric: true, detailedMetric: false, line: 4 },
          metadata: { tier: 1, tags: ['a', 'b'] },
          rateLimit: { name: 'api', unit: 'minute', requestsPerUnit: 10, replaces: ['other'] },
          children: [{ composite: 'version_1.0', shadowMode: true, quotaMode: true, rateLimit: { unit: 'week' } }],
        },
        { composite: 'staff', rateLimit: { unit: undefined } },
      ],
    })
  })

  const README = '# Limits\n\nSee [docs](x): *all* of it\n- a: b\n'
  it.for(['', '# nothing', 'Ask the owner.', '- a', 'services: { web: {} }\nvolumes: {}', README])(
    '%j is no configuration: one error, whatever is in it',
    (text) => {
      const { domain, findings } = readConfig(text)
      expect(domain).toBeUndefined()
      const fix = expect.stringMatching(/^not a configuration: .*move the file away. Every file of a folder is read/)
      expect(findings).toEqual([{ severity: 'error', line: 1, field: 'file', value: undefined, fix }])
    },
  )

  it.for([
    ['domain: d\ndescriptors:\n  - keys: a', 3, 'descriptors[0].keys', 'did you mean "key"'],
    ['descriptors: []', 1, 'domain', 'give the domain'],
    ['domain: d\ndescriptors: { key: a }', 2, 'descriptors', 'give a list'],
    ['domain: d\ndescriptors:\n  - a', 3, 'descriptors[0]', 'give a map'],
    ['domain: d\ndescriptors:\n  - value: a', 3, 'descriptors[0].key', 'give the key'],
    [
      'domain: d\ndescriptors:\n  - key: a\n    rate_limit: { unit: fortnight }',
      4,
      'descriptors[0].rate_limit.unit',
      'second',
    ],
    [
      'domain: d\ndescriptors:\n  - key: a\n    rate_limit: { requests_per_unit: 1 }',
      4,
      'descriptors[0].rate_limit.unit',
      'one of',
    ],
    [
      'domain: d\ndescriptors:\n  - key: a\n    rate_limit:\n      unit: day\n      requests_per_unit: 1.5',
      ...([6, 'descriptors[0].rate_limit.requests_per_unit', 'whole number'] as const),
    ],
    [
      'domain: d\ndescriptors:\n  - key: a\n    rate_limit: { unit: day, unlimited: true }',
      4,
      'descriptors[0].rate_limit.unit',
      'remove it',
    ],
    [`domain: d\ndescriptors:\n  - { key: a, ${LIMIT} }\n  - { key: a, ${LIMIT} }`, 4, 'descriptors[1]', 'line 3'],
    ['domain: d\ndescriptors:\n  - key: a\n    share_threshold: true', 4, 'descriptors[0].share_threshold', 'wildcard'],
    ['domain: d\ndescriptors:\n  - key: a\n    shadow_mode: maybe', 4, 'descriptors[0].shadow_mode', 'true or false'],
    [
      'domain: d\ndescriptors:\n  - key: a\n    rate_limit: { unit: day, name: x, replaces: [{ name: x }] }',
      ...([4, 'descriptors[0].rate_limit.replaces[0].name', 'its own name'] as const),
    ],
    [
      'domain: d\ndescriptors: &a\n  - key: x\n    descriptors: *a',
      4,
      'descriptors[0].descriptors',
      'its anchor contains itself',
    ],
    [
      'domain: d\ndescriptors: &a\n  - { key: x, descriptors: *a }\n  - { key: y, descriptors: *a }',
      ...([4, 'descriptors[1].descriptors', 'its anchor contains itself'] as const),
    ],
    [
      `domain: d\ndescriptors:\n  - key: x\n    ${LIMIT}\n    metadata: &m\n      a: *m`,
      ...([6, 'descriptors[0].metadata.a', 'its anchor contains itself'] as const),
    ],
    [
      'domain: d\ndescriptors:\n  - { key: x, metadata: &m { a: [1, { b: *m }] } }',
      ...([3, 'descriptors[0].metadata.a[1].b', 'its anchor contains itself'] as const),
    ],
    [
      'domain: d\ndescriptors:\n  - { key: x, metadata: &m { <<: *m, a: 1 } }',
      ...([3, 'descriptors[0].metadata.<<', 'its anchor contains itself'] as const),
    ],
    ['domain: d\n: [', 2, 'line 2', 'YAML syntax'],
    [`domain: d\nx: ${'['.repeat(300)}`, 1, 'file', 'nest at most'],
  ] as const)('rejects %j', ([text, line, field, fix]) => {
    const { domain, findings } = readConfig(text)
    expect(domain).toBeUndefined()
    expect(findings).toContainEqual(expect.objectContaining({ severity: 'error', line, field }))
    expect(findings.map((one) => one.fix).join()).toContain(fix)
  })

  it.for([
    [
      'a wildcard after a wider one',
      `- { key: a, value: "*", ${LIMIT} }\n  - { key: a, value: b*, ${LIMIT} }`,
      4,
      'line 3',
    ],
    [
      'a key behind a wildcard for every value',
      `- { key: a, value: "*", ${LIMIT} }\n  - { key: a, ${LIMIT} }`,
      4,
      'unreachable',
    ],
    [
      'a branch without a descriptor that its default has',
      `- { key: a, value: x, ${LIMIT} }\n  - { key: a, descriptors: [{ key: c, ${LIMIT} }] }`,
      ...([3, 'never reach c in line 4'] as const),
    ],
    ['a descriptor without a limit', '- { key: a }', 3, 'no effect'],
    [
      'replaces without such a limit',
      '- { key: a, rate_limit: { unit: day, replaces: [{ name: no }] } }',
      3,
      'no limit of this domain',
    ],
    [
      'shadow_mode of a descriptor without a limit',
      `- { key: a, shadow_mode: true, descriptors: [{ key: b, ${LIMIT} }] }`,
      3,
      'no effect',
    ],
    ['a key in the wrong place', `- { key: a, unit: day, ${LIMIT} }`, 3, 'no effect here'],
    [
      'requests_per_unit of an unlimited limit',
      '- { key: a, rate_limit: { unlimited: true, requests_per_unit: 1 } }',
      3,
      'unlimited',
    ],
  ] as const)('warns about %s', ([, descriptors, line, fix]) => {
    const { domain, findings } = readConfig(`domain: d\ndescriptors:\n  ${descriptors}`)
    const all = [...findings, ...(domain === undefined ? [] : lintConfig(domain))]
    expect(all).toContainEqual(
      expect.objectContaining({ severity: 'warning', line, fix: expect.stringContaining(fix) }),
    )
    expect(all.filter(({ severity }) => severity === 'error')).toEqual([])
  })

  it('checks a large file without comparing all descriptors with each other', () => {
    let reads = 0
    const node = (value: string | undefined, line: number): ConfigNode => ({
      ...{ line, field: 'descriptors', value, rateLimit: undefined, metadata: undefined, children: [] },
      ...{ shadowMode: false, quotaMode: false, detailedMetric: false, valueToMetric: false, shareThreshold: false },
      composite: `ip_${value}`,
      get key() {
        reads += 1
        return 'ip'
      },
    })
    const exact = Array.from({ length: 20_000 }, (_, index) => node(`10.0.${index}`, index))
    const wildcards = Array.from({ length: 2000 }, (_, index) => node(`${index}.*.${index}`, index))
    lintConfig({ domain: 'd', line: 1, children: [...exact, node('10.0.*', 20_000), node(undefined, 20_001)] })
    expect(reads).toBeLessThan(10 * exact.length)
    const findings = lintConfig({ domain: 'd', line: 1, children: [...exact, ...wildcards] })
    expect(findings.filter(({ fix }) => fix.startsWith('use fewer wildcards'))).toHaveLength(1)
  })

  it('accepts empty fields', () => {
    const limit = 'rate_limit: { unit: day, requests_per_unit: 1, replaces: }'
    const { domain, findings } = readConfig(`domain: d\ndescriptors:\n  - key: a\n    ${limit}\n    descriptors:\n`)
    expect(findings).toEqual([])
    expect(domain?.children[0]?.rateLimit?.replaces).toEqual([])
  })

  it.for([
    ['a*', 'abc', true],
    ['*c', 'abc', true],
    ['a*c', 'ac', true],
    ['a*b*c', 'a/b/b/c', true],
    ['a*ba', 'aba', true],
    ['ab*ba', 'aba', false],
    ['*', '', true],
    ['a', 'ab', false],
    ['*a*a*', 'a', false],
  ] as const)('%s matches %s: %s', ([pattern, text, expected]) => {
    expect(matchesWildcard(pattern, text)).toBe(expected)
  })
})

const RANGE = 'give a whole number from 0 to 4294967295, in digits without quotes'

it.each([
  ['0100', `${RANGE}: write 64, as envoyproxy/ratelimit reads 0100, or 100, as others do`],
  ['+0_10', `${RANGE}: write 8, as envoyproxy/ratelimit reads +0_10, or 10, as others do`],
  ['00', `${RANGE}: write 0`],
  ['09', `${RANGE}: write 9`],
  ...['1e3', '10.0', '"10"', "'10'", '-1', '1:30', '4294967296', '0x1_0000_0000', '.inf', 'yes', '0x', '_1'].map(
    (number) => [number, RANGE],
  ),
])('requests_per_unit: %s is refused: parsers read another number, or none', (number, fix = '') => {
  const { domain, findings } = readConfig(
    `domain: d\ndescriptors:\n  - key: a\n    rate_limit:\n      unit: day\n      requests_per_unit: ${number}\n`,
  )
  expect(domain).toBeUndefined()
  const field = 'descriptors[0].rate_limit.requests_per_unit'
  expect(findings).toEqual([{ severity: 'error', line: 6, field, value: number.replace(/["']/g, ''), fix }])
})

it.each([
  ['0', 0],
  ['8', 8],
  ['+10', 10],
  ['4294967295', 4_294_967_295],
  ['1_000', 1000],
  ['0x10', 16],
  ['0XFF_FF', 65_535],
  ['0o17', 15],
  ['0b101', 5],
  ['', 0],
])('requests_per_unit: %s is %s', (text, number) => {
  const { domain, findings } = readConfig(
    `domain: d\ndescriptors: [{ key: a, rate_limit: { unit: day, requests_per_unit: ${text} } }]`,
  )
  expect(findings).toEqual([])
  expect(domain?.children[0]?.rateLimit?.requestsPerUnit).toBe(number)
})

describe('aliases and merge keys', () => {
  const base =
    'domain: d\ndescriptors:\n  - &base { key: j, rate_limit: { unit: day, requests_per_unit: 3, name: n } }\n'

  it.for([
    ['value: */api', 4, 'line 4', '*/api: no value before it has the anchor &/api; put it in quotes if it is a text'],
    ['rate_limit: *nope', 4, 'line 4', '*nope: no value before it has the anchor &nope'],
    ['<<: *nope', 4, 'line 4', '*nope: no value before it has the anchor &nope'],
    ['<<: text', 4, 'descriptors[1].<<', 'give a map of key'],
    ['<<: { keys: a }', 4, 'descriptors[1].<<.keys', 'did you mean "key"'],
    ['rate_limit: { unit: day }, <<: *base', 4, 'descriptors[1].rate_limit', 'put << before it'],
    ['<<: *base, rate_limit: { unit: hour, requests_per_unit: 1 }', 4, 'descriptors[1].rate_limit.name', 'here too'],
    ['metadata: { a: 1, <<: { a: 2 } }', 4, 'descriptors[1].metadata.<<', 'put it before all other fields'],
  ] as const)('{ key: k, %s } is refused with its line', ([fields, line, field, fix]) => {
    const { domain, findings } = readConfig(`${base}  - { key: k, ${fields} }\n`)
    expect(domain).toBeUndefined()
    expect(findings).toContainEqual(
      expect.objectContaining({ severity: 'error', line, field, fix: expect.stringContaining(fix) }),
    )
  })

  it.for([
    ['<<: *base, key: k', { name: 'n', requestsPerUnit: 3 }],
    ['<<: *base, key: k, rate_limit: { unit: day, requests_per_unit: 4, name: m }', { name: 'm', requestsPerUnit: 4 }],
    ['<<: [{ key: k }, *base]', { name: 'n', requestsPerUnit: 3 }],
    ['key: k, rate_limit: { <<: { unit: day, name: o }, requests_per_unit: 4 }', { name: 'o', requestsPerUnit: 4 }],
  ] as const)('{ %s } has the merged fields that it does not give', ([fields, limit]) => {
    const { domain, findings } = readConfig(`${base}  - { ${fields} }\n`)
    expect(findings).toEqual([])
    expect(domain?.children[1]).toMatchObject({ key: 'k', rateLimit: limit })
  })

  it('a map may stand anywhere to be merged', () => {
    const limits = 'rate_limit: &daily { unit: day, requests_per_unit: 3 }'
    const { domain, findings } = readConfig(`domain: d\n${limits}\ndescriptors: [{ key: k, rate_limit: *daily }]`)
    expect(findings).toEqual([])
    expect(domain?.children[0]?.rateLimit).toMatchObject({ unit: 'day', requestsPerUnit: 3 })
  })

  it('maps that merge themselves or each other many times cannot block the process', () => {
    expect(readConfig('domain: d\ndescriptors: [&a { <<: *a, key: k }]').findings).toMatchObject([
      { severity: 'error', line: 2, fix: 'remove it: the map merges itself' },
    ])
    const maps = Array.from({ length: 60 }, (_, index) => {
      const before = index === 0 ? '' : `<<: [*m${index - 1}, *m${index - 1}], `
      return `  - &m${index} { ${before}key: k${index}, rate_limit: { unit: day, requests_per_unit: 1 } }`
    })
    expect(readConfig(`domain: d\ndescriptors:\n${maps.join('\n')}`).findings).toEqual([])
  })
})

describe('aliases and merge keys that multiply a small text', () => {
  const many = (count: number, part: (index: number) => string, separator = '\n') =>
    Array.from({ length: count }, (_, index) => part(index)).join(separator)
  const map = (name: string) => `{ ${many(500, (index) => `${name}${index}: 1`, ', ')} }`
  const nodesOf = (nodes: readonly ConfigNode[]): ConfigNode[] =>
    nodes.flatMap((node) => [node, ...nodesOf(node.children)])

  it.for([
    [
      'doubling descriptors',
      many(
        40,
        (i) => `- &l${i} { key: k${i}, descriptors: [${i === 0 ? '' : `*l${i - 1}, { <<: *l${i - 1}, value: z }`}] }`,
      ),
    ],
    [
      'doubling metadata',
      many(40, (i) => `- { key: k${i}, metadata: &m${i} { ${i === 0 ? '' : `x: *m${i - 1}, y: *m${i - 1}`} } }`),
    ],
    [
      'merged metadata',
      `- { key: k, metadata: &m ${map('m')} }\n${many(200, (i) => `- { key: k${i}, metadata: { <<: *m, own: 1 } }`)}`,
    ],
    [
      'replaced metadata',
      `- &b { key: k, metadata: ${map('b')} }\n- { key: l, metadata: &m ${map('b')} }\n${many(
        600,
        (i) => `- { <<: *b, key: k${i}, metadata: *m }`,
      )}`,
    ],
    [
      'lists of merged maps',
      `- &b { key: k }\n- { <<: &l [${many(500, () => '*b', ', ')}], key: l }\n` +
        many(500, (i) => `- { <<: *l, key: k${i} }`),
    ],
    ['a long key', `- { key: &k ${'k'.repeat(100_000)} }\n${many(400, (i) => `- { key: *k, value: v${i} }`)}`],
  ] as const)('%s are refused at the line where they are too many', ([, descriptors]) => {
    const { domain, findings } = readConfig(`domain: d\ndescriptors:\n${descriptors}`)
    expect(domain).toBeUndefined()
    expect(findings).toMatchObject([
      {
        severity: 'error',
        line: expect.toSatisfy((line) => line > 3),
        fix: expect.stringContaining('use fewer aliases'),
      },
    ])
  })

  it('descriptors with aliases of one metadata share its value', () => {
    const { domain, findings } = readConfig(
      `domain: d\ndescriptors:\n- { key: k, metadata: &m ${map('m')} }\n` +
        many(1000, (index) => `- { key: k${index}, metadata: *m }`),
    )
    expect(findings).toEqual([])
    expect(new Set(nodesOf(domain?.children ?? []).map(({ metadata }) => metadata)).size).toBe(1)
  })

  it('thousands of descriptors may merge one map, and have the metadata that it has', () => {
    const { domain, findings } = readConfig(
      `domain: d\ndescriptors:\n- &base { key: k, metadata: { tier: 1, tags: [a] }, ${LIMIT} }\n` +
        many(3000, (index) => `- { <<: *base, key: k${index} }`),
    )
    expect(findings).toEqual([])
    expect(domain?.children.at(-1)).toMatchObject({ key: 'k2999', metadata: { tier: 1, tags: ['a'] } })
  })

  it('metadata has the values of its aliases, and of the maps that it merges', () => {
    const metadata = '{ <<: [{ a: 1, b: 1 }, { a: 2, c: 2 }], b: 3, list: [*v, ~], __proto__: 4, 5: x }'
    const { domain, findings } = readConfig(`domain: d\ndescriptors: [{ key: &v k, metadata: ${metadata} }]`)
    expect(findings).toEqual([])
    const value = JSON.parse('{ "5": "x", "a": 1, "b": 3, "c": 2, "list": ["k", null], "__proto__": 4 }')
    expect(domain?.children[0]?.metadata).toEqual(value)
    expect(Object.hasOwn(domain?.children[0]?.metadata ?? {}, '__proto__')).toBe(true)
  })
})

it.for([
  ['---', []],
  ['---\n# end\n\n...', []],
  ['--- # end', []],
  [
    '---\ndomain: e',
    [{ severity: 'error', line: 3, fix: expect.stringContaining('multiple documents; use a file for each') }],
  ],
  ['---#', [{ severity: 'error', line: 3 }]],
] as const)('a file that ends with %j', ([end, findings]) => {
  const text = `domain: d\ndescriptors: [{ key: k, ${LIMIT} }]\n${end}\n`
  expect(readConfig(text).findings).toMatchObject(findings)
})

it.each(['y', 'Y', 'yes', 'on', 'True'])('unlimited: %s is true', (text) => {
  const { domain, findings } = readConfig(`domain: d\ndescriptors: [{ key: k, rate_limit: { unlimited: ${text} } }]`)
  expect(findings).toEqual([])
  expect(domain?.children[0]?.rateLimit).toMatchObject({ unit: undefined })
})

it.each(['n', 'no', 'off', 'False'])('shadow_mode: %s is false', (text) => {
  const { domain } = readConfig(`domain: d\ndescriptors: [{ key: k, shadow_mode: ${text}, ${LIMIT} }]`)
  expect(domain?.children[0]?.shadowMode).toBe(false)
})

it('an ambiguous number in metadata is refused; keys and values of descriptors are texts, as written', () => {
  const config = (metadata: string) =>
    `domain: d\ndescriptors:\n  - { key: a, value: 010, metadata: { x: ${metadata} } }`
  expect(readConfig(config('010')).findings).toMatchObject([
    { severity: 'error', line: 3, field: 'descriptors[0].metadata.x', value: '010' },
  ])
  const { domain } = readConfig(config('"010"'))
  expect(domain?.children[0]).toMatchObject({ value: '010', metadata: { x: '010' } })
})
