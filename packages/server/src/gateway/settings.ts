// The settings of `sluice gateway`: those of the service, and what it takes to stand in front of another one.

import { existsSync } from 'node:fs'
import { readInteger, SETTINGS, type Settings, type SettingsTable } from '../settings/settings.ts'
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
    help: 'The service behind, for every request that no --route is for.',
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
      'Sends paths with this prefix to another service; a host goes first, then the longest prefix. ' +
      'Give it again for another one, or separate them by commas.',
    fallback: () => [],
    shownFallback: '',
    read: readRoutes,
    fix:
      'give /api=http://127.0.0.1:3001 or example.org/api=http://127.0.0.1:3001; for several, give it again, ' +
      'or separate them by commas',
    fixFor: credentialsFix,
    repeats: true,
  },
  listen: {
    flag: 'listen',
    env: 'SLUICE_LISTEN',
    value: '<address>:<port>',
    help: 'Where the gateway listens; --host and --port are where its API, health and metrics are.',
    fallback: () => ({ host: '127.0.0.1', port: 8000 }),
    shownFallback: '127.0.0.1:8000',
    read: readListen,
    fix: 'give an address and a port, such as 0.0.0.0:80 or [::]:443',
  },
  listenCert: {
    flag: 'listen-cert',
    env: 'SLUICE_LISTEN_CERT',
    value: '<file>',
    help: 'Certificate chain in PEM: with it the gateway speaks TLS, with HTTP/2 and HTTP/1.1.',
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
    help: 'Clients must show a certificate that this authority has signed; cert:cn and cert:fingerprint read it.',
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
    help: 'How long a service behind may take to begin its answer, and may be silent in the middle of it.',
    fallback: () => 60_000,
    shownFallback: '60000',
    read: (text) => readInteger(text, 1, 86_400_000),
    fix: MS_FIX,
  },
  clientTimeoutMs: {
    flag: 'client-timeout-ms',
    env: 'SLUICE_CLIENT_TIMEOUT_MS',
    value: '<ms>',
    help: 'How long a connection of a client may be silent, in the middle of a request or between two.',
    fallback: () => 75_000,
    shownFallback: '75000',
    read: (text) => readInteger(text, 1, 86_400_000),
    fix: MS_FIX,
  },
  clientHeadTimeoutMs: {
    flag: 'client-head-timeout-ms',
    env: 'SLUICE_CLIENT_HEAD_TIMEOUT_MS',
    value: '<ms>',
    help: 'How long a client may take for a TLS handshake, and for the head of a request.',
    fallback: () => 15_000,
    shownFallback: '15000',
    read: (text) => readInteger(text, 1, 86_400_000),
    fix: MS_FIX,
  },
  clientBodyTimeoutMs: {
    flag: 'client-body-timeout-ms',
    env: 'SLUICE_CLIENT_BODY_TIMEOUT_MS',
    value: '<ms>',
    help: 'A client that sends a body at less than 240 bytes a second for so long is cut off. Others have no limit.',
    fallback: () => 30_000,
    shownFallback: '30000',
    read: (text) => readInteger(text, 1, 86_400_000),
    fix: MS_FIX,
  },
  methodOverride: {
    flag: 'method-override',
    env: 'SLUICE_METHOD_OVERRIDE',
    value: 'drop|honour',
    help: 'X-HTTP-Method-Override and its kin: drop them, or decide a POST by the method they name and pass them on.',
    fallback: () => 'drop',
    shownFallback: 'drop',
    read: (text) => (text === 'drop' || text === 'honour' ? text : undefined),
    fix: 'use drop or honour',
  },
  maxInFlight: {
    flag: 'max-in-flight',
    env: 'SLUICE_MAX_IN_FLIGHT',
    value: '<number>',
    help: 'Most requests and WebSockets at once; above it the answer is 503.',
    fallback: () => 10_000,
    shownFallback: '10000',
    read: (text) => readInteger(text, 1, 1_000_000),
    fix: NUMBER_FIX,
  },
  maxConnections: {
    flag: 'max-connections',
    env: 'SLUICE_MAX_CONNECTIONS',
    value: '<number>',
    help: 'Most connections of clients at once, idle ones too; above it others are closed as they come.',
    fallback: () => 20_000,
    shownFallback: '20000',
    read: (text) => readInteger(text, 1, 1_000_000),
    fix: NUMBER_FIX,
  },
  ...SETTINGS,
  // Who puts a gateway in front of a service stands at the edge.
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
