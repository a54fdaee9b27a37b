// Configurations with the documented keys of envoyproxy/ratelimit, and the decisions that it documents for them. Each
// step is one request.

import type { DescriptorText } from './rate-limit-fixture.ts'

export const [OK, OVER] = [1, 2] as const

export type Step = {
  readonly ask: readonly DescriptorText[]
  readonly hits?: number
  readonly times?: number
  /** Overall code of the last request. */
  readonly code: number
  /** Code and remaining of each status of the last request. */
  readonly statuses?: readonly (readonly [code: number, remaining: number])[]
  readonly afterSeconds?: number
}

export type Example = {
  readonly name: string
  readonly domain: string
  readonly config: string
  readonly steps: readonly Step[]
}

export const MESSAGING = `
domain: messaging
descriptors:
  # 5 marketing messages to a number per day
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit:
          unit: day
          requests_per_unit: 5
  # 100 messages to a number per day
  - key: to_number
    rate_limit:
      unit: day
      requests_per_unit: 100
`

const marketing = (number: string): DescriptorText[] => [
  ['message_type=marketing', `to_number=${number}`],
  [`to_number=${number}`],
]

export const EXAMPLES: readonly Example[] = [
  {
    name: 'nested descriptors: two limits in one request',
    domain: 'messaging',
    config: MESSAGING,
    steps: [
      {
        ask: marketing('2061111111'),
        times: 5,
        code: OK,
        statuses: [
          [OK, 0],
          [OK, 95],
        ],
      },
      {
        ask: marketing('2061111111'),
        code: OVER,
        statuses: [
          [OVER, 0],
          [OK, 94],
        ],
      },
      {
        ask: marketing('2062222222'),
        code: OK,
        statuses: [
          [OK, 4],
          [OK, 99],
        ],
      },
      { ask: [['to_number=2061111111']], code: OK, statuses: [[OK, 93]] },
      { ask: [['message_type=billing', 'to_number=2061111111']], code: OK, statuses: [[OK, 0]] },
      {
        ask: marketing('2061111111'),
        afterSeconds: 86_400,
        code: OK,
        statuses: [
          [OK, 4],
          [OK, 99],
        ],
      },
    ],
  },
  {
    name: 'a default per address, and a ban of one',
    domain: 'edge_proxy_per_ip',
    config: `
domain: edge_proxy_per_ip
descriptors:
  - key: remote_address
    rate_limit: { unit: second, requests_per_unit: 10 }
  - key: remote_address
    value: 50.0.0.5
    rate_limit: { unit: second, requests_per_unit: 0 }
`,
    steps: [
      { ask: [['remote_address=50.0.0.1']], times: 10, code: OK, statuses: [[OK, 0]] },
      { ask: [['remote_address=50.0.0.1']], code: OVER },
      { ask: [['remote_address=50.0.0.2']], code: OK, statuses: [[OK, 9]] },
      { ask: [['remote_address=50.0.0.5']], code: OVER, statuses: [[OVER, 0]] },
      { ask: [['remote_address=50.0.0.1']], afterSeconds: 1, code: OK, statuses: [[OK, 9]] },
    ],
  },
  {
    name: 'exact values only',
    domain: 'mongo_cps',
    config: `
domain: mongo_cps
descriptors:
  - key: database
    value: users
    rate_limit: { unit: second, requests_per_unit: 500 }
  - key: database
    value: default
    rate_limit: { unit: second, requests_per_unit: 500 }
`,
    steps: [
      { ask: [['database=users']], hits: 500, code: OK, statuses: [[OK, 0]] },
      { ask: [['database=users']], code: OVER },
      { ask: [['database=other']], code: OK, statuses: [[OK, 0]] },
    ],
  },
  {
    name: 'an inner limit applies only to requests that end there',
    domain: 'nested',
    config: `
domain: nested
descriptors:
  - key: key
    value: value
    rate_limit: { unit: minute, requests_per_unit: 2 }
    descriptors:
      - key: subkey
        rate_limit: { unit: second, requests_per_unit: 300 }
`,
    steps: [
      { ask: [['key=value']], times: 2, code: OK, statuses: [[OK, 0]] },
      { ask: [['key=value']], code: OVER },
      { ask: [['key=value', 'subkey=a']], code: OK, statuses: [[OK, 299]] },
      { ask: [['key=value', 'subkey=a', 'more=b']], code: OK, statuses: [[OK, 0]] },
      { ask: [['subkey=a', 'key=value']], code: OK, statuses: [[OK, 0]] },
    ],
  },
  {
    name: 'unlimited',
    domain: 'unlimited',
    config: `
domain: unlimited
descriptors:
  - key: ldap
    rate_limit: { unlimited: true }
  - key: azure
    rate_limit: { unit: minute, requests_per_unit: 1 }
`,
    steps: [
      { ask: [['ldap=a']], times: 3, code: OK, statuses: [[OK, 4_294_967_295]] },
      { ask: [['azure=a']], times: 2, code: OVER },
    ],
  },
  {
    name: 'replaces: the named limit is neither evaluated nor counted',
    domain: 'replaced',
    config: `
domain: replaced
descriptors:
  - key: ip
    rate_limit: { name: per_ip, unit: hour, requests_per_unit: 1 }
  - key: user
    value: bob
    rate_limit: { name: bob, unit: hour, requests_per_unit: 3, replaces: [{ name: per_ip }] }
`,
    steps: [
      {
        ask: [['ip=1.2.3.4'], ['user=bob']],
        times: 3,
        code: OK,
        statuses: [
          [OK, 0],
          [OK, 0],
        ],
      },
      {
        ask: [['ip=1.2.3.4'], ['user=alice']],
        code: OK,
        statuses: [
          [OK, 0],
          [OK, 0],
        ],
      },
      { ask: [['ip=1.2.3.4'], ['user=alice']], code: OVER },
    ],
  },
  {
    name: 'shadow_mode: counted, never refused',
    domain: 'shadow',
    config: `
domain: shadow
descriptors:
  - key: a
    rate_limit: { unit: hour, requests_per_unit: 1 }
    shadow_mode: true
`,
    steps: [{ ask: [['a=b']], times: 3, code: OK, statuses: [[OK, 0]] }],
  },
  {
    name: 'quota_mode: refused only when all quotas are used up, or another limit is',
    domain: 'quota',
    config: `
domain: quota
descriptors:
  - { key: free, rate_limit: { unit: hour, requests_per_unit: 1 }, quota_mode: true }
  - { key: paid, rate_limit: { unit: hour, requests_per_unit: 2 }, quota_mode: true }
  - { key: all, rate_limit: { unit: hour, requests_per_unit: 100 } }
`,
    steps: [
      {
        ask: [['free=x'], ['paid=x'], ['all=x']],
        times: 2,
        code: OK,
        statuses: [
          [OVER, 0],
          [OK, 0],
          [OK, 98],
        ],
      },
      {
        ask: [['free=x'], ['paid=x'], ['all=x']],
        code: OVER,
        statuses: [
          [OVER, 0],
          [OVER, 0],
          [OK, 97],
        ],
      },
      { ask: [['free=x'], ['all=y']], code: OVER },
    ],
  },
  {
    name: 'wildcards: after exact values, in the order of the file, before the key alone',
    domain: 'wild',
    config: `
domain: wild
descriptors:
  - { key: path, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: path, value: /api/*, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: path, value: "*/admin", rate_limit: { unit: hour, requests_per_unit: 3 } }
  - { key: path, value: /api/exact, rate_limit: { unit: hour, requests_per_unit: 4 } }
`,
    steps: [
      { ask: [['path=/api/exact']], code: OK, statuses: [[OK, 3]] },
      { ask: [['path=/api/x/admin']], code: OK, statuses: [[OK, 1]] },
      { ask: [['path=/api/y/admin']], code: OK, statuses: [[OK, 1]] },
      { ask: [['path=/x/admin']], code: OK, statuses: [[OK, 2]] },
      { ask: [['path=/x']], code: OK, statuses: [[OK, 0]] },
    ],
  },
  {
    name: 'share_threshold: all matches of a wildcard share one counter',
    domain: 'shared',
    config: `
domain: shared
descriptors:
  - { key: files, value: files/*, share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - key: dir
    value: d*
    share_threshold: true
    descriptors:
      - { key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }
`,
    steps: [
      { ask: [['files=files/a']], code: OK, statuses: [[OK, 1]] },
      { ask: [['files=files/b']], code: OK, statuses: [[OK, 0]] },
      { ask: [['files=files/c']], code: OVER },
      { ask: [['dir=d1', 'user=a']], code: OK },
      { ask: [['dir=d2', 'user=a']], code: OVER },
      { ask: [['dir=d2', 'user=b']], code: OK },
    ],
  },
  {
    name: 'no backtracking: a branch that was entered is not left',
    domain: 'greedy',
    config: `
domain: greedy
descriptors:
  - { key: a, value: x, descriptors: [{ key: b, value: "1", rate_limit: { unit: hour, requests_per_unit: 1 } }] }
  - { key: a, descriptors: [{ key: c, rate_limit: { unit: hour, requests_per_unit: 1 } }] }
`,
    steps: [
      { ask: [['a=x', 'c=1']], times: 3, code: OK, statuses: [[OK, 0]] },
      { ask: [['a=y', 'c=1']], times: 2, code: OVER },
    ],
  },
  {
    name: 'refused hits count, and a large request uses up the window',
    domain: 'messaging',
    config: MESSAGING,
    steps: [
      { ask: [['to_number=1']], hits: 101, code: OVER, statuses: [[OVER, 0]] },
      { ask: [['to_number=1']], code: OVER },
    ],
  },
  {
    name: 'hits_addend: of the descriptor before that of the request; 0 reads the counter',
    domain: 'messaging',
    config: MESSAGING,
    steps: [
      { ask: [{ entries: ['to_number=1'], hits: 0 }], hits: 7, code: OK, statuses: [[OK, 100]] },
      { ask: [{ entries: ['to_number=1'], hits: 60 }], hits: 7, code: OK, statuses: [[OK, 40]] },
      { ask: [['to_number=1']], hits: 7, code: OK, statuses: [[OK, 33]] },
      { ask: [{ entries: ['to_number=1'], hits: 33 }], code: OK, statuses: [[OK, 0]] },
      { ask: [{ entries: ['to_number=1'], hits: 0 }], code: OK, statuses: [[OK, 0]] },
      { ask: [['to_number=1']], code: OVER },
      { ask: [{ entries: ['to_number=1'], hits: 0 }], code: OVER },
      {
        ask: [{ entries: ['to_number=2'], hits: 0 }, ['to_number=3']],
        code: OK,
        statuses: [
          [OK, 100],
          [OK, 99],
        ],
      },
    ],
  },
  {
    name: 'a limit in the request replaces the configuration',
    domain: 'messaging',
    config: MESSAGING,
    steps: [
      { ask: [{ entries: ['to_number=1'], limit: [2, 3] }], times: 2, code: OK, statuses: [[OK, 0]] },
      { ask: [{ entries: ['to_number=1'], limit: [2, 3] }], code: OVER },
      { ask: [['to_number=1']], code: OK, statuses: [[OK, 99]] },
    ],
  },
]
