// Settings of `sluice gateway`: those of the service, plus listener, upstreams and timeouts.

import { existsSync } from 'node:fs'
import { readInteger, type SettingsTable } from '../settings/setting.ts'
import { SETTINGS, type Settings } from '../settings/settings.ts'
import { type Route, readRoutes, readUpstream } from './routes.ts'

export type GatewaySettings = Settings & {
  readonly listen: { readonly host: string; readonly port: number }
  readonly upstream: URL | undefined
  readonly routes: readonly Route[]
  readonly upstreamTimeoutMs: number
  readonly clientTimeoutMs: number
  readonly clientHeadTimeoutMs: number
  readonly clientBodyTimeoutMs: number
  readonly methodOverride: 'drop' | 'honour'
  readonly maxInFlight: number
  readonly maxConnections: number
  readonly listenCert: string | undefined
  readonly listenKey: string | undefined
  readonly listenClientCa: string | undefined
}

const FILE_FIX = 'give the path of a file that exists'
const NUMBER_FIX = 'give a whole number from 1 to 1000000'
const MS_FIX = 'give milliseconds from 1 to 86400000'

export const GATEWAY_SETTINGS: SettingsTable<GatewaySettings> = {
  upstream: {
    flag: 'upstream',
    env: 'SLUICE_UPSTREAM',
    value: '<url>',
    help: 'URL of the upstream for requests that match no --route.',
    fallback: () => undefined,
    shownFallback: '',
    read: readUpstream,
    fix: 'give a URL without a path, such as http://127.0.0.1:3000',
    fixFor: credentialsFix,
  },
  routes: {
    flag: 'route',
    env: 'SLUICE_ROUTES',
    value: '[<host>]/<prefix>=<url>',
    help:
      'Sends paths with this prefix to another upstream. Routes with a host take precedence, then longer prefixes. ' +
      'Repeat the flag for several routes, or separate them by commas.',
    fallback: () => [],
    shownFallback: '',
    read: readRoutes,
    fix:
      'give /api=http://127.0.0.1:3001 or example.org/api=http://127.0.0.1:3001; for several, repeat the flag, ' +
      'or separate them by commas',
    fixFor: credentialsFix,
    repeats: true,
  },
  listen: {
    flag: 'listen',
    env: 'SLUICE_LISTEN',
    value: '<address>:<port>',
    help: 'Address to proxy on; --api-host and --api-port set the address of the API, health checks and metrics.',
    fallback: () => ({ host: '127.0.0.1', port: 8000 }),
    shownFallback: '127.0.0.1:8000',
    read: readListen,
    fix: 'give an address and a port, such as 0.0.0.0:80 or [::]:443',
  },
  listenCert: {
    flag: 'listen-cert',
    env: 'SLUICE_LISTEN_CERT',
    value: '<file>',
    help: 'Certificate chain in PEM; enables TLS with HTTP/2 and HTTP/1.1.',
    fallback: () => undefined,
    shownFallback: '',
    read: readPath,
    fix: FILE_FIX,
    needs: 'listenKey',
  },
  listenKey: {
    flag: 'listen-key',
    env: 'SLUICE_LISTEN_KEY',
    value: '<file>',
    help: 'Private key of the certificate, in PEM.',
    fallback: () => undefined,
    shownFallback: '',
    read: readPath,
    fix: FILE_FIX,
    needs: 'listenCert',
  },
  listenClientCa: {
    flag: 'listen-client-ca',
    env: 'SLUICE_LISTEN_CLIENT_CA',
    value: '<file>',
    help: 'CA file: clients must present a certificate signed by it, for use by cert:cn and cert:fingerprint.',
    fallback: () => undefined,
    shownFallback: '',
    read: readPath,
    fix: FILE_FIX,
    needs: 'listenCert',
  },
  upstreamTimeoutMs: {
    flag: 'upstream-timeout-ms',
    env: 'SLUICE_UPSTREAM_TIMEOUT_MS',
    value: '<ms>',
    help: 'Longest wait for the head of an upstream response, and longest pause within its body.',
    fallback: () => 60_000,
    shownFallback: '60000',
    read: (text) => readInteger(text, 1, 86_400_000),
    fix: MS_FIX,
  },
  clientTimeoutMs: {
    flag: 'client-timeout-ms',
    env: 'SLUICE_CLIENT_TIMEOUT_MS',
    value: '<ms>',
    help: 'Longest time that a client connection may be idle, within a request or between two.',
    fallback: () => 75_000,
    shownFallback: '75000',
    read: (text) => readInteger(text, 1, 86_400_000),
    fix: MS_FIX,
  },
  clientHeadTimeoutMs: {
    flag: 'client-head-timeout-ms',
    env: 'SLUICE_CLIENT_HEAD_TIMEOUT_MS',
    value: '<ms>',
    help: 'Longest time for receiving the head of a request, and for a TLS handshake, which has at most 10 s.',
    fallback: () => 15_000,
    shownFallback: '15000',
    read: (text) => readInteger(text, 1, 86_400_000),
    fix: MS_FIX,
  },
  clientBodyTimeoutMs: {
    flag: 'client-body-timeout-ms',
    env: 'SLUICE_CLIENT_BODY_TIMEOUT_MS',
    value: '<ms>',
    help: 'Aborts an upload that stays below 240 bytes a second for this long. Faster uploads have no time limit.',
    fallback: () => 30_000,
    shownFallback: '30000',
    read: (text) => readInteger(text, 1, 86_400_000),
    fix: MS_FIX,
  },
  methodOverride: {
    flag: 'method-override',
    env: 'SLUICE_METHOD_OVERRIDE',
    value: 'drop|honour',
    help: 'X-HTTP-Method-Override and similar headers: drop them, or use their method for a POST and forward them.',
    fallback: () => 'drop',
    shownFallback: 'drop',
    read: (text) => (text === 'drop' || text === 'honour' ? text : undefined),
    fix: 'use drop or honour',
  },
  maxInFlight: {
    flag: 'max-in-flight',
    env: 'SLUICE_MAX_IN_FLIGHT',
    value: '<number>',
    help: 'Maximum number of requests and WebSockets in flight; beyond it, clients get 503.',
    fallback: () => 10_000,
    shownFallback: '10000',
    read: (text) => readInteger(text, 1, 1_000_000),
    fix: NUMBER_FIX,
  },
  maxConnections: {
    flag: 'max-connections',
    env: 'SLUICE_MAX_CONNECTIONS',
    value: '<number>',
    help: 'Maximum number of client connections, including idle ones; beyond it, new ones are closed immediately.',
    fallback: () => 20_000,
    shownFallback: '20000',
    read: (text) => readInteger(text, 1, 1_000_000),
    fix: NUMBER_FIX,
  },
  ...SETTINGS,
  host: {
    ...SETTINGS.host,
    flag: 'api-host',
    env: 'SLUICE_API_HOST',
    help: 'Address of the API, health checks and metrics; 0.0.0.0 for every IPv4 interface.',
    insteadOf: {
      flag: 'host',
      env: 'SLUICE_HOST',
      fix: 'give --listen <address>:<port> to proxy on, or --api-host for the API, health checks and metrics',
    },
  },
  port: {
    ...SETTINGS.port,
    flag: 'api-port',
    env: 'SLUICE_API_PORT',
    help: 'Port of the API, health checks and metrics; 0 picks a free one.',
    insteadOf: {
      flag: 'port',
      env: 'SLUICE_PORT',
      fix: 'give --listen <address>:<port> to proxy on, or --api-port for the API, health checks and metrics',
    },
  },
  layer: { ...SETTINGS.layer, fallback: () => 'edge', shownFallback: 'edge' },
}

function credentialsFix(text: string): string | undefined {
  return text.includes('@') ? 'remove the user and password: the gateway does not send credentials' : undefined
}

function readPath(text: string): string | undefined {
  return existsSync(text) ? text : undefined
}

function readListen(text: string): GatewaySettings['listen'] | undefined {
  const [, host, port] = /^(\[[\da-f:.%]+\]|[\w.-]+):(\d{1,5})$/i.exec(text) ?? []
  const number = readInteger(port ?? '', 0, 65_535)
  return host === undefined || number === undefined ? undefined : { host: host.replace(/^\[|\]$/g, ''), port: number }
}
