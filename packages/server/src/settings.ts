// Every setting of the service, in one table: the command line, the environment, `--help` and
// docs/reference/configuration.md are all made from it. Flags win over the environment.

import { existsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { CLIENT_SETTINGS, type ClientSettings } from './client-settings.ts'
import { exampleRulesPath } from './package-facts.ts'

export const LOG_LEVELS = ['silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const

export type Settings = ClientSettings & {
  readonly host: string
  readonly port: number
  readonly rules: string
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
  /** The setting without which, or with which, this one would silently do nothing. */
  readonly needs?: Name
  readonly excludes?: Name
  /** May be given several times; then it is read as one text with commas. */
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
    value: '<file>',
    help: 'Rules to enforce, YAML or JSON. Edits apply within a second; a bad one leaves the last good rules in force.',
    fallback: exampleRulesPath,
    shownFallback: 'examples/rules.yaml',
    read: (text) => (existsSync(text) ? text : undefined),
    fix: 'give the path of a file that exists',
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
    help: 'Token that requests to the admin endpoints must carry. Without it there are none.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (/^[\x21-\x7e]{16,}$/.test(text) ? text : undefined),
    fix: 'give at least 16 characters without spaces',
    secret: true,
  },
  ...CLIENT_SETTINGS,
}

export function readInteger(text: string, min: number, max: number): number | undefined {
  const value = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN
  return value >= min && value <= max ? value : undefined
}
