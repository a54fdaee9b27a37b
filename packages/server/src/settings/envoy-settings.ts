// Settings of Envoy's rate limit service.

import { existsSync } from 'node:fs'
import type { Setting } from './setting.ts'

export const ENVOY_HEADERS = ['off', 'draft-03', 'x-ratelimit'] as const
export type EnvoyHeaders = (typeof ENVOY_HEADERS)[number]

const SWITCH = ['on', 'off'] as const

export type EnvoySettings = {
  /** Undefined: rules apply to every domain. */
  readonly envoyConfig: string | undefined
  readonly envoyHeaders: EnvoyHeaders
  readonly envoyOverrides: (typeof SWITCH)[number]
  readonly envoyMetadata: (typeof SWITCH)[number]
}

export const ENVOY_SETTINGS: { readonly [K in keyof EnvoySettings]: Setting<EnvoySettings[K]> } = {
  envoyConfig: {
    flag: 'envoy-config',
    env: 'SLUICE_ENVOY_CONFIG',
    value: '<file>|<folder>',
    help: 'Configuration of envoyproxy/ratelimit. Its domains use compatibility mode; rules apply to all others.',
    fallback: () => undefined,
    shownFallback: 'rules apply to every domain',
    read: (text) => (existsSync(text) ? text : undefined),
    fix: 'give the path of a YAML file, or of a folder of such files, that exists',
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
