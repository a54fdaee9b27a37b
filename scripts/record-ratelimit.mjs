// `npm run record-ratelimit`: records requests and answers of the real envoyproxy/ratelimit in
// packages/server/test/recorded/, which grpc/envoy-recorded.test.ts replays there. Needs Redis and Go:
//
//   git clone https://github.com/envoyproxy/ratelimit && cd ratelimit && git checkout <COMMIT below>
//   go build -o /tmp/ratelimit ./src/service_cmd && go build -o /tmp/ratelimit-check ./src/config_check_cmd
//   npm run record-ratelimit -- /tmp/ratelimit /tmp/ratelimit-check
//
// The recording was made with go-control-plane/ratelimit v0.1.1-0.20260729145720-a2d8c7492908 (`go mod edit -replace`)
// in place of the version in go.mod, which was not to be had. That module is for xDS only.
//
// A case runs within one second of the clock, so that a replay knows the time of each request: its `at` plus the
// seconds of its waits.

import { spawn, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'

const COMMIT = 'f2fb15770f7fd1c88ca6c3a1b58ee513917ace96'
const OUTPUT = fileURLToPath(new URL('../packages/server/test/recorded/envoyproxy-ratelimit.json', import.meta.url))
const [RATELIMIT, CONFIG_CHECK] = process.argv.slice(2)
if (CONFIG_CHECK === undefined) throw new Error('give the paths of the two programs: see the head of this file')

const CONFIGS = [
  `
domain: messaging
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: { unit: day, requests_per_unit: 2 }
  - key: message_type
    value: code
    rate_limit: { unit: minute, requests_per_unit: 3, name: codes }
    descriptors:
      - key: to_number
        value: "0"
        rate_limit: { unit: hour, requests_per_unit: 0 }
      - key: to_number
        rate_limit: { unit: hour, requests_per_unit: 4 }
  - key: to_number
    rate_limit: { unit: day, requests_per_unit: 5 }
  - key: plain
`,
  `
domain: units
descriptors:
${['second', 'minute', 'Hour', 'DAY', 'week', 'month', 'year']
  .map((unit) => `  - { key: ${unit.toLowerCase()}, rate_limit: { unit: ${unit}, requests_per_unit: 2 } }`)
  .join('\n')}
`,
  `
domain: wild
descriptors:
  - { key: path, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: path, value: /api/*, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: path, value: "*/admin", rate_limit: { unit: hour, requests_per_unit: 3 } }
  - { key: path, value: /a*b*c, rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: path, value: /api/exact, rate_limit: { unit: hour, requests_per_unit: 4 } }
  - { key: files, value: files/*, share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - key: dir
    value: d*
    share_threshold: true
    descriptors:
      - { key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - key: any*
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - { key: a, value: x, descriptors: [{ key: b, value: "1", rate_limit: { unit: hour, requests_per_unit: 1 } }] }
  - { key: a, descriptors: [{ key: c, rate_limit: { unit: hour, requests_per_unit: 1 } }] }
`,
  `
domain: modes
descriptors:
  - { key: free, rate_limit: { unlimited: true, name: free } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: ip, rate_limit: { name: per_ip, unit: hour, requests_per_unit: 2 } }
  - { key: user, value: bob, rate_limit: { name: bob, unit: hour, requests_per_unit: 3, replaces: [{ name: per_ip }] } }
  - { key: user, value: eve, rate_limit: { unlimited: true, replaces: [{ name: per_ip }, { name: free }] } }
  - { key: quota, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: extra, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: ghost, quota_mode: true, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: detail, detailed_metric: true, rate_limit: { unit: hour, requests_per_unit: 1, name: detail } }
  - { key: shown, value_to_metric: true, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: one, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: two, rate_limit: { unit: minute, requests_per_unit: 2 } }
  - { key: three, rate_limit: { unit: day, requests_per_unit: 3, name: three } }
  - { key: many, rate_limit: { unit: minute, requests_per_unit: 4294967295 } }
`,
  `
domain: facts
descriptors:
  - key: gold
    metadata: { tier: gold, weight: 2, tags: [a, b], nested: { a: 1, c: { d: true } } }
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: silver
    metadata: { tier: silver, other: x, nested: { b: 2, a: 9 } }
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: same
    metadata: { flat: 1 }
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: bare
    rate_limit: { unit: hour, requests_per_unit: 1 }
`,
]

/** Forms of YAML. Accepted texts get one request for `k=v`, which shows what they mean. */
const limitOf = (fields) =>
  `descriptors:\n  - key: k\n    rate_limit:\n${fields.map((one) => `      ${one}\n`).join('')}`
const listOf = (...lines) => `descriptors:\n${lines.join('\n')}\n`
const numberOf = (text) => limitOf(['unit: day', `requests_per_unit: ${text}`])
const DAY_3 = 'rate_limit: { unit: day, requests_per_unit: 3 }'
const FILES = {
  'a decimal number': numberOf('10'),
  'a hexadecimal number': numberOf('0x10'),
  'a hexadecimal number in capitals': numberOf('0X1F'),
  'a number with underscores': numberOf('1_000'),
  'a hexadecimal number with underscores': numberOf('0xFF_FF'),
  'an octal number with 0o': numberOf('0o17'),
  'a binary number': numberOf('0b101'),
  'a number with a plus': numberOf('+5'),
  'a number with leading zeros': numberOf('0100'),
  'a number with leading zeros and an underscore': numberOf('0_100'),
  'a number with a leading zero that is not octal': numberOf('09'),
  'two zeros': numberOf('00'),
  'a number with an exponent': numberOf('1e3'),
  'a number with a fraction': numberOf('10.0'),
  'a number in quotes': numberOf('"10"'),
  'a number in base 60': numberOf('1:30'),
  'a negative number': numberOf('-1'),
  'a number of 33 bits': numberOf('4294967296'),
  'no number': numberOf(''),
  'a null': numberOf('~'),
  ...Object.fromEntries(
    ['y', 'Y', 'yes', 'Yes', 'on', 'ON', 'true', 'True', '"true"', 'n', 'no', 'off', 'false', 'maybe', 'yEs', '1'].map(
      (text) => [`unlimited: ${text}`, limitOf([`unlimited: ${text}`])],
    ),
  ),
  'shadow_mode: y': `descriptors:\n  - key: k\n    shadow_mode: y\n    ${DAY_3}\n`,
  'an alias': listOf(
    '  - key: j',
    '    rate_limit: &l { unit: day, requests_per_unit: 3 }',
    '  - key: k',
    '    rate_limit: *l',
  ),
  'an alias without an anchor': 'descriptors:\n  - key: k\n    rate_limit: *nope\n',
  'a wildcard without quotes': `descriptors:\n  - key: k\n    value: */api\n    ${DAY_3}\n`,
  'an alias before its anchor': listOf(
    '  - key: k',
    '    rate_limit: *l',
    '  - key: j',
    '    rate_limit: &l { unit: day, requests_per_unit: 3 }',
  ),
  'a merge key': `descriptors:\n  - &base\n    key: j\n    ${DAY_3}\n  - <<: *base\n    key: k\n`,
  'a merge key in a limit': listOf(
    '  - key: j',
    '    rate_limit: &l { unit: day, requests_per_unit: 3 }',
    '  - key: k',
    '    rate_limit:',
    '      <<: *l',
    '      requests_per_unit: 7',
  ),
  'a merge key of a list': listOf(
    '  - key: i',
    '    rate_limit: &m { unit: hour, requests_per_unit: 2, name: m }',
    '  - key: j',
    '    rate_limit: &l { unit: day, requests_per_unit: 3 }',
    '  - key: k',
    '    rate_limit:',
    '      <<: [*l, *m]',
  ),
  'a merge key after what it would change': listOf(
    '  - key: j',
    '    rate_limit: &l { unit: day, requests_per_unit: 3 }',
    '  - key: k',
    '    rate_limit:',
    '      requests_per_unit: 7',
    '      <<: *l',
  ),
  'a merged limit that is changed in part': listOf(
    '  - &base',
    '    key: j',
    '    rate_limit: { unit: day, requests_per_unit: 3, name: base }',
    '  - <<: *base',
    '    key: k',
    '    rate_limit: { unit: hour, requests_per_unit: 7 }',
  ),
  'two merge keys': listOf(
    '  - key: i',
    '    rate_limit: &m { unit: hour, requests_per_unit: 2, name: m }',
    '  - key: j',
    '    rate_limit: &l { unit: day, requests_per_unit: 3 }',
    '  - key: k',
    '    rate_limit:',
    '      <<: *l',
    '      <<: *m',
  ),
  'a merge key of a text': `descriptors:\n  - key: k\n    <<: text\n    ${DAY_3}\n`,
  'a merge key without an anchor': `descriptors:\n  - key: k\n    <<: *nope\n    ${DAY_3}\n`,
  'a merge key in quotes': `descriptors:\n  - key: k\n    "<<": { ${DAY_3} }\n`,
  'a merged map at the root': `descriptors:\n  - key: k\n    ${DAY_3}\n<<: {}\n`,
  'a merge key in metadata': listOf(
    '  - key: j',
    '    metadata: &m { a: 1 }',
    '  - key: k',
    '    metadata: { <<: *m, b: 2 }',
    `    ${DAY_3}`,
  ),
  'a trailing ---': `descriptors:\n  - key: k\n    ${DAY_3}\n---\n`,
  'a trailing --- and comments': `descriptors:\n  - key: k\n    ${DAY_3}\n---\n# end\n\n`,
  'a trailing ...': `descriptors:\n  - key: k\n    ${DAY_3}\n...\n`,
  'a second document': `descriptors:\n  - key: k\n    ${DAY_3}\n---\ndomain: other\n`,
  'a key twice': listOf('  - key: k', '    rate_limit: { unit: day, requests_per_unit: 3, requests_per_unit: 4 }'),
  'a value with leading zeros': `descriptors:\n  - { key: k, value: 010 }\n  - { key: k, ${DAY_3} }\n`,
  'a unit in quotes': limitOf(['unit: "day"', 'requests_per_unit: 3']),
  'no unit': limitOf(['requests_per_unit: 3']),
  'an unknown key': `descriptors:\n  - key: k\n    rate_limt: { unit: day }\n`,
  'a byte order mark': '\uFEFF',
}

/** Entries as `key=value`. An object adds hits, or a limit such as `[5, 'MINUTE']`. */
function request(domain, descriptors, hitsAddend) {
  return {
    domain,
    descriptors: descriptors.map((one) => {
      const { entries, hits, limit } = Array.isArray(one) ? { entries: one } : one
      return {
        entries: entries.map((entry) => {
          const at = entry.indexOf('=')
          return { key: entry.slice(0, at), value: entry.slice(at + 1) }
        }),
        ...(limit && { limit: { requestsPerUnit: limit[0], unit: limit[1] } }),
        ...(hits !== undefined && { hitsAddend: hits }),
      }
    }),
    ...(hitsAddend && { hitsAddend }),
  }
}

const times = (count, ...args) => Array.from({ length: count }, () => request(...args))
const WAIT = { wait: 1 }

const marketing = (number) => [['message_type=marketing', `to_number=${number}`], [`to_number=${number}`]]
const MODES = ['one', 'two', 'three', 'shadow', 'quota', 'extra', 'ghost', 'free', 'none']

/** Sequences that every switch of the environment may change. */
const SWITCHED = [
  {
    name: 'one of two limits is over',
    steps: times(4, 'modes', [['one=a'], ['three=a']]),
  },
  {
    name: 'both limits are over, in both orders',
    steps: [
      ...times(2, 'modes', [['one=b'], ['two=b']]),
      ...times(2, 'modes', [['two=b'], ['one=b']]),
      request('modes', [['two=b']]),
    ],
  },
  { name: 'a limit beside a descriptor without one', steps: times(2, 'modes', [['one=c'], ['none=c']]) },
  { name: 'a limit beside an unlimited one', steps: times(2, 'modes', [['one=d'], ['free=d']]) },
  { name: 'a shadow limit beside another one', steps: times(3, 'modes', [['shadow=e'], ['three=e']]) },
  { name: 'quotas', steps: times(4, 'modes', [['quota=f'], ['extra=f'], ['three=f']]) },
  { name: 'a quota alone', steps: times(2, 'modes', [['quota=g']]) },
  { name: 'a quota in shadow mode', steps: times(3, 'modes', [['ghost=g'], ['quota=h']]) },
  {
    name: 'hits beyond what is left',
    steps: [
      request('modes', [['three=h'], ['two=h']], 2),
      request('modes', [['three=h'], ['two=h']], 2),
      request('modes', [
        { entries: ['three=h'], hits: 0 },
        { entries: ['two=h'], hits: 0 },
      ]),
      request('modes', [
        { entries: ['three=h'], hits: 1 },
        { entries: ['two=h'], hits: 0 },
      ]),
      request('modes', [['three=h']]),
    ],
  },
  {
    name: 'a limit in the request beside another one',
    steps: [
      ...times(3, 'modes', [{ entries: ['one=i'], limit: [2, 'MINUTE'] }, ['three=i']]),
      request('modes', [['one=i']]),
    ],
  },
  { name: 'replaced limits', steps: times(4, 'modes', [['ip=1.2.3.4'], ['user=bob']]) },
  { name: 'nothing matches', steps: [request('modes', [['none=a'], ['nor=b']]), request('unknown', [['one=a']])] },
  { name: 'a random mixture', steps: randomRequests(7, 14) },
]

const BASE = [
  {
    name: 'nested descriptors, two limits in one request',
    steps: [
      ...times(3, 'messaging', marketing('1')),
      request('messaging', marketing('2')),
      request('messaging', [['to_number=1']]),
      request('messaging', [['message_type=billing', 'to_number=1']]),
      ...times(2, 'messaging', [['to_number=1']]),
    ],
  },
  {
    name: 'an inner limit applies only to requests that end there',
    steps: [
      ...times(4, 'messaging', [['message_type=code']]),
      request('messaging', [['message_type=code', 'to_number=0']]),
      ...times(2, 'messaging', [['message_type=code', 'to_number=7']]),
      request('messaging', [['message_type=code', 'to_number=7', 'more=1']]),
      request('messaging', [['message_type=code', 'other=7']]),
      request('messaging', [['to_number=7', 'message_type=code']]),
      request('messaging', [['plain=a']]),
      request('messaging', [['message_type=marketing']]),
    ],
  },
  {
    name: 'entries with empty values, and keys that hold underscores',
    steps: [
      request('messaging', [['to_number=']]),
      request('messaging', [['to_number=']]),
      request('messaging', [['message_type_code=']]),
      request('messaging', [['message_type_marketing=', 'to_number=1']]),
      request('messaging', [['message=type_code']]),
    ],
  },
  ...['second', 'minute', 'hour', 'day', 'week', 'month', 'year'].map((unit) => ({
    name: `a window of a ${unit}`,
    steps: times(3, 'units', [[`${unit}=a`]]),
  })),
  {
    name: 'all units in one request, over a second',
    steps: [
      ...times(3, 'units', [['second=b'], ['minute=b'], ['hour=b'], ['day=b'], ['week=b'], ['month=b'], ['year=b']]),
      WAIT,
      request('units', [['second=b'], ['minute=b']]),
      request('units', [['second=b']]),
      request('units', [['second=b']]),
    ],
  },
  {
    name: 'wildcards',
    steps: [
      '/api/exact',
      '/api/exact',
      '/api/x/admin',
      '/api/y/admin',
      '/x/admin',
      '/x/admin',
      '/abc',
      '/a//b//c',
      '/acb',
      '/x',
      '/x',
      '/api/',
      '/admin',
    ].map((path) => request('wild', [[`path=${path}`]])),
  },
  {
    name: 'shared counters of wildcards',
    steps: [
      ...['a', 'b', 'c'].map((name) => request('wild', [[`files=files/${name}`]])),
      request('wild', [['files=files/']]),
      request('wild', [['dir=d1', 'user=a']]),
      request('wild', [['dir=d2', 'user=a']]),
      request('wild', [['dir=d2', 'user=b']]),
      request('wild', [['dir=e', 'user=b']]),
    ],
  },
  {
    name: 'a wildcard in a key without a value, and no backtracking',
    steps: [
      ...times(2, 'wild', [['any=1']]),
      request('wild', [['anything=1']]),
      request('wild', [['a=x', 'c=1']]),
      ...times(2, 'wild', [['a=y', 'c=1']]),
      ...times(2, 'wild', [['a=x', 'b=1']]),
    ],
  },
  {
    name: 'unlimited, and what it replaces',
    steps: [
      ...times(2, 'modes', [['free=a']]),
      ...times(3, 'modes', [['ip=1'], ['user=eve'], ['free=a']]),
      ...times(3, 'modes', [['ip=1'], ['user=bob'], ['free=a']]),
      ...times(3, 'modes', [['ip=1'], ['user=alice']]),
      request('modes', [['user=bob']]),
    ],
  },
  { name: 'shadow_mode', steps: times(3, 'modes', [['shadow=a']]) },
  { name: 'detailed_metric and value_to_metric', steps: times(3, 'modes', [['detail=a'], ['shown=a']]) },
  {
    name: 'hits of the request and of descriptors',
    steps: [
      request('modes', [{ entries: ['three=b'], hits: 0 }], 7),
      request('modes', [{ entries: ['three=b'], hits: 2 }], 7),
      request('modes', [['three=c']], 2),
      request('modes', [['three=c']], 2),
      request('modes', [{ entries: ['three=c'], hits: 0 }]),
      request('modes', [{ entries: ['three=b'], hits: 0 }, ['three=d']]),
      request('modes', [['many=a']], 4294967295),
      request('modes', [['many=a']]),
      request('modes', [{ entries: ['many=b'], hits: 4294967294 }]),
      request('modes', [{ entries: ['many=b'], hits: 1 }]),
      request('modes', [{ entries: ['many=b'], hits: 1 }]),
    ],
  },
  {
    name: 'a limit in the request',
    steps: [
      ...times(3, 'modes', [{ entries: ['three=e'], limit: [2, 'MINUTE'] }]),
      request('modes', [['three=e']]),
      request('modes', [{ entries: ['free=e'], limit: [1, 'SECOND'] }]),
      ...times(2, 'modes', [{ entries: ['shadow=e'], limit: [1, 'MONTH'] }]),
      ...times(2, 'modes', [{ entries: ['none=e', 'nor=f'], limit: [1, 'YEAR'] }]),
      ...times(2, 'modes', [{ entries: ['quota=e'], limit: [1, 'DAY'] }, ['three=f']]),
      request('modes', [{ entries: ['ip=e'], limit: [0, 'HOUR'] }, ['user=bob']]),
      request('unknown', [{ entries: ['ip=e'], limit: [0, 'HOUR'] }]),
    ],
  },
  {
    name: 'one descriptor twice shares its counter',
    steps: [
      ...times(2, 'modes', [['three=g'], ['three=g']]),
      request('modes', [
        { entries: ['three=h'], hits: 2 },
        { entries: ['three=h'], hits: 1 },
      ]),
      request('modes', [{ entries: ['three=h'], hits: 0 }, ['three=h']]),
      request('wild', [['files=files/x'], ['files=files/y'], ['files=files/z']]),
    ],
  },
  {
    name: 'a limit of the configuration and one of the request share their counter',
    steps: times(5, 'modes', [['three=i'], { entries: ['three=i'], limit: [4, 'DAY'] }]),
  },
  {
    name: 'requests that no limit can decide',
    steps: [request('', [['one=a']]), request('modes', []), request('unknown', [['one=a']])],
  },
  { name: 'a random mixture of nested descriptors', steps: randomMessages(11, 24) },
]

const LOCAL_CACHE = { LOCAL_CACHE_SIZE_IN_BYTES: '1048576' }
const REFUSED_TWICE = [...SWITCHED.slice(0, 2), ...SWITCHED.slice(8)]
const HEADERS = { LIMIT_RESPONSE_HEADERS_ENABLED: 'true' }
const METADATA = [
  { name: 'metadata of one limit', steps: times(3, 'facts', [['gold=a']]) },
  { name: 'metadata of a limit without any', steps: times(2, 'facts', [['bare=a']]) },
  { name: 'metadata with the same value', steps: [request('facts', [['same=a'], ['bare=b']])] },
  { name: 'metadata when nothing matches', steps: [request('facts', [['none=a']]), request('unknown', [['a=b']])] },
  { name: 'metadata with hits of the request', steps: [request('facts', [['same=b']], 3)] },
  { name: 'metadata with hits of a descriptor', steps: [request('facts', [{ entries: ['same=c'], hits: 0 }])] },
  // Last: it changes what this process has in memory.
  { name: 'metadata of two limits', steps: times(1, 'facts', [['gold=z'], ['silver=z']]) },
]

const RUNS = [
  { env: {}, cases: [...BASE, ...SWITCHED] },
  { env: HEADERS, cases: SWITCHED },
  {
    env: { ...HEADERS, LIMIT_LIMIT_HEADER: 'X-Limit', LIMIT_REMAINING_HEADER: 'X-Left', LIMIT_RESET_HEADER: 'X-Reset' },
    cases: SWITCHED.slice(0, 2),
  },
  { env: { RESPONSE_DYNAMIC_METADATA: 'true' }, cases: METADATA },
  { env: { ...HEADERS, SHADOW_MODE: 'true' }, cases: SWITCHED },
  { env: { ...HEADERS, QUOTA_MODE: 'true' }, cases: SWITCHED },
  { env: { QUOTA_MODE: 'true', SHADOW_MODE: 'true' }, cases: SWITCHED.slice(0, 6) },
  { env: { ...HEADERS, STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: 'true' }, cases: SWITCHED },
  { env: LOCAL_CACHE, cases: REFUSED_TWICE },
  { env: { ...LOCAL_CACHE, STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: 'true' }, cases: REFUSED_TWICE },
  { env: { CACHE_KEY_PREFIX: 'blue:' }, cases: SWITCHED.slice(0, 2) },
]

function numbers(seed) {
  let state = seed
  return (below) => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31
    return Math.floor((state / 2 ** 31) * below)
  }
}

function randomRequests(seed, count) {
  const next = numbers(seed)
  return Array.from({ length: count }, () => {
    const names = MODES.filter(() => next(3) === 0)
    const descriptors = (names.length === 0 ? ['one'] : names).map((name) => {
      const entries = [`${name}=${'rs'[next(2)]}`]
      return next(4) === 0 ? { entries, hits: next(3) } : entries
    })
    return request('modes', descriptors, next(5) === 0 ? 2 : undefined)
  })
}

function randomMessages(seed, count) {
  const next = numbers(seed)
  const entry = () => [`message_type=${['marketing', 'code', 'x'][next(3)]}`, `to_number=${next(2)}`][next(2)]
  return Array.from({ length: count }, () => {
    const descriptors = Array.from({ length: 1 + next(2) }, (_, index) => {
      const entries = Array.from({ length: 1 + next(2) }, entry)
      return [...entries, ...(index === 1 ? [`to_number=${2 + next(2)}`] : [])]
    })
    return request('messaging', descriptors)
  })
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const { port } = server.address()
  await new Promise((resolve) => server.close(resolve))
  return port
}

async function until(check) {
  for (let attempt = 0; attempt < 200; attempt += 1) {
    if (await check().catch(() => false)) return
    await sleep(50)
  }
  throw new Error(`not ready after 10 s: ${check}`)
}

const folder = mkdtempSync(join(tmpdir(), 'record-'))
const redisPort = await freePort()
const redisProcess = spawn('redis-server', ['--port', String(redisPort), '--save', '', '--dir', folder])
const redis = new Redis(redisPort, { lazyConnect: true, retryStrategy: () => 50 })

/** Runs the service on these files until `use` is done. */
async function serve(texts, env, use) {
  const root = mkdtempSync(join(folder, 'runtime-'))
  mkdirSync(join(root, 'ratelimit/config'), { recursive: true })
  for (const [index, text] of texts.entries()) writeFileSync(join(root, `ratelimit/config/${index}.yaml`), text)
  const [port, grpc, debug] = [await freePort(), await freePort(), await freePort()].map(String)
  const child = spawn(RATELIMIT, {
    env: {
      ...{ PORT: port, GRPC_PORT: grpc, DEBUG_PORT: debug, HOST: '127.0.0.1', USE_STATSD: 'false' },
      ...{ DISABLE_STATS: 'true', LOG_LEVEL: 'error', RUNTIME_ROOT: root, RUNTIME_SUBDIRECTORY: 'ratelimit' },
      ...{ RUNTIME_WATCH_ROOT: 'false', REDIS_SOCKET_TYPE: 'tcp', REDIS_URL: `127.0.0.1:${redisPort}`, ...env },
    },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const url = `http://127.0.0.1:${port}`
  try {
    await until(async () => (await fetch(`${url}/healthcheck`)).ok)
    return await use(async (body) => {
      const response = await fetch(`${url}/json`, { method: 'POST', body: JSON.stringify(body) })
      const text = await response.text()
      return response.status === 200 || response.status === 429 ? JSON.parse(text) : { status: response.status }
    })
  } finally {
    child.kill()
  }
}

async function nowSeconds() {
  const [seconds, us] = await redis.time()
  return Number(seconds) + Number(us) / 1_000_000
}

/** Waits for the next second of the clock. */
async function nextSecond() {
  const second = Math.floor(await nowSeconds()) + 1
  for (;;) {
    const left = second - (await nowSeconds())
    if (left <= 0) return second
    await sleep(left * 1000)
  }
}

/**
 * Repeats a case that did not run within its seconds. Not in the first minute of an hour, when counters of several
 * units share a key: see "keys of counters" in docs/guides/envoy.md.
 */
async function record({ name, steps }, ask) {
  for (;;) {
    await redis.flushall()
    const at = await nextSecond()
    if (at % 3600 < 60) continue
    let second = at
    const recorded = []
    for (const step of steps) {
      if (step.wait === undefined) recorded.push([step, await ask(step)])
      if (Math.floor(await nowSeconds()) !== second) break
      if (step.wait === undefined) continue
      second = await nextSecond()
      recorded.push(step)
    }
    if (recorded.length === steps.length && Math.floor(await nowSeconds()) === second)
      return { name, at, steps: recorded }
  }
}

function checked(text) {
  const config = mkdtempSync(join(folder, 'check-'))
  writeFileSync(join(config, 'a.yaml'), text)
  const { status, stdout, stderr } = spawnSync(CONFIG_CHECK, ['-config_dir', config], { encoding: 'utf8' })
  if (status === 0) return undefined
  const [, error] = /a\.yaml: (.*(?:\n +.*)?)/.exec(`${stdout}\n${stderr}`) ?? []
  return error?.replace(/\s+/g, ' ') ?? 'rejected'
}

try {
  await until(() => redis.ping())
  const runs = []
  for (const { env, cases } of RUNS) {
    const recorded = await serve(CONFIGS, env, async (ask) => {
      const all = []
      for (const one of cases) all.push(await record(one, ask))
      return all
    })
    runs.push({ env, cases: recorded })
    console.log(JSON.stringify(env), recorded.length, 'cases')
  }
  const files = Object.entries(FILES).map(([name, text], index) => {
    const domain = `f${index}`
    const file = text.startsWith('\uFEFF')
      ? `\uFEFFdomain: ${domain}\ndescriptors: [{ key: k, ${DAY_3} }]\n`
      : `domain: ${domain}\n${text}`
    return { name, domain, text: file, error: checked(file) }
  })
  const accepted = files.filter(({ error }) => error === undefined)
  await serve(
    accepted.map(({ text }) => text),
    { RESPONSE_DYNAMIC_METADATA: 'true' },
    async (ask) => {
      for (const file of accepted) {
        const { statuses, dynamicMetadata } = await ask(request(file.domain, [['k=v']]))
        const { durationUntilReset: _, ...status } = statuses[0]
        Object.assign(file, { status, ...(dynamicMetadata.metadata && { metadata: dynamicMetadata.metadata }) })
      }
    },
  )
  const line = (value) => JSON.stringify(value)
  const lines = (values, indent) => values.map((value) => `${indent}${line(value)}`).join(',\n')
  const runTexts = runs.map(({ env, cases }) => {
    const caseTexts = cases.map(({ name, at, steps }) => {
      return `{"name":${line(name)},"at":${at},"steps":[\n${lines(steps, '  ')}\n ]}`
    })
    return ` {"env":${line(env)},"cases":[${caseTexts.join(',\n ')}]}`
  })
  mkdirSync(dirname(OUTPUT), { recursive: true })
  writeFileSync(
    OUTPUT,
    `{"commit":"${COMMIT}",\n"configs":[\n${lines(CONFIGS, ' ')}\n],\n"runs":[\n${runTexts.join(',\n')}\n],\n` +
      `"files":[\n${lines(files, ' ')}\n]}\n`,
  )
  const requests = runs.flatMap(({ cases }) => cases.flatMap(({ steps }) => steps.filter(Array.isArray)))
  console.log(`${requests.length} requests, ${files.length} files in ${OUTPUT}`)
} finally {
  redis.disconnect()
  redisProcess.kill()
  rmSync(folder, { recursive: true, force: true })
}
