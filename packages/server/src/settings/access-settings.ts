// Settings of who may connect, ask and be told: a part of the table in settings.ts.

import { existsSync } from 'node:fs'
import { isLoopback } from '../node/loopback.ts'
import type { Setting, Settings } from './settings.ts'

/** What fits into a `sockaddr_un` on every system. */
const SOCKET_PATH_MAX = 100
const WEBHOOKS_MAX = 10

/** Distinct characters a token needs: repeated words such as "passwordpassword" have fewer. */
const TOKEN_LETTERS_MIN = 8
export const TOKEN_FIX: string =
  'give at least 16 characters without spaces, 8 of them different; openssl rand -hex 32 makes a good one'

type AccessSetting =
  | 'adminToken'
  | 'tokensFile'
  | 'checks'
  | 'socket'
  | 'tlsCert'
  | 'tlsKey'
  | 'tlsClientCa'
  | 'webhooks'
  | 'webhookSecret'

export const ACCESS_SETTINGS: { readonly [K in AccessSetting]: Setting<Settings[K]> } = {
  adminToken: {
    flag: 'admin-token',
    env: 'SLUICE_ADMIN_TOKEN',
    value: '<text>',
    help: 'A token of the role admin that is in no database: for the first steps, and for nodes without one.',
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

/** Refuses what can be guessed: a right token always passes, however many wrong ones came before it. */
export function readToken(text: string): string | undefined {
  return /^[\x21-\x7e]{16,}$/.test(text) && new Set(text).size >= TOKEN_LETTERS_MIN ? text : undefined
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
