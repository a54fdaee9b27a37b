// Settings of Envoy's rate limit service.

import { existsSync } from 'node:fs'
import type { Setting } from './setting.ts'

export const ENVOY_HEADERS = ['off', 'draft-03', 'x-ratelimit'] as const
export type EnvoyHeaders = (typeof ENVOY_HEADERS)[number]

const SWITCH = ['on', 'off'] as const

export type EnvoySettings = {
  /** Undefined: no domain has a configuration. */
  readonly envoyConfig: string | undefined
  /** Domains that every rule applies to; `*`: all. */
  readonly envoyDomains: readonly string[] | undefined
  readonly envoyHeaders: EnvoyHeaders
  readonly envoyOverrides: (typeof SWITCH)[number]
  readonly envoyMetadata: (typeof SWITCH)[number]
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
    help: 'Headers that Envoy adds to responses: RateLimit-… (draft-03) or X-RateLimit-…, and Retry-After.',
    fallback: () => 'off',
    shownFallback: 'off',
    read: (text) => ENVOY_HEADERS.find((style) => style === text),
    fix: `use ${ENVOY_HEADERS.join(', ')}`,
  },
  envoyOverrides: {
    flag: 'envoy-overrides',
    env: 'SLUICE_ENVOY_OVERRIDES',
    value: SWITCH.join('|'),
    help: 'Whether limits that Envoy sends apply to domains without --envoy-config. In its domains they always do.',
    fallback: () => 'off',
    shownFallback: 'off',
    read: (text) => SWITCH.find((one) => one === text),
    fix: 'use on or off',
  },
  envoyMetadata: {
    flag: 'envoy-metadata',
    env: 'SLUICE_ENVOY_METADATA',
    value: SWITCH.join('|'),
    help: 'Whether answers to Envoy have dynamic metadata: domain, descriptors and metadata of the limits.',
    fallback: () => 'off',
    shownFallback: 'off',
    read: (text) => SWITCH.find((one) => one === text),
    fix: 'use on or off',
  },
}
