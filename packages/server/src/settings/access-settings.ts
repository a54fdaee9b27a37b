// Settings of access: tokens, listening socket, TLS and webhooks.

import { existsSync } from 'node:fs'
import { isLoopback } from './loopback.ts'
import { readInteger, type Setting } from './setting.ts'
import type { Settings } from './settings.ts'

/** Maximum length that fits into a `sockaddr_un` on every system. */
const SOCKET_PATH_MAX = 100
const WEBHOOKS_MAX = 10

/** Minimum of distinct characters in a token: repeated words such as "passwordpassword" have fewer. */
const DISTINCT_MIN = 8
export const TOKEN_FIX: string =
  'give at least 16 characters, 8 of them different, without spaces; for example, use openssl rand -hex 32'

type AccessSetting =
  | 'adminToken'
  | 'tokensFile'
  | 'checks'
  | 'socket'
  | 'tlsCert'
  | 'tlsKey'
  | 'tlsClientCa'
  | 'maxConnectionsPerAddress'
  | 'webhooks'
  | 'webhookSecret'

export const ACCESS_SETTINGS: { readonly [K in AccessSetting]: Setting<Settings[K]> } = {
  adminToken: {
    flag: 'admin-token',
    env: 'SLUICE_ADMIN_TOKEN',
    value: '<text>',
    help: 'Admin token that needs no database, for the first steps and for nodes without a database.',
    fallback: () => undefined,
    shownFallback: '',
    read: readToken,
    fix: TOKEN_FIX,
    secret: true,
  },
  tokensFile: {
    flag: 'tokens-file',
    env: 'SLUICE_TOKENS_FILE',
    value: '<file>',
    help: 'Tokens and their roles, for nodes without a database: YAML or JSON. An edit applies within a second.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (existsSync(text) ? text : undefined),
    fix: 'give the path of a file that exists, with a list of tokens: name, role, token',
    needs: 'rules',
  },
  checks: {
    flag: 'checks',
    env: 'SLUICE_CHECKS',
    value: 'open|token',
    help: 'Whether checks and refunds need a token with the role check.',
    fallback: () => undefined,
    shownFallback: 'open on a loopback address or socket, token elsewhere',
    read: (text) => (text === 'open' || text === 'token' ? text : undefined),
    fix: 'use open or token',
  },
  socket: {
    flag: 'socket',
    env: 'SLUICE_SOCKET',
    value: '<path>',
    help: 'Socket file to listen on instead of an address; the permissions of its folder control access.',
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
    help: 'Certificate with its chain; enables TLS. Renewed files apply to new connections.',
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
    help: 'Private key of the certificate.',
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
    help: 'CA certificates: only clients with a certificate signed by one of them can connect.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (existsSync(text) ? text : undefined),
    fix: 'give the path of a PEM file that exists',
    needs: 'tlsCert',
  },
  maxConnectionsPerAddress: {
    flag: 'max-connections-per-address',
    env: 'SLUICE_MAX_CONNECTIONS_PER_ADDRESS',
    value: '<number>',
    help:
      'Cap on connections of one client address to each port of one process; further ones are closed on arrival. ' +
      '--trusted-proxies and socket files have none.',
    fallback: () => 1000,
    shownFallback: '1000',
    read: (text) => readInteger(text, 1, 1_000_000),
    fix: 'give a whole number from 1 to 1000000',
  },
  webhooks: {
    flag: 'webhooks',
    env: 'SLUICE_WEBHOOKS',
    value: '<url,…>',
    help:
      'URLs that receive events: rule changes, rollouts, degraded nodes, kill switch, incidents, ' +
      'refusal spikes, hot keys, failing event sinks and burning error budgets.',
    fallback: () => undefined,
    shownFallback: '',
    read: readWebhooks,
    fix: `give up to ${WEBHOOKS_MAX} comma-separated URLs: https, or http on loopback; no user or password`,
    needs: 'webhookSecret',
    secret: true,
  },
  webhookSecret: {
    flag: 'webhook-secret',
    env: 'SLUICE_WEBHOOK_SECRET',
    value: '<text>',
    help: 'Secret for signing webhook events.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (text.length >= 16 ? text : undefined),
    fix: 'give at least 16 characters',
    needs: 'webhooks',
    secret: true,
  },
}

/** Rejects guessable tokens: after any number of invalid tokens, a valid one is still accepted. */
export function readToken(text: string): string | undefined {
  return /^[\x21-\x7e]{16,}$/.test(text) && new Set(text).size >= DISTINCT_MIN ? text : undefined
}

/** Allows plain HTTP on loopback only. */
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
