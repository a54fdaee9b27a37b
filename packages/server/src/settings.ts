// Every setting of the service, in one table: the command line, the environment, `--help` and
// docs/reference/configuration.md are all made from it. Flags win over the environment.

import { existsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { isLoopback } from './loopback.ts'
import { isEtcdUrl } from './rules/etcd/etcd-address.ts'

export const LOG_LEVELS = ['silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const

/** What fits into a `sockaddr_un` on every system. */
const SOCKET_PATH_MAX = 100

const WEBHOOKS_MAX = 10

export type Settings = {
  readonly host: string
  readonly port: number
  readonly rules: string | undefined
  readonly database: string | undefined
  readonly dataDir: string
  readonly redis: string | undefined
  readonly redisConnections: number | undefined
  readonly storeDeadlineMs: number | undefined
  readonly nodes: number | undefined
  readonly workers: number | undefined
  readonly maxKeys: number | undefined
  readonly ipv6Prefix: number
  readonly layer: 'edge' | 'service' | undefined
  readonly drainMs: number
  readonly logLevel: (typeof LOG_LEVELS)[number]
  readonly keySecret: string | undefined
  readonly adminToken: string | undefined
  readonly checks: 'open' | 'token' | undefined
  readonly socket: string | undefined
  readonly tlsCert: string | undefined
  readonly tlsKey: string | undefined
  readonly tlsClientCa: string | undefined
  readonly violationDays: number
  readonly webhooks: readonly string[] | undefined
  readonly webhookSecret: string | undefined
}

export type Setting<T> = {
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
  /** The setting without which, or with which, this one would silently do nothing. */
  readonly needs?: keyof Settings
  readonly needsOneOf?: readonly (keyof Settings)[]
  readonly excludes?: keyof Settings
  /** Never shown, not even to say that it is wrong. */
  readonly secret?: true
}

export const SETTINGS: { readonly [K in keyof Settings]: Setting<Settings[K]> } = {
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
    read: (text) => (/^rediss?:\/\/\S+$/.test(text) && URL.canParse(text) ? text : undefined),
    fix: 'give a URL such as redis://127.0.0.1:6379 or rediss://user:password@host:6380/0',
    secret: true,
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
  storeDeadlineMs: {
    flag: 'store-deadline-ms',
    env: 'SLUICE_STORE_DEADLINE_MS',
    value: '<ms>',
    help: 'How long a check may wait for Redis; then the on_fail of its rules decides.',
    fallback: () => undefined,
    shownFallback: '15',
    read: (text) => readInteger(text, 1, 10_000),
    fix: 'give milliseconds from 1 to 10000',
    needs: 'redis',
  },
  nodes: {
    flag: 'nodes',
    env: 'SLUICE_NODES',
    value: '<number>',
    help: 'Nodes that share the limits: consistency local, and on_fail local while Redis is away, give each its part.',
    fallback: () => undefined,
    shownFallback: '1',
    read: (text) => readInteger(text, 1, 10_000),
    fix: 'give a whole number from 1 to 10000',
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
    help: 'Secret of the hashes that stand for client keys in logs; set it to compare logs of several nodes.',
    fallback: () => undefined,
    shownFallback: 'random for each process',
    read: (text) => (text.length >= 16 ? text : undefined),
    fix: 'give at least 16 characters',
    secret: true,
  },
  adminToken: {
    flag: 'admin-token',
    env: 'SLUICE_ADMIN_TOKEN',
    value: '<text>',
    help: 'A token of the role admin that is in no database: for the first steps, and for nodes without one.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (/^[\x21-\x7e]{16,}$/.test(text) ? text : undefined),
    fix: 'give at least 16 characters without spaces',
    secret: true,
  },
  checks: {
    flag: 'checks',
    env: 'SLUICE_CHECKS',
    value: 'open|token',
    help: 'Whether checks and refunds need a token of the role check.',
    fallback: () => undefined,
    shownFallback: 'open on a loopback address or socket, token elsewhere',
    read: (text) => (text === 'open' || text === 'token' ? text : undefined),
    fix: 'use open or token',
  },
  socket: {
    flag: 'socket',
    env: 'SLUICE_SOCKET',
    value: '<path>',
    help: 'Socket file to listen on instead of an address; who may use it is up to the rights of its folder.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (text.length <= SOCKET_PATH_MAX ? text : undefined),
    fix: `give a path of at most ${SOCKET_PATH_MAX} characters`,
    excludes: 'host',
  },
  tlsCert: {
    flag: 'tls-cert',
    env: 'SLUICE_TLS_CERT',
    value: '<file>',
    help: 'Certificate of the service, with its chain: it speaks TLS. Renewed files are used at once.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (existsSync(text) ? text : undefined),
    fix: 'give the path of a PEM file that exists',
    needs: 'tlsKey',
  },
  tlsKey: {
    flag: 'tls-key',
    env: 'SLUICE_TLS_KEY',
    value: '<file>',
    help: 'Key of the certificate.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (existsSync(text) ? text : undefined),
    fix: 'give the path of a PEM file that exists',
    needs: 'tlsCert',
  },
  tlsClientCa: {
    flag: 'tls-client-ca',
    env: 'SLUICE_TLS_CLIENT_CA',
    value: '<file>',
    help: 'Certificates that those of clients must be signed with: nobody else can connect.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (existsSync(text) ? text : undefined),
    fix: 'give the path of a PEM file that exists',
    needs: 'tlsCert',
  },
  violationDays: {
    flag: 'violation-days',
    env: 'SLUICE_VIOLATION_DAYS',
    value: '<days>',
    help: 'How long refusals are kept in the database, with user, address and endpoint; 0: they are not written.',
    fallback: () => 30,
    shownFallback: '30',
    read: (text) => readInteger(text, 0, 3650),
    fix: 'give a number of days from 0 to 3650',
    excludes: 'rules',
  },
  webhooks: {
    flag: 'webhooks',
    env: 'SLUICE_WEBHOOKS',
    value: '<url,…>',
    help: 'URLs that are told when rules change, when a node is degraded, and when the kill switch is used.',
    fallback: () => undefined,
    shownFallback: '',
    read: readWebhooks,
    fix: `give up to ${WEBHOOKS_MAX} URLs with commas between: https, or http on loopback; no user or password`,
    needs: 'webhookSecret',
    secret: true,
  },
  webhookSecret: {
    flag: 'webhook-secret',
    env: 'SLUICE_WEBHOOK_SECRET',
    value: '<text>',
    help: 'Secret that webhooks are signed with.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (text.length >= 16 ? text : undefined),
    fix: 'give at least 16 characters',
    needs: 'webhooks',
    secret: true,
  },
}

function readInteger(text: string, min: number, max: number): number | undefined {
  const value = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN
  return value >= min && value <= max ? value : undefined
}

/** In clear only where nobody else listens. */
function readWebhooks(text: string): readonly string[] | undefined {
  const urls = text.split(',').map((url) => url.trim())
  const good = urls.filter((url) => {
    if (!URL.canParse(url)) return false
    const { protocol, hostname, username, password } = new URL(url)
    const safe = protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname.replace(/^\[|\]$/g, '')))
    return safe && username === '' && password === ''
  })
  return good.length === urls.length && urls.length <= WEBHOOKS_MAX ? urls : undefined
}
