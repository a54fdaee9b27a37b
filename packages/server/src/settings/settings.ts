// Every setting of the service, in one table: the command line, the environment, `--help` and
// docs/reference/configuration.md are all made from it. Flags win over the environment.

import { existsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { isClusterUrl, isRedisUrl, REDIS_URL_FIX } from '../counters/redis-url.ts'
import { isEtcdUrl } from '../rules/etcd/etcd-address.ts'
import { ACCESS_SETTINGS } from './access-settings.ts'
import { CLIENT_SETTINGS, type ClientSettings } from './client-settings.ts'
import { HEADER_SETTINGS, type HeaderSettings } from './header-settings.ts'
import { RECORD_SETTINGS } from './record-settings.ts'
import { REGION_SETTINGS } from './region-settings.ts'

export const LOG_LEVELS = ['silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const

export type Settings = ClientSettings &
  HeaderSettings & {
    readonly host: string
    readonly port: number
    readonly rules: string | undefined
    readonly database: string | undefined
    readonly dataDir: string
    readonly redis: string | undefined
    /** Other servers, by the name that rules know them by. */
    readonly stores: Readonly<Record<string, string>> | undefined
    readonly redisConnections: number | undefined
    readonly redisReads: 'primaries' | 'replicas' | undefined
    readonly storeDeadlineMs: number | undefined
    readonly region: string | undefined
    readonly regionWeights: Readonly<Record<string, number>> | undefined
    readonly homeShare: number | undefined
    readonly nextRegionWeights: Readonly<Record<string, number>> | undefined
    readonly nextHomeShare: number | undefined
    readonly globalRedis: string | undefined
    readonly globalDeadlineMs: number | undefined
    readonly nodes: number | undefined
    readonly workers: number | undefined
    readonly maxKeys: number | undefined
    readonly ipv6Prefix: number
    readonly layer: 'edge' | 'service' | undefined
    readonly drainMs: number
    readonly logLevel: (typeof LOG_LEVELS)[number]
    readonly keySecret: string | undefined
    readonly refundMinutes: number
    readonly adminToken: string | undefined
    readonly tokensFile: string | undefined
    readonly checks: 'open' | 'token' | undefined
    readonly socket: string | undefined
    readonly tlsCert: string | undefined
    readonly tlsKey: string | undefined
    readonly tlsClientCa: string | undefined
    /** 0: none are kept. */
    readonly violationsRetentionMs: number
    readonly violationsKeys: 'clear' | 'hmac'
    readonly webhooks: readonly string[] | undefined
    readonly webhookSecret: string | undefined
  }

export type Setting<T, Name extends string = keyof Settings> = {
  readonly flag: string
  readonly env: string
  /** What the value is, for `--help`: `<port>`. */
  readonly value: string
  readonly help: string
  readonly fallback: () => T
  /** How the fallback is told to people; empty when there is none. */
  readonly shownFallback: string
  /** Undefined when the text is wrong; `fix` then says what to do. */
  readonly read: (text: string) => T | undefined
  readonly fix: string
  /** The fix for one kind of wrong text, where `fix` would not name the mistake. */
  readonly fixFor?: (text: string) => string | undefined
  /** The setting without which, or with which, this one would silently do nothing. */
  readonly needs?: Name | readonly Name[]
  readonly needsOneOf?: readonly Name[]
  readonly excludes?: Name
  /** What is to be done if it does not go with the others; undefined if it does. */
  readonly clash?: (all: Partial<Settings>) => string | undefined
  /** May be given several times; their texts are joined by spaces. */
  readonly repeats?: true
  /** Never shown, not even to say that it is wrong. */
  readonly secret?: true
}

export type SettingsTable<S> = { readonly [K in keyof S]: Setting<S[K], Extract<keyof S, string>> }

export const SETTINGS: SettingsTable<Settings> = {
  host: {
    flag: 'host',
    env: 'SLUICE_HOST',
    value: '<address>',
    help: 'Address to listen on; 0.0.0.0 for every IPv4 interface.',
    fallback: () => '127.0.0.1',
    shownFallback: '127.0.0.1',
    read: (text) => (/^[\w.:%-]+$/.test(text) ? text : undefined),
    fix: 'give a host name or an address, such as 127.0.0.1',
  },
  port: {
    flag: 'port',
    env: 'SLUICE_PORT',
    value: '<port>',
    help: 'Port to listen on; 0 for any free one.',
    fallback: () => 8080,
    shownFallback: '8080',
    read: (text) => readInteger(text, 0, 65_535),
    fix: 'give a port from 0 to 65535',
  },
  rules: {
    flag: 'rules',
    env: 'SLUICE_RULES',
    value: '<file>|<url>',
    help: 'A rule file, or etcd://host:2379/prefix, instead of the database. A bad edit changes nothing.',
    fallback: () => undefined,
    shownFallback: 'rules are in the database',
    read: (text) => (isEtcdUrl(text) || existsSync(text) ? text : undefined),
    fix: 'give the path of a file that exists, or a URL such as etcd://127.0.0.1:2379/sluice/rules',
  },
  database: {
    flag: 'database',
    env: 'SLUICE_DATABASE_URL',
    value: '<url>',
    help: 'PostgreSQL that holds rules, tokens and the audit, for all nodes. Without it they are in the data folder.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (/^postgres(ql)?:\/\/\S+$/.test(text) && URL.canParse(text) ? text : undefined),
    fix: 'give a URL such as postgres://user:password@127.0.0.1:5432/sluice',
    secret: true,
  },
  dataDir: {
    flag: 'data-dir',
    env: 'SLUICE_DATA_DIR',
    value: '<folder>',
    help: 'Folder of the embedded database, and of the last good rules. One process at a time.',
    fallback: () => '.sluice',
    shownFallback: '.sluice',
    read: (text) => (text === '' ? undefined : text),
    fix: 'give the path of a folder; it is made if it does not exist',
  },
  redis: {
    flag: 'redis',
    env: 'SLUICE_REDIS_URL',
    value: '<url>',
    help: 'Redis that holds the counters, so that several nodes share them. Without it they are kept in memory.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (isRedisUrl(text) ? text : undefined),
    fix: REDIS_URL_FIX,
    secret: true,
  },
  stores: {
    flag: 'store',
    env: 'SLUICE_STORES',
    value: '<name>=<url>',
    help:
      'A further Redis, for rules with `store: <name>`: a hot rule gets a server of its own. ' +
      'Give it again for another one; in the variable, separate them by spaces.',
    fallback: () => undefined,
    shownFallback: '',
    read: readStores,
    fix:
      'give each a name of its own, of a-z, 0-9, "_", "." and "-" but not default, and a URL of Redis, ' +
      'such as hot=redis://127.0.0.1:6380',
    needs: 'redis',
    secret: true,
    repeats: true,
  },
  redisConnections: {
    flag: 'redis-connections',
    env: 'SLUICE_REDIS_CONNECTIONS',
    value: '<number>',
    help: 'Connections to Redis.',
    fallback: () => undefined,
    shownFallback: '1',
    read: (text) => readInteger(text, 1, 64),
    fix: 'give a whole number from 1 to 64',
    needs: 'redis',
  },
  redisReads: {
    flag: 'redis-reads',
    env: 'SLUICE_REDIS_READS',
    value: 'primaries|replicas',
    help: 'Of a Cluster: who answers dry runs and explanations. Answers of replicas may be behind, and say `stale`.',
    fallback: () => undefined,
    shownFallback: 'primaries',
    read: (text) => (text === 'primaries' || text === 'replicas' ? text : undefined),
    fix: 'use primaries or replicas',
    needs: 'redis',
    clash: ({ redisReads, redis = '', stores = {} }) => {
      if (redisReads !== 'replicas' || [redis, ...Object.values(stores)].some(isClusterUrl)) return undefined
      return 'remove it, or give a Cluster (redis+cluster://…): of others only the primary is asked'
    },
  },
  storeDeadlineMs: {
    flag: 'store-deadline-ms',
    env: 'SLUICE_STORE_DEADLINE_MS',
    value: '<ms>',
    help: 'How long a check may wait for Redis; then the on_fail of its rules decides.',
    fallback: () => undefined,
    shownFallback: '100',
    read: (text) => readInteger(text, 1, 10_000),
    fix: 'give milliseconds from 1 to 10000',
    needs: 'redis',
  },
  ...REGION_SETTINGS,
  nodes: {
    flag: 'nodes',
    env: 'SLUICE_NODES',
    value: '<number>',
    help: 'Nodes that share the limits: consistency local, and on_fail local while Redis is away, give each its part.',
    fallback: () => undefined,
    shownFallback: '1',
    read: (text) => readInteger(text, 1, 10_000),
    fix: 'give a whole number from 1 to 10000',
    clash: ({ nodes = 1, workers = 1 }) => {
      return nodes >= workers ? undefined : `give at least ${workers}: each of the --workers counts as a node`
    },
  },
  workers: {
    flag: 'workers',
    env: 'SLUICE_WORKERS',
    value: '<number>|auto',
    help: 'Processes that share the port, each a node with leases of its own; auto: one per processor.',
    fallback: () => undefined,
    shownFallback: '1',
    read: (text) => (text === 'auto' ? availableParallelism() : readInteger(text, 1, 256)),
    fix: 'give a whole number from 1 to 256, or auto',
    needs: 'redis',
    needsOneOf: ['database', 'rules'],
  },
  maxKeys: {
    flag: 'max-keys',
    env: 'SLUICE_MAX_KEYS',
    value: '<number>',
    help: 'Most keys held in memory, 34 to 43 bytes each; above it new keys share overflow buckets.',
    fallback: () => undefined,
    shownFallback: '20000000',
    read: (text) => readInteger(text, 1, 1_000_000_000),
    fix: 'give a whole number from 1 to 1000000000',
    excludes: 'redis',
  },
  ipv6Prefix: {
    flag: 'ipv6-prefix',
    env: 'SLUICE_IPV6_PREFIX',
    value: '<bits>',
    help: 'IPv6 addresses that share so many bits count as one client.',
    fallback: () => 64,
    shownFallback: '64',
    read: (text) => readInteger(text, 1, 128),
    fix: 'give a number of bits from 1 to 128',
  },
  layer: {
    flag: 'layer',
    env: 'SLUICE_LAYER',
    value: 'edge|service',
    help: 'Where this node stands: rules whose enforce_at names the other layer are left out.',
    fallback: () => undefined,
    shownFallback: 'every rule applies',
    read: (text) => (text === 'edge' || text === 'service' ? text : undefined),
    fix: 'use edge or service',
  },
  drainMs: {
    flag: 'drain-ms',
    env: 'SLUICE_DRAIN_MS',
    value: '<ms>',
    help: 'After SIGTERM: how long /readyz says 503 while requests are still served, so that load balancers notice.',
    fallback: () => 500,
    shownFallback: '500',
    read: (text) => readInteger(text, 0, 600_000),
    fix: 'give milliseconds from 0 to 600000',
  },
  logLevel: {
    flag: 'log-level',
    env: 'SLUICE_LOG_LEVEL',
    value: '<level>',
    help: `One of ${LOG_LEVELS.join(', ')}. debug logs every refusal, with client keys as keyed hashes.`,
    fallback: () => 'info',
    shownFallback: 'info',
    read: (text) => LOG_LEVELS.find((level) => level === text),
    fix: `use one of ${LOG_LEVELS.join(', ')}`,
  },
  keySecret: {
    flag: 'key-secret',
    env: 'SLUICE_KEY_SECRET',
    value: '<text>',
    help: 'Secret of the hashes that stand for client keys in logs and violations; give all nodes the same.',
    fallback: () => undefined,
    shownFallback: 'random for each node, and each start',
    read: (text) => (text.length >= 16 ? text : undefined),
    fix: 'give at least 16 characters',
    secret: true,
  },
  refundMinutes: {
    flag: 'refund-minutes',
    env: 'SLUICE_REFUND_MINUTES',
    value: '<minutes>',
    help: 'How long a request can be refunded, at most. A receipt in Redis takes about 300 bytes for as long.',
    fallback: () => 60,
    shownFallback: '60',
    read: (text) => readInteger(text, 1, 1440),
    fix: 'give minutes from 1 to 1440',
  },
  ...ACCESS_SETTINGS,
  ...RECORD_SETTINGS,
  ...CLIENT_SETTINGS,
  ...HEADER_SETTINGS,
}

export function readInteger(text: string, min: number, max: number): number | undefined {
  const value = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN
  return value >= min && value <= max ? value : undefined
}

function readStores(text: string): Readonly<Record<string, string>> | undefined {
  const stores = new Map<string, string>()
  for (const one of text.trim().split(/\s+/)) {
    const [, name = '', url = ''] = /^([a-z0-9_.-]{1,64})=(.*)$/.exec(one) ?? []
    if (!isRedisUrl(url) || name === 'default' || stores.has(name)) return undefined
    stores.set(name, url)
  }
  return Object.fromEntries(stores) // `__proto__` is a name like any other here
}
