// Every setting of the service in one table. The command line, the environment, `--help` and
// docs/reference/configuration.md are generated from it. Flags override the environment.

import { existsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { IPV6_PREFIX_DEFAULT } from 'sluice/http'
import { ACCESS_SETTINGS } from './access-settings.ts'
import { CLIENT_SETTINGS, type ClientSettings } from './client-settings.ts'
import { DASHBOARD_SETTINGS, type DashboardSettings } from './dashboard-settings.ts'
import { STORE_DEADLINE_MS } from './deadlines.ts'
import { ENVOY_SETTINGS, type EnvoySettings } from './envoy-settings.ts'
import { isEtcdUrl } from './etcd-address.ts'
import { EVENT_SETTINGS, type EventSettings } from './event-settings.ts'
import { GRPC_SETTINGS, type GrpcSettings } from './grpc-settings.ts'
import { HEADER_SETTINGS, type HeaderSettings } from './header-settings.ts'
import { isClusterUrl, isRedisUrl, REDIS_URL_FIX } from './redis-url.ts'
import { REGION_SETTINGS } from './region-settings.ts'
import { ROLLOUT_SETTINGS, type RolloutSettings } from './rollout-settings.ts'
import { readInteger, type SettingsTable } from './setting.ts'
import { TELEMETRY_SETTINGS } from './telemetry-settings.ts'

export const LOG_LEVELS = ['silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const

export type Settings = ClientSettings &
  DashboardSettings &
  EventSettings &
  RolloutSettings &
  GrpcSettings &
  EnvoySettings &
  HeaderSettings & {
    readonly host: string
    readonly port: number
    readonly rules: string | undefined
    readonly database: string | undefined
    readonly dataDir: string
    readonly redis: string | undefined
    /** Other servers, by the name that rules use. */
    readonly stores: Readonly<Record<string, string>> | undefined
    readonly redisConnections: number | undefined
    readonly redisReads: 'primaries' | 'replicas' | undefined
    readonly redisSlotGroups: number | undefined
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
    /** Connections of one address to each port. */
    readonly maxConnectionsPerAddress: number
    readonly webhooks: readonly string[] | undefined
    readonly webhookSecret: string | undefined
    /** Undefined: neither traces nor metrics are sent. */
    readonly otlpEndpoint: string | undefined
    /** Names in lower case. */
    readonly otlpHeaders: Readonly<Record<string, string>> | undefined
    /** 0: no metrics over OTLP. */
    readonly otlpMetricsSeconds: number
    readonly traceSample: number
  }

const WORKERS_MAX = 256

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
    help: 'Port to listen on; 0 picks a free one.',
    fallback: () => 8080,
    shownFallback: '8080',
    read: (text) => readInteger(text, 0, 65_535),
    fix: 'give a port from 0 to 65535',
  },
  rules: {
    flag: 'rules',
    env: 'SLUICE_RULES',
    value: '<file>|<url>',
    help: 'A rule file, or etcd://host:2379/prefix, instead of the database. An invalid edit is ignored.',
    fallback: () => undefined,
    shownFallback: 'rules are in the database',
    read: (text) => (isEtcdUrl(text) || existsSync(text) ? text : undefined),
    fix: 'give the path of a file that exists, or a URL such as etcd://127.0.0.1:2379/sluice/rules',
  },
  database: {
    flag: 'database',
    env: 'SLUICE_DATABASE_URL',
    value: '<url>',
    help: 'PostgreSQL for rules, tokens, events and the audit log. Default: embedded database in the data folder.',
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
    help: 'Folder of the embedded database, which one process at a time can use, and of the last good rules.',
    fallback: () => '.sluice',
    shownFallback: '.sluice',
    read: (text) => (text === '' ? undefined : text),
    fix: 'give the path of a folder; it is created if it does not exist',
  },
  redis: {
    flag: 'redis',
    env: 'SLUICE_REDIS_URL',
    value: '<url>',
    help: 'Redis that holds the counters, shared by all nodes. Default: counters in memory.',
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
      'Another Redis, for rules with `store: <name>`, such as one for a hot rule. ' +
      'Repeat the flag for several; in the variable, separate them by spaces.',
    fallback: () => undefined,
    shownFallback: '',
    read: readStores,
    fix:
      'give each a unique name (a-z, 0-9, "_", "." and "-", not default) and a Redis URL, ' +
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
    help: 'Cluster only: which servers answer dry runs and explanations. Replicas may lag; their answers have `stale`.',
    fallback: () => undefined,
    shownFallback: 'primaries',
    read: (text) => (text === 'primaries' || text === 'replicas' ? text : undefined),
    fix: 'use primaries or replicas',
    needs: 'redis',
    conflict: ({ redisReads, redis = '', stores = {} }) => {
      if (redisReads !== 'replicas' || [redis, ...Object.values(stores)].some(isClusterUrl)) return undefined
      return 'remove it, or give a Cluster (redis+cluster://…): other deployments read from the primary only'
    },
  },
  redisSlotGroups: {
    flag: 'redis-slot-groups',
    env: 'SLUICE_REDIS_SLOT_GROUPS',
    value: '<number>',
    help:
      'Slot groups of a Cluster, the same on every node: at least as many as primaries. ' +
      'Changing it resets all counters.',
    fallback: () => undefined,
    shownFallback: '16',
    read: (text) => readPowerOfTwo(text, 1024),
    fix: 'use a power of two from 1 to 1024',
    needs: 'redis',
    conflict: ({ redisSlotGroups, redis = '', globalRedis = '', stores = {} }) => {
      const urls = [redis, globalRedis, ...Object.values(stores)]
      if (redisSlotGroups === undefined || urls.some(isClusterUrl)) return undefined
      return 'remove it, or give a Cluster (redis+cluster://…): other servers have no slots'
    },
  },
  storeDeadlineMs: {
    flag: 'store-deadline-ms',
    env: 'SLUICE_STORE_DEADLINE_MS',
    value: '<ms>',
    help: 'How long a check waits for Redis before the on_fail of its rules applies.',
    fallback: () => undefined,
    shownFallback: String(STORE_DEADLINE_MS),
    read: (text) => readInteger(text, 1, 10_000),
    fix: 'give milliseconds from 1 to 10000',
    needs: 'redis',
  },
  ...REGION_SETTINGS,
  nodes: {
    flag: 'nodes',
    env: 'SLUICE_NODES',
    value: '<number>',
    help: 'Number of nodes: with consistency: local, or on_fail: local in an outage, each enforces limit / nodes.',
    fallback: () => undefined,
    shownFallback: '1',
    read: (text) => readInteger(text, 1, 10_000),
    fix: 'give a whole number from 1 to 10000',
    conflict: ({ nodes = 1, workers = 1 }) => {
      return nodes >= workers ? undefined : `give at least ${workers}: each of the --workers counts as a node`
    },
  },
  workers: {
    flag: 'workers',
    env: 'SLUICE_WORKERS',
    value: '<number>|auto',
    help: 'Number of processes that share the port, each with its own leases; auto: one per CPU.',
    fallback: () => undefined,
    shownFallback: '1',
    read: (text) =>
      text === 'auto' ? Math.min(availableParallelism(), WORKERS_MAX) : readInteger(text, 1, WORKERS_MAX),
    fix: `give a whole number from 1 to ${WORKERS_MAX}, or auto`,
    needs: 'redis',
    needsOneOf: ['database', 'rules'],
  },
  maxKeys: {
    flag: 'max-keys',
    env: 'SLUICE_MAX_KEYS',
    value: '<number>',
    help: 'Cap on keys in memory, 34 to 43 bytes each. Beyond it, new keys share overflow buckets.',
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
    help: 'IPv6 addresses that share a prefix of this length count as one client.',
    fallback: () => IPV6_PREFIX_DEFAULT,
    shownFallback: `${IPV6_PREFIX_DEFAULT}`,
    read: (text) => readInteger(text, 1, 128),
    fix: 'give a number of bits from 1 to 128',
  },
  layer: {
    flag: 'layer',
    env: 'SLUICE_LAYER',
    value: 'edge|service',
    help: 'Layer of this node: rules whose enforce_at names the other layer do not apply.',
    fallback: () => undefined,
    shownFallback: 'every rule applies',
    read: (text) => (text === 'edge' || text === 'service' ? text : undefined),
    fix: 'use edge or service',
  },
  drainMs: {
    flag: 'drain-ms',
    env: 'SLUICE_DRAIN_MS',
    value: '<ms>',
    help: 'How long /readyz returns 503 after SIGTERM while requests are still served, so that load balancers notice.',
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
    help: 'Secret for hashing client keys in logs and events; use the same on all nodes.',
    fallback: () => undefined,
    shownFallback: 'generated, in a file of the data folder',
    read: (text) => (text.length >= 16 ? text : undefined),
    fix: 'give at least 16 characters',
    secret: true,
  },
  refundMinutes: {
    flag: 'refund-minutes',
    env: 'SLUICE_REFUND_MINUTES',
    value: '<minutes>',
    help: 'How long a request can be refunded. Its receipt takes about 300 bytes in Redis for that time.',
    fallback: () => 60,
    shownFallback: '60',
    read: (text) => readInteger(text, 1, 1440),
    fix: 'give minutes from 1 to 1440',
  },
  ...ACCESS_SETTINGS,
  ...GRPC_SETTINGS,
  ...ENVOY_SETTINGS,
  ...DASHBOARD_SETTINGS,
  ...ROLLOUT_SETTINGS,
  ...EVENT_SETTINGS,
  ...TELEMETRY_SETTINGS,
  ...CLIENT_SETTINGS,
  ...HEADER_SETTINGS,
}

function readPowerOfTwo(text: string, max: number): number | undefined {
  const value = readInteger(text, 1, max)
  return value !== undefined && Number.isInteger(Math.log2(value)) ? value : undefined
}

function readStores(text: string): Readonly<Record<string, string>> | undefined {
  const stores = new Map<string, string>()
  for (const one of text.trim().split(/\s+/)) {
    const [, name = '', url = ''] = /^([a-z0-9_.-]{1,64})=(.*)$/.exec(one) ?? []
    if (!isRedisUrl(url) || name === 'default' || stores.has(name)) return undefined
    stores.set(name, url)
  }
  return Object.fromEntries(stores) // a store may even be called `__proto__`
}
