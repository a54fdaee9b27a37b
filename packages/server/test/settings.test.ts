import { readFileSync } from 'node:fs'
import { type Cidr, parseCidr } from 'sluice/http'
import { describe, expect, test } from 'vitest'
import { COMMANDS } from '../src/cli/commands.ts'
import { programHelp, usageText } from '../src/cli/help.ts'
import { GATEWAY_SETTINGS } from '../src/gateway/settings.ts'
import { CLICKHOUSE_URL_FIX } from '../src/settings/clickhouse-url.ts'
import { type CommandLine, readCommand, readSettings } from '../src/settings/command-line.ts'
import { OTHER_VARIABLES } from '../src/settings/envoy-settings.ts'
import type { Setting } from '../src/settings/setting.ts'
import { SETTINGS, type Settings } from '../src/settings/settings.ts'

const TABLE: Setting<unknown>[] = Object.values(SETTINGS)

function settingsOf(args: string[], env: Record<string, string> = {}): Settings {
  const command = readCommand(args, env)
  if (command.kind !== 'serve') throw new Error(JSON.stringify(command))
  return command.settings
}

function faultsOf(args: string[], env: Record<string, string> = {}): string[] {
  const command: CommandLine = readCommand(args, env)
  return command.kind === 'wrong'
    ? usageText(command.fieldErrors)
        .trimEnd()
        .split('\n')
        .slice(1)
        .map((line) => line.trim())
    : []
}

/** A node in a region. */
const IN_EU = ['--redis=redis://h', '--region=eu', '--region-weights=eu=1', '--global-redis=redis://g']

/** flag → a text other than its default, and the parsed value. */
const EXAMPLES: { [K in keyof Settings]: [text: string, value: Settings[K], more?: string[]] } = {
  host: ['0.0.0.0', '0.0.0.0'],
  port: ['9000', 9000],
  rules: ['package.json', 'package.json'],
  database: ['postgres://127.0.0.1/sluice', 'postgres://127.0.0.1/sluice'],
  dataDir: ['data', 'data'],
  redis: ['redis://127.0.0.1:6379', 'redis://127.0.0.1:6379'],
  stores: ['hot=redis://127.0.0.1:6380', { hot: 'redis://127.0.0.1:6380' }, ['--redis', 'redis://h']],
  redisConnections: ['4', 4, ['--redis', 'redis://h']],
  redisReads: ['replicas', 'replicas', ['--redis', 'redis+cluster://h']],
  redisSlotGroups: ['64', 64, ['--redis', 'redis+cluster://h']],
  storeDeadlineMs: ['50', 50, ['--redis', 'redis://h']],
  region: ['eu', 'eu', ['--redis', 'redis://h', '--region-weights', 'eu=1', '--global-redis', 'redis://g']],
  regionWeights: ['eu=0.6,us=0.4', { eu: 0.6, us: 0.4 }, IN_EU.filter((text) => !text.includes('weights'))],
  homeShare: ['0.5', 0.5, IN_EU],
  nextRegionWeights: ['eu=0.5,us=0.5', { eu: 0.5, us: 0.5 }, IN_EU],
  nextHomeShare: ['0', 0, IN_EU],
  globalRedis: ['redis://g:1', 'redis://g:1', IN_EU.filter((text) => !text.includes('global'))],
  globalDeadlineMs: ['90', 90, IN_EU],
  nodes: ['3', 3, ['--redis', 'redis://h']],
  workers: ['2', 2, ['--redis', 'redis://h', '--rules', 'package.json']],
  maxKeys: ['1000', 1000],
  approvals: ['2', 2],
  guardEditsMs: ['90s', 90_000],
  ipv6Prefix: ['56', 56],
  layer: ['edge', 'edge'],
  drainMs: ['0', 0],
  logLevel: ['debug', 'debug'],
  keySecret: ['0123456789abcdef', '0123456789abcdef'],
  refundMinutes: ['5', 5],
  adminToken: ['0123456789abcdef', '0123456789abcdef'],
  tokensFile: ['package.json', 'package.json', ['--rules', 'package.json']],
  checks: ['token', 'token'],
  dashboard: ['off', 'off'],
  dashboardHosts: ['Sluice.example.com, b', ['sluice.example.com', 'b']],
  sessionHours: ['1', 1],
  eventsSinks: [
    'clickhouse=http://sluice:secret@127.0.0.1:8123/events jsonl=-',
    [
      { kind: 'clickhouse', target: 'http://sluice:secret@127.0.0.1:8123/events' },
      { kind: 'jsonl', target: '-' },
    ],
  ],
  eventsQuery: ['http://127.0.0.1:8123', 'http://127.0.0.1:8123'],
  eventsSample: ['0.05', 0.05],
  eventsKeys: ['hmac jsonl=clear', { embedded: 'hmac', clickhouse: 'hmac', kafka: 'hmac', jsonl: 'clear' }],
  eventsRetentionMs: ['12h', 43_200_000],
  webhooks: [
    'https://a.example/x, http://127.0.0.1:9/y',
    ['https://a.example/x', 'http://127.0.0.1:9/y'],
    ['--webhook-secret', '0123456789abcdef'],
  ],
  webhookSecret: ['0123456789abcdef', '0123456789abcdef', ['--webhooks', 'https://a.example']],
  otlpEndpoint: ['http://127.0.0.1:4318', 'http://127.0.0.1:4318'],
  otlpHeaders: ['api-key=x', { 'api-key': 'x' }, ['--otlp-endpoint', 'http://h']],
  otlpMetricsSeconds: ['10', 10, ['--otlp-endpoint', 'http://h']],
  traceSample: ['1', 1, ['--otlp-endpoint', 'http://h']],
  socket: ['/run/sluice.sock', '/run/sluice.sock'],
  tlsCert: ['package.json', 'package.json', ['--tls-key', 'README.md']],
  tlsKey: ['package.json', 'package.json', ['--tls-cert', 'README.md']],
  maxConnectionsPerAddress: ['10', 10],
  tlsClientCa: ['package.json', 'package.json', ['--tls-cert', 'README.md', '--tls-key', 'README.md']],
  envoyConfig: ['package.json', 'package.json'],
  envoyDomains: ['edge api', ['edge', 'api']],
  envoyHeaders: ['draft-03', 'draft-03'],
  envoyLimitHeader: ['X-Limit', 'X-Limit', ['--envoy-headers', 'plain']],
  envoyRemainingHeader: ['X-Left', 'X-Left', ['--envoy-headers', 'plain']],
  envoyResetHeader: ['X-Reset', 'X-Reset', ['--envoy-headers', 'plain']],
  envoyShadowMode: ['on', 'on', ['--envoy-config', 'package.json']],
  envoyQuotaMode: ['on', 'on', ['--envoy-config', 'package.json']],
  envoyStopAtLimit: ['on', 'on', ['--envoy-config', 'package.json']],
  envoyKeyPrefix: ['blue:', 'blue:', ['--envoy-config', 'package.json']],
  envoyOverrides: ['on', 'on'],
  envoyMetadata: ['on', 'on'],
  grpcPort: ['8081', 8081],
  grpcHost: ['0.0.0.0', '0.0.0.0', ['--grpc-port', '0']],
  grpcStack: ['node', 'node', ['--grpc-port', '0']],
  grpcMaxStreams: ['10', 10, ['--grpc-port', '0']],
  grpcMaxCalls: ['10', 10, ['--grpc-port', '0']],
  grpcMaxMessageBytes: ['4096', 4096, ['--grpc-port', '0']],
  grpcMaxConnections: ['10', 10, ['--grpc-port', '0']],
  grpcMaxConnectionAgeMs: ['30m', 1_800_000, ['--grpc-port', '0']],
  grpcMaxConnectionAgeGraceMs: ['90s', 90_000, ['--grpc-port', '0', '--grpc-max-connection-age', '1h']],
  trustedProxies: ['10.1.2.3/8, ::1', [parseCidr('10.0.0.0/8'), parseCidr('::1')] as Cidr[]],
  proxyHeader: ['forwarded', 'forwarded', ['--trusted-proxies', '::1']],
  bypassHeader: ['X-My-Pass', 'x-my-pass'],
  userFrom: ['header:X-User', { kind: 'header', name: 'x-user' }],
  apiKeyFrom: ['cookie:Key', { kind: 'cookie', name: 'Key' }],
  tenantFrom: ['cert:cn', { kind: 'cert', name: 'cn' }],
  planFrom: ['jwt:plan', { kind: 'jwt', name: 'plan' }],
  jwtSecret: ['0123456789abcdef0123456789abcdef', '0123456789abcdef0123456789abcdef'],
  jwtKey: ['package.json', 'package.json'],
  headerStyle: ['draft-6, legacy', ['draft-6', 'legacy']],
  retryAfterJitterSeconds: ['30', 30],
}

describe('settings', () => {
  test.each(Object.entries(EXAMPLES))(
    '%s can be given as a flag, as --flag=value and in the environment',
    (name, example) => {
      const [text, value, more = []] = example
      const { flag, env } = SETTINGS[name as keyof Settings]
      for (const settings of [
        settingsOf([`--${flag}`, text, ...more]),
        settingsOf([`--${flag}=${text}`, ...more]),
        settingsOf(more, { [env]: text }),
      ]) {
        expect(settings[name as keyof Settings]).toEqual(value)
      }
      expect(settingsOf([])[name as keyof Settings], 'the default').not.toEqual(value)
    },
  )

  test('a flag wins over the environment, the last of two flags wins, and an empty variable counts as absent', () => {
    expect(settingsOf(['--port', '1', '--port', '2'], { SLUICE_PORT: '3' }).port).toBe(2)
    expect(settingsOf([], { SLUICE_PORT: '3', SLUICE_HOST: '' })).toMatchObject({ port: 3, host: '127.0.0.1' })
  })

  test('defaults: port 8080 on loopback, counters in memory, rules in the embedded database', () => {
    const { host, port, redis, rules, database, dataDir } = settingsOf([])
    expect({ host, port, redis }).toEqual({ host: '127.0.0.1', port: 8080, redis: undefined })
    expect({ rules, database, dataDir }).toEqual({ rules: undefined, database: undefined, dataDir: '.sluice' })
  })

  test('several workers need rules that all of them can read', () => {
    const workers = ['--workers', '2', '--redis', 'redis://h']
    const fix = 'remove it, or give --database or --rules: the embedded database allows one process'
    expect(faultsOf(workers)).toEqual([`--workers: ${fix} (got "2")`])
    expect(settingsOf([...workers, '--database', 'postgres://h/d']).workers).toBe(2)
  })

  test('a store may have any valid name, and a region may be listed in --next-region-weights only', () => {
    const { stores } = settingsOf(['--redis', 'redis://h', '--store', '__proto__=redis://a', '--store=b=redis://b'])
    expect(Object.entries(stores ?? {})).toEqual([
      ['__proto__', 'redis://a'],
      ['b', 'redis://b'],
    ])
    expect(settingsOf([...IN_EU, '--region', 'ap', '--next-region-weights', 'ap=1']).region).toBe('ap')
  })

  test('all errors are reported together, each with its field, value and fix', () => {
    const args = [
      '--prot',
      '9000',
      '--port',
      '70000',
      '--rules=nowhere.yaml',
      '--layer',
      'middle',
      '--key-secret',
      'short',
    ]
    const env = {
      SLUICE_LOG_LEVEL: 'loud',
      SLUICE_REDIS_URL: 'http://pass@x',
      SLUICE_MAX_KEYS: '-1',
      SLUICE_IPV6_PREFIX: '129',
    }
    expect(faultsOf([...args, 'extra'], env)).toEqual([
      '--prot: unknown flag; did you mean --port?',
      'argument: remove it: settings are given as --flag value (got "extra")',
      '--port: give a port from 0 to 65535 (got "70000")',
      `--rules: ${SETTINGS.rules.fix} (got "nowhere.yaml")`,
      `SLUICE_REDIS_URL: ${SETTINGS.redis.fix}`,
      'SLUICE_MAX_KEYS: give a whole number from 1 to 1000000000 (got "-1")',
      'SLUICE_IPV6_PREFIX: give a number of bits from 1 to 128 (got "129")',
      '--layer: use edge or service (got "middle")',
      'SLUICE_LOG_LEVEL: use one of silent, fatal, error, warn, info, debug, trace (got "loud")',
      '--key-secret: give at least 16 characters',
      'SLUICE_MAX_KEYS: remove it: it has no effect with --redis (got "-1")',
    ])
  })

  test.each(Object.values(GATEWAY_SETTINGS).map(({ flag }) => flag))(
    'no message shows a password in --%s, whether it is wrong, mistyped or in the way',
    (flag) => {
      const url = 'nowhere://user:hunter2-canary@h:x/'
      for (const args of [[`--${flag}`, url], [`--${flag}x`, 'hunter2-canary'], [`--${flag}x=hunter2-canary`], [url]]) {
        const command = readSettings(GATEWAY_SETTINGS, args, {})
        expect(command.kind === 'wrong' ? usageText(command.fieldErrors) : '').not.toContain('hunter2')
      }
    },
  )

  test.each([
    [['--port'], '--port: give a port from 0 to 65535 (got "")'],
    [['--port', '8080.5'], '--port: give a port from 0 to 65535 (got "8080.5")'],
    [['--port', '0x50'], '--port: give a port from 0 to 65535 (got "0x50")'],
    [['--host', 'a b'], '--host: give a host name or an address, such as 127.0.0.1 (got "a b")'],
    [
      ['--redis-connections', '2'],
      '--redis-connections: remove it, or give --redis: it requires that setting (got "2")',
    ],
    ...['eu', 'eu=2', 'eu=0.6,us=0.5', 'eu=0.1,eu=0.1', 'EU=1', 'eu=1=1', 'eu=.5', 'eu=0.3333333', ''].map(
      (text): [string[], string] => [
        [...IN_EU, '--region-weights', text],
        `--region-weights: ${SETTINGS.regionWeights.fix} (got "${text}")`,
      ],
    ),
    ...['', 'hot', 'default=redis://h', 'hot=redis://:secret@h hot=redis://i', 'Hot=redis://h'].map(
      (text): [string[], string] => [['--redis', 'redis://h', '--store', text], `--store: ${SETTINGS.stores.fix}`],
    ),
    [
      [...IN_EU, '--home-share', '1.5'],
      '--home-share: give a number from 0 to 1 with at most six decimals (got "1.5")',
    ],
    [
      ['--redis', 'redis://h', '--redis-reads', 'replicas'],
      '--redis-reads: remove it, or give a Cluster (redis+cluster://…): ' +
        'other deployments read from the primary only (got "replicas")',
    ],
    [
      ['--redis', 'redis://h', '--redis-slot-groups', '64'],
      '--redis-slot-groups: remove it, or give a Cluster (redis+cluster://…): other servers have no slots (got "64")',
    ],
    ...['0', '48', '2048'].map((text): [string[], string] => [
      ['--redis', 'redis+cluster://h', '--redis-slot-groups', text],
      `--redis-slot-groups: use a power of two from 1 to 1024 (got "${text}")`,
    ]),
    [
      ['--redis', 'redis://h', '--database', 'postgres://h/d', '--workers', '4', '--nodes', '2'],
      '--nodes: give at least 4: each of the --workers counts as a node (got "2")',
    ],
    [
      [...IN_EU, '--region', 'ap'],
      '--region: give a region that --region-weights or --next-region-weights lists (got "ap")',
    ],
    [['--global-redis', 'redis://:secret@g'], '--global-redis: remove it, or give --region: it requires that setting'],
    [IN_EU.slice(0, 3), '--region: remove it, or give --global-redis: it requires that setting (got "eu")'],
    ...['7', '-1d', '1.5h', '3651d', '10s', ''].map((text): [string[], string] => [
      ['--events-retention', text],
      `--events-retention: ${SETTINGS.eventsRetentionMs.fix} (got "${text}")`,
    ]),
    ...['', 'kafka', 'http://me:secret@host', 'embedded=on', 'jsonl='].map((text): [string[], string] => [
      ['--events-sink', text],
      `--events-sink: ${SETTINGS.eventsSinks.fix}`,
    ]),
    [
      ['--events-sink', 'elastic=http://me:secret@host'],
      `--events-sink: unknown sink "elastic"; ${SETTINGS.eventsSinks.fix}`,
    ],
    [
      ['--events-sink', 'jsonl=-', '--events-sink', 'jsonl=a'],
      '--events-sink: jsonl is given twice; give each sink at most once',
    ],
    [
      ['--events-sink', 'kafka='],
      '--events-sink: kafka: give host:port, several separated by commas, and optionally /topic',
    ],
    [['--events-sink', 'clickhouse=127.0.0.1'], `--events-sink: clickhouse: ${CLICKHOUSE_URL_FIX}`],
    [['--events-sink', 'kafka=me:secret@host'], '--events-sink: kafka: a broker is host:port (got "host")'],
    ...['plain', 'elastic=hmac', 'hmac,clear'].map((text): [string[], string] => [
      ['--events-keys', text],
      `--events-keys: ${SETTINGS.eventsKeys.fix} (got "${text}")`,
    ]),
    ...['1.5', '-1', 'all'].map((text): [string[], string] => [
      ['--events-sample', text],
      `--events-sample: ${SETTINGS.eventsSample.fix} (got "${text}")`,
    ]),
    ...['short', 'passwordpassword', 'with spaces in it all', ''].map((text): [string[], string] => [
      ['--admin-token', text],
      `--admin-token: ${SETTINGS.adminToken.fix}`,
    ]),
    ...['', 'draft-7', 'legacy,', 'none,legacy'].map((text): [string[], string] => [
      ['--header-style', text],
      `--header-style: ${SETTINGS.headerStyle.fix} (got "${text}")`,
    ]),
    [['--whatever'], '--whatever: unknown flag; --help lists all flags'],
    [['-x'], '-x: unknown flag; --help lists all flags'],
  ])('%j: %s', (args, fault) => expect(faultsOf(args)).toEqual([fault]))

  test.each(['detect-refusals', 'detect-keys', 'detect-ttl'])(
    '--%s was removed: the error says what to use',
    (flag) => {
      const variable = `SLUICE_${flag.toUpperCase().replaceAll('-', '_')}`
      const fix = expect.stringMatching(
        /^.*: remove it: .*find abuse in the events and send a signal, as in docs\/guides/,
      )
      expect(faultsOf([`--${flag}`, '50/10m'])).toEqual([fix])
      expect(faultsOf([], { [variable]: '50/10m' })).toEqual([fix])
      expect(readCommand([], { [variable]: '' }), 'an empty variable is unset').toMatchObject({ kind: 'serve' })
    },
  )

  test('an unknown variable is a warning that names the closest one', () => {
    const command = readCommand([], { SLUICE_PROT: '1', SLUICE_COLOUR: 'red', OTHER: 'x' })
    expect(command).toMatchObject({
      kind: 'serve',
      warnings: ['SLUICE_PROT is not a setting; did you mean "SLUICE_PORT"?', 'SLUICE_COLOUR is not a setting'],
    })
  })
})

test('--help names every flag with its variable and its default, in lines that fit a terminal', () => {
  const text = programHelp(COMMANDS)
  for (const { flag, env, shownFallback } of TABLE) {
    expect(text).toContain(`--${flag} `)
    expect(text).toContain(env)
    if (shownFallback !== '') expect(text.replaceAll(/\s+/g, ' ')).toContain(`Default: ${shownFallback}.`)
  }
  expect(Math.max(...text.split('\n').map((line) => line.length))).toBeLessThanOrEqual(100)
})

// `npx vitest run packages/server -u` writes the tables into the page.
test('docs/reference/configuration.md has the tables of settings', async () => {
  const path = '../../../docs/reference/configuration.md'
  const page = readFileSync(new URL(path, import.meta.url), 'utf8')
  const ofGateway = Object.values<Setting<unknown, string>>(GATEWAY_SETTINGS)
  const more = ofGateway.filter(({ flag }) => !TABLE.some((setting) => setting.flag === flag))
  const current = page
    .replace(/(<!-- settings -->\n)[\s\S]*?(<!-- end -->)/, (_, start, end) => `${start}${tableOf(TABLE)}\n${end}`)
    .replace(
      /(<!-- gateway settings -->\n)[\s\S]*?(<!-- end of)/,
      (_, start, end) => `${start}${tableOf(more)}\n${end}`,
    )
  expect(current).toContain(tableOf(TABLE))
  expect(current).toContain(tableOf(more))
  await expect(current).toMatchFileSnapshot(path)
})

function tableOf(settings: readonly Setting<unknown, string>[]): string {
  const rows = settings.map(({ flag, env, value, help, shownFallback }) => {
    const text = `${help}${shownFallback === '' ? '' : ` Default: ${shownFallback}.`}`
    return `| \`--${flag} ${value.replaceAll('|', '\\|')}\` | \`${env}\` | ${text} |`
  })
  return ['| flag | environment | meaning |', '|---|---|---|', ...rows].join('\n')
}

describe('variables of envoyproxy/ratelimit', () => {
  const CONFIG = ['--envoy-config', 'package.json']
  const COPIED = {
    SHADOW_MODE: 'true',
    QUOTA_MODE: '1',
    STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: 'T',
    CACHE_KEY_PREFIX: 'blue:',
    LIMIT_RESPONSE_HEADERS_ENABLED: 'True',
    LIMIT_LIMIT_HEADER: 'X-Limit',
    LIMIT_REMAINING_HEADER: 'X-Left',
    LIMIT_RESET_HEADER: 'X-Reset',
    RESPONSE_DYNAMIC_METADATA: 'true',
  }
  const MEANING: Partial<Settings> = {
    ...{ envoyShadowMode: 'on', envoyQuotaMode: 'on', envoyStopAtLimit: 'on', envoyKeyPrefix: 'blue:' },
    ...{ envoyHeaders: 'plain', envoyLimitHeader: 'X-Limit', envoyRemainingHeader: 'X-Left' },
    ...{ envoyResetHeader: 'X-Reset', envoyMetadata: 'on' },
  }

  test('have their meaning beside its configuration only, and settings of Sluice win', () => {
    expect(settingsOf(CONFIG, COPIED)).toMatchObject(MEANING)
    expect(settingsOf([], { ...COPIED, SLUICE_ENVOY_CONFIG: 'package.json' })).toMatchObject(MEANING)
    expect(settingsOf([], COPIED)).toEqual(settingsOf([]))
    const own = ['--envoy-shadow-mode', 'off', '--envoy-headers', 'draft-03']
    expect(settingsOf([...CONFIG, ...own], { ...COPIED, SLUICE_ENVOY_KEY_PREFIX: 'green:' })).toMatchObject({
      ...MEANING,
      ...{ envoyShadowMode: 'off', envoyHeaders: 'draft-03', envoyKeyPrefix: 'green:' },
    })
    const off = { SHADOW_MODE: 'false', LIMIT_RESPONSE_HEADERS_ENABLED: '0', LIMIT_LIMIT_HEADER: 'X' }
    expect(settingsOf(CONFIG, off)).toMatchObject({ envoyShadowMode: 'off', envoyHeaders: 'off' })
  })

  test('those that give a setting are named with its flag and value', () => {
    const adopted = (args: string[], env: Record<string, string>) => {
      const command = readCommand(args, env)
      return command.kind === 'serve' && command.adopted
    }
    const given = { SHADOW_MODE: 'true', QUOTA_MODE: '0', CACHE_KEY_PREFIX: 'blue:', SLUICE_PORT: '1' }
    expect(adopted(CONFIG, given)).toEqual([
      'SHADOW_MODE: --envoy-shadow-mode on',
      'QUOTA_MODE: --envoy-quota-mode off',
      'CACHE_KEY_PREFIX: --envoy-key-prefix blue:',
    ])
    expect(adopted([...CONFIG, '--envoy-shadow-mode', 'off'], { SHADOW_MODE: 'true' })).toEqual([])
    expect(adopted([], given)).toEqual([])
  })

  test('an invalid value is an error that names the variable', () => {
    expect(faultsOf(CONFIG, { SHADOW_MODE: 'on', LIMIT_LIMIT_HEADER: 'a b' })).toEqual([
      'SHADOW_MODE: use true or false (got "on")',
      'LIMIT_LIMIT_HEADER: give the name of a header, such as RateLimit-Limit (got "a b")',
    ])
  })

  test('all others are named at the start, without their values', () => {
    const others = { LOCAL_CACHE_SIZE_IN_BYTES: '1', RUNTIME_ROOT: '', SHADOW_MODE: 'true', TRACING_ENABLED: 'true' }
    const env = { REDIS_AUTH: 'secret', PORT: '1', ...others }
    const warnings = (args: string[]) => {
      const command = readCommand(args, env)
      return command.kind === 'serve' && command.warnings
    }
    expect(warnings(CONFIG)).toEqual([
      'PORT of envoyproxy/ratelimit is not read; use --port',
      'TRACING_ENABLED of envoyproxy/ratelimit is not read; use --otlp-endpoint and --trace-sample',
      'LOCAL_CACHE_SIZE_IN_BYTES of envoyproxy/ratelimit is not read; ' +
        'not supported: refused requests reach Redis too',
      'REDIS_AUTH of envoyproxy/ratelimit is not read; use --redis',
    ])
    expect(warnings([])).toEqual([])
  })

  test('each has a row in migrating.md', () => {
    const page = readFileSync(new URL('../../../docs/guides/migrating.md', import.meta.url), 'utf8')
    const code = (text: string) => text.replace(/(--[a-z-]+|\/[a-z]+\b|[A-Z]+_[A-Z_…]+)/g, '`$1`')
    const row = ([names, instead]: readonly [string, string]) => {
      return `| ${names.replace(/\S+/g, '`$&`').replaceAll(' ', ', ')} | ${code(instead)} |`
    }
    for (const one of OTHER_VARIABLES) expect(page).toContain(row(one))
    for (const { flag, original } of TABLE)
      if (original !== undefined) expect(page).toMatch(`\`${original.env}\` | \`--${flag}`)
  })
})
