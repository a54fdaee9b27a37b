// The settings that say who a client is: which proxies are believed about its address, and where its user, key, tenant
// and plan are read. Forward auth and the gateway share them.

import { existsSync } from 'node:fs'
import { type Cidr, type Proxies, parseCidr } from 'sluice/http'
import { FACT_SOURCE_KINDS, type FactSource, type IdentitySettings } from '../clients/identity.ts'
import type { Setting } from './settings.ts'

export type ClientSettings = IdentitySettings & {
  readonly trustedProxies: readonly Cidr[]
  readonly proxyHeader: Proxies['header']
}

const TOKEN = /^[!#$%&'*+.^_`|~\w-]+$/
const SOURCE_FIX = 'use header:<name>, cookie:<name> or jwt:<claim>, and in a gateway cert:cn or cert:fingerprint'

export const CLIENT_SETTINGS: { readonly [K in keyof ClientSettings]: Setting<ClientSettings[K]> } = {
  trustedProxies: {
    flag: 'trusted-proxies',
    env: 'SLUICE_TRUSTED_PROXIES',
    value: '<ranges>',
    help: 'Addresses and CIDR ranges, with commas between them, whose word about a client is taken.',
    fallback: () => [],
    shownFallback: 'nobody, not even this machine',
    read: readRanges,
    fix: 'give addresses or CIDR ranges such as 127.0.0.1,10.0.0.0/8; hop counts can be spoofed',
  },
  proxyHeader: {
    flag: 'proxy-header',
    env: 'SLUICE_PROXY_HEADER',
    value: 'x-forwarded-for|forwarded',
    help: 'The header in which those proxies say who the client is.',
    fallback: () => 'x-forwarded-for',
    shownFallback: 'x-forwarded-for',
    read: (text) => (text === 'x-forwarded-for' || text === 'forwarded' ? text : undefined),
    fix: 'use x-forwarded-for or forwarded',
    needs: 'trustedProxies',
  },
  userFrom: factSetting('user-from', 'the user'),
  apiKeyFrom: factSetting('api-key-from', 'the API key'),
  tenantFrom: factSetting('tenant-from', 'the tenant'),
  planFrom: factSetting('plan-from', 'the plan'),
  jwtSecret: {
    flag: 'jwt-secret',
    env: 'SLUICE_JWT_SECRET',
    value: '<text>',
    help: 'Secret of the tokens of jwt:<claim> (HS256, HS384, HS512). Without it or --jwt-key they are not verified.',
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
    help: 'Public key or certificate in PEM that verifies the tokens of jwt:<claim> (RSA, elliptic curves, Ed25519).',
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
    help: `Where ${fact} of a request is read: header:<name>, cookie:<name>, jwt:<claim>, cert:cn, cert:fingerprint.`,
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
