// Settings of Envoy's rate limit service.

import { existsSync } from 'node:fs'
import type { Setting } from './setting.ts'

export const ENVOY_HEADERS = ['off', 'draft-03', 'x-ratelimit', 'plain'] as const
export type EnvoyHeaders = (typeof ENVOY_HEADERS)[number]

const SWITCH = ['on', 'off'] as const
type Switch = (typeof SWITCH)[number]

export type EnvoySettings = {
  /** Undefined: no domain has a configuration. */
  readonly envoyConfig: string | undefined
  /** Domains that every rule applies to; `*`: all. */
  readonly envoyDomains: readonly string[] | undefined
  readonly envoyHeaders: EnvoyHeaders
  readonly envoyLimitHeader: string
  readonly envoyRemainingHeader: string
  readonly envoyResetHeader: string
  readonly envoyOverrides: Switch
  readonly envoyMetadata: Switch
  readonly envoyShadowMode: Switch
  readonly envoyQuotaMode: Switch
  readonly envoyStopAtLimit: Switch
  readonly envoyKeyPrefix: string
}

type SwitchTexts = Pick<Setting<Switch>, 'flag' | 'env' | 'help'>

function switchSetting(texts: SwitchTexts): Setting<Switch> {
  return {
    ...texts,
    value: SWITCH.join('|'),
    fallback: () => 'off',
    shownFallback: 'off',
    read: (text) => SWITCH.find((one) => one === text),
    fix: 'use on or off',
  }
}

/** One of the headers of `--envoy-headers plain`. */
function headerSetting(part: 'limit' | 'remaining' | 'reset', help: string): Setting<string> {
  const fallback = `RateLimit-${part[0]?.toUpperCase()}${part.slice(1)}`
  return {
    flag: `envoy-${part}-header`,
    env: `SLUICE_ENVOY_${part.toUpperCase()}_HEADER`,
    value: '<name>',
    help,
    fallback: () => fallback,
    shownFallback: fallback,
    read: (text) => (/^[\w!#$%&'*+.^`|~-]{1,128}$/.test(text) ? text : undefined),
    fix: `give the name of a header, such as ${fallback}`,
    original: { env: `LIMIT_${part.toUpperCase()}_HEADER` },
    conflict: ({ envoyHeaders }) => (envoyHeaders === 'plain' ? undefined : 'remove it, or give --envoy-headers plain'),
  }
}

export const ENVOY_SETTINGS: { readonly [K in keyof EnvoySettings]: Setting<EnvoySettings[K]> } = {
  envoyConfig: {
    flag: 'envoy-config',
    env: 'SLUICE_ENVOY_CONFIG',
    value: '<file>|<folder>',
    help: 'Configuration of envoyproxy/ratelimit. Its domains use compatibility mode.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (existsSync(text) ? text : undefined),
    fix: 'give the path of a YAML file, or of a folder of such files, that exists',
  },
  envoyDomains: {
    flag: 'envoy-domain',
    env: 'SLUICE_ENVOY_DOMAINS',
    value: '<domain>',
    help:
      'A domain of Envoy that every rule applies to, even if no rule names it; * for all. Other domains without ' +
      '--envoy-config are unlimited. Repeat the flag for several; in the variable, separate them by spaces.',
    fallback: () => undefined,
    shownFallback: 'those that a rule names in `when: { domain: … }`',
    read: (text) => (/\S/.test(text) ? text.trim().split(/\s+/) : undefined),
    fix: 'give the domain of a rate limit filter, or *',
    repeats: true,
  },
  envoyHeaders: {
    flag: 'envoy-headers',
    env: 'SLUICE_ENVOY_HEADERS',
    value: ENVOY_HEADERS.join('|'),
    help:
      'Headers that Envoy adds to responses: RateLimit-… (draft-03) or X-RateLimit-…, and Retry-After; plain: ' +
      'the three of envoyproxy/ratelimit.',
    fallback: () => 'off',
    shownFallback: 'off',
    read: (text) => ENVOY_HEADERS.find((style) => style === text),
    fix: `use ${ENVOY_HEADERS.join(', ')}`,
    original: { env: 'LIMIT_RESPONSE_HEADERS_ENABLED', whenTrue: 'plain' },
  },
  envoyLimitHeader: headerSetting('limit', 'Header with the limit, for --envoy-headers plain.'),
  envoyRemainingHeader: headerSetting('remaining', 'Header with the hits left, for --envoy-headers plain.'),
  envoyResetHeader: headerSetting(
    'reset',
    'Header with the seconds until the same request passes (refused) or the limit is full again (allowed), for ' +
      '--envoy-headers plain.',
  ),
  envoyOverrides: switchSetting({
    flag: 'envoy-overrides',
    env: 'SLUICE_ENVOY_OVERRIDES',
    help: 'Whether limits that Envoy sends apply to domains without --envoy-config. In its domains they always do.',
  }),
  envoyMetadata: {
    ...switchSetting({
      flag: 'envoy-metadata',
      env: 'SLUICE_ENVOY_METADATA',
      help: 'Whether answers to Envoy have dynamic metadata: domain, descriptors and metadata of the limits.',
    }),
    original: { env: 'RESPONSE_DYNAMIC_METADATA', whenTrue: 'on' },
  },
  envoyShadowMode: {
    ...switchSetting({
      flag: 'envoy-shadow-mode',
      env: 'SLUICE_ENVOY_SHADOW_MODE',
      help: 'Whether requests of --envoy-config are only counted, and never refused.',
    }),
    needs: 'envoyConfig',
    original: { env: 'SHADOW_MODE', whenTrue: 'on' },
  },
  envoyQuotaMode: {
    ...switchSetting({
      flag: 'envoy-quota-mode',
      env: 'SLUICE_ENVOY_QUOTA_MODE',
      help: 'Whether every descriptor of --envoy-config has quota_mode: only all of a request together refuse it.',
    }),
    needs: 'envoyConfig',
    original: { env: 'QUOTA_MODE', whenTrue: 'on' },
  },
  envoyStopAtLimit: {
    ...switchSetting({
      flag: 'envoy-stop-at-limit',
      env: 'SLUICE_ENVOY_STOP_AT_LIMIT',
      help: 'Whether a request of --envoy-config that a limit refuses leaves its other counters as they are.',
    }),
    needs: 'envoyConfig',
    original: { env: 'STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT', whenTrue: 'on' },
  },
  envoyKeyPrefix: {
    flag: 'envoy-key-prefix',
    env: 'SLUICE_ENVOY_KEY_PREFIX',
    value: '<text>',
    help: 'Separates the counters of --envoy-config from those of services with another prefix on the same Redis.',
    fallback: () => '',
    shownFallback: '',
    read: (text) => (text.length <= 128 ? text : undefined),
    fix: 'give at most 128 characters',
    needs: 'envoyConfig',
    original: { env: 'CACHE_KEY_PREFIX' },
  },
}

/**
 * All other variables of envoyproxy/ratelimit, with what takes their place; `*` ends the start of several names. They
 * are not read, which is logged. docs/guides/migrating.md has the same rows.
 */
export const OTHER_VARIABLES: readonly (readonly [names: string, instead: string])[] = [
  ['HOST', 'use --host'],
  ['PORT', 'use --port'],
  ['DEBUG_HOST DEBUG_PORT', 'not supported: metrics and health are on --port'],
  ['GRPC_HOST', 'use --grpc-host'],
  ['GRPC_PORT', 'use --grpc-port'],
  ['GRPC_UDS', 'not supported: gRPC listens on --grpc-port'],
  ['GRPC_MAX_CONNECTION_AGE', 'use --grpc-max-connection-age'],
  ['GRPC_MAX_CONNECTION_AGE_GRACE', 'use --grpc-max-connection-age-grace'],
  ['GRPC_SERVER_USE_TLS GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY', 'use --tls-cert and --tls-key'],
  ['GRPC_CLIENT_TLS_CACERT GRPC_CLIENT_TLS_SAN', 'use --tls-client-ca'],
  ['LOG_LEVEL', 'use --log-level'],
  ['LOG_FORMAT', 'no setting is needed: the log is JSON'],
  [
    'CONFIG_TYPE CONFIG_GRPC_XDS_* XDS_CLIENT_* FORCE_START_WITHOUT_INITIAL_CONFIG',
    'not supported: the configuration is in files, --envoy-config',
  ],
  [
    'RUNTIME_ROOT RUNTIME_SUBDIRECTORY RUNTIME_APPDIRECTORY',
    'use --envoy-config with the folder RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY, ' +
      'whose last part is config by default',
  ],
  ['RUNTIME_IGNOREDOTFILES', 'no setting is needed: files whose name begins with a dot are not read'],
  ['RUNTIME_WATCH_ROOT', 'no setting is needed: every change of a file applies'],
  ['MERGE_DOMAIN_CONFIG', 'not supported: put all descriptors of a domain into one file'],
  ['HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED', 'no setting is needed: an invalid configuration ends the start'],
  ['USE_STATSD STATSD_HOST STATSD_PORT STATS_FLUSH_INTERVAL DISABLE_STATS EXTRA_TAGS', 'use --otlp-endpoint'],
  ['USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS', 'use --otlp-endpoint'],
  ['USE_PROMETHEUS PROMETHEUS_*', 'use /metrics of --port'],
  ['TRACING_*', 'use --otlp-endpoint and --trace-sample'],
  ['NEAR_LIMIT_RATIO', 'not supported: there is no metric of requests near a limit'],
  ['LOCAL_CACHE_SIZE_IN_BYTES', 'not supported: refused requests reach Redis too'],
  ['EXPIRATION_JITTER_MAX_SECONDS', 'no setting is needed: Redis drops counters after their window'],
  ['BACKEND_TYPE MEMCACHE_*', 'not supported: counters are in Redis, --redis'],
  ['REDIS_SOCKET_TYPE REDIS_TYPE REDIS_URL REDIS_AUTH REDIS_SENTINEL_AUTH REDIS_TLS', 'use --redis'],
  ['REDIS_TLS_CACERT', 'use NODE_EXTRA_CA_CERTS'],
  ['REDIS_TLS_CLIENT_CERT REDIS_TLS_CLIENT_KEY', 'not supported: give a user and a password in --redis'],
  ['REDIS_TLS_SKIP_HOSTNAME_VERIFICATION', 'not supported: the certificate must have the host of --redis'],
  ['REDIS_PERSECOND*', 'not supported: the counters of all units are in one Redis, --redis'],
  ['REDIS_POOL_SIZE', 'use --redis-connections'],
  ['REDIS_POOL_ON_EMPTY_BEHAVIOR', 'no setting is needed: all requests share the connections'],
  [
    'REDIS_PIPELINE_WINDOW REDIS_PIPELINE_LIMIT REDIS_CLUSTER_PIPELINE_PARALLELISM',
    'no setting is needed: concurrent requests share round trips',
  ],
  ['REDIS_TIMEOUT', 'use --store-deadline-ms'],
  ['REDIS_HEALTH_CHECK_ACTIVE_CONNECTION', 'no setting is needed: /readyz reports the store'],
  [
    'REDIS_STARTUP_*',
    'no setting is needed: the start continues without Redis; each wait for it ends after 2 s, about 4 s in all',
  ],
]

/** One line for each of these variables that is set. Values may be secrets. */
export function otherVariables(environment: Readonly<Record<string, string | undefined>>): string[] {
  const set = Object.keys(environment).filter((name) => environment[name])
  return OTHER_VARIABLES.flatMap(([names, instead]) => {
    const isListed = (name: string) => {
      return names.split(' ').some((one) => (one.endsWith('*') ? name.startsWith(one.slice(0, -1)) : name === one))
    }
    return set.filter(isListed).map((name) => `${name} of envoyproxy/ratelimit is not read; ${instead}`)
  })
}
