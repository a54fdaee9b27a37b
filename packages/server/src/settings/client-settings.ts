// Settings of client identity, shared by forward auth and the gateway: trusted proxies, and the sources of user, API
// key, tenant and plan.

import { existsSync } from 'node:fs'
import { BYPASS_HEADER, type Cidr, type Proxies, parseCidr } from 'sluice/http'
import type { Setting } from './setting.ts'

export type JwtSettings = {
  /** Secret of HMAC signatures. */
  readonly jwtSecret: string | undefined
  /** File of a public key or certificate. */
  readonly jwtKey: string | undefined
}

export const FACT_SOURCE_KINDS = ['header', 'cookie', 'jwt', 'cert'] as const
export type FactSource = { readonly kind: (typeof FACT_SOURCE_KINDS)[number]; readonly name: string }

export type IdentitySettings = JwtSettings & {
  readonly userFrom: FactSource | undefined
  readonly apiKeyFrom: FactSource | undefined
  readonly tenantFrom: FactSource | undefined
  readonly planFrom: FactSource | undefined
}

export type ClientSettings = IdentitySettings & {
  readonly trustedProxies: readonly Cidr[]
  readonly proxyHeader: Proxies['header']
  /** Lower-case name of the header with a bypass token; `off`: none is read. */
  readonly bypassHeader: string
}

const TOKEN = /^[!#$%&'*+.^_`|~\w-]+$/
const SOURCE_FIX = 'use header:<name>, cookie:<name> or jwt:<claim>, and in a gateway cert:cn or cert:fingerprint'

export const CLIENT_SETTINGS: { readonly [K in keyof ClientSettings]: Setting<ClientSettings[K]> } = {
  trustedProxies: {
    flag: 'trusted-proxies',
    env: 'SLUICE_TRUSTED_PROXIES',
    value: '<ranges>',
    help: 'Addresses and CIDR ranges of proxies that may report the address of a client, separated by commas.',
    fallback: () => [],
    shownFallback: 'none, not even loopback',
    read: readRanges,
    fix: 'give addresses or CIDR ranges such as 127.0.0.1,10.0.0.0/8; hop counts can be spoofed',
  },
  proxyHeader: {
    flag: 'proxy-header',
    env: 'SLUICE_PROXY_HEADER',
    value: 'x-forwarded-for|forwarded',
    help: 'Header in which trusted proxies report the client address.',
    fallback: () => 'x-forwarded-for',
    shownFallback: 'x-forwarded-for',
    read: (text) => (text === 'x-forwarded-for' || text === 'forwarded' ? text : undefined),
    fix: 'use x-forwarded-for or forwarded',
    needs: 'trustedProxies',
  },
  bypassHeader: {
    flag: 'bypass-header',
    env: 'SLUICE_BYPASS_HEADER',
    value: '<name>|off',
    help: 'Header in which a client sends a bypass token; the gateway does not forward it. off: none is read.',
    fallback: () => BYPASS_HEADER,
    shownFallback: BYPASS_HEADER,
    read: (text) => (TOKEN.test(text) ? text.toLowerCase() : undefined),
    fix: 'give the name of a header, or off',
  },
  userFrom: factSetting('user-from', 'the user'),
  apiKeyFrom: factSetting('api-key-from', 'the API key'),
  tenantFrom: factSetting('tenant-from', 'the tenant'),
  planFrom: factSetting('plan-from', 'the plan'),
  jwtSecret: {
    flag: 'jwt-secret',
    env: 'SLUICE_JWT_SECRET',
    value: '<text>',
    help: 'Secret that verifies JWTs (HS256, HS384, HS512). Without it or --jwt-key, JWTs are not verified.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (text.length >= 32 ? text : undefined),
    fix: 'give at least 32 characters',
    excludes: 'jwtKey',
    secret: true,
  },
  jwtKey: {
    flag: 'jwt-key',
    env: 'SLUICE_JWT_KEY',
    value: '<file>',
    help: 'Public key or certificate in PEM that verifies JWTs (RSA, elliptic curves, Ed25519).',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (existsSync(text) ? text : undefined),
    fix: 'give the path of a file that exists',
  },
}

function factSetting(flag: string, fact: string): Setting<FactSource | undefined> {
  return {
    flag,
    env: `SLUICE_${flag.replaceAll('-', '_').toUpperCase()}`,
    value: '<source>',
    help: `Where to read ${fact} of a request: header:<name>, cookie:<name>, jwt:<claim>, cert:cn, cert:fingerprint.`,
    fallback: () => undefined,
    shownFallback: '',
    read: readSource,
    fix: SOURCE_FIX,
  }
}

function readRanges(text: string): readonly Cidr[] | undefined {
  const ranges = text.split(',').map((range) => parseCidr(range.trim()))
  return ranges.every((range) => range !== undefined) ? ranges : undefined
}

function readSource(text: string): FactSource | undefined {
  const colon = text.indexOf(':')
  const kind = FACT_SOURCE_KINDS.find((one) => one === text.slice(0, colon))
  const name = text.slice(colon + 1)
  if (kind === undefined || !TOKEN.test(name)) return undefined
  if (kind === 'cert') return name === 'cn' || name === 'fingerprint' ? { kind, name } : undefined
  return { kind, name: kind === 'header' ? name.toLowerCase() : name }
}
