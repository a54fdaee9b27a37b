// Opens Envoy's rate limit service on a node: its configuration, which is followed, and the engines behind it.

import { randomUUID } from 'node:crypto'
import type { Limiter } from 'sluice'
import type { CheckController } from '../checks/check-controller.ts'
import { NO_CONFIG } from '../envoy/config-files.ts'
import { followConfig } from '../envoy/live-config.ts'
import { createRateLimitService, type DecideRateLimit, type RateLimitOptions } from '../envoy/rate-limit-service.ts'
import { RuleDomains } from '../envoy/rule-domains.ts'
import type { Log } from '../log.ts'
import type { EnvoySettings } from '../settings/envoy-settings.ts'
import type { Settings } from '../settings/settings.ts'
import type { OpenStore } from '../store/open-store.ts'

export type OpenEnvoy = { readonly decide: DecideRateLimit; close(): void }

export type OpenEnvoyDeps = {
  readonly limiter: Limiter
  readonly store: Pick<OpenStore, 'store'>
  readonly checks: CheckController
  readonly log: Log
}

/** Throws EnvoyConfigInvalid if the configuration is invalid. */
export function openEnvoy(settings: Settings, { limiter, store, checks, log }: OpenEnvoyDeps): OpenEnvoy {
  const { envoyConfig: path } = settings
  const live = path === undefined ? undefined : followConfig(path, log)
  const config = live === undefined ? () => NO_CONFIG : () => live.current()
  const ruleDomains = new RuleDomains(limiter, settings.envoyDomains ?? [], log)
  const [configured, rules] = [[...config().domains.keys()], ruleDomains.names()]
  if (settings.grpcPort !== undefined || path !== undefined || rules.length > 0) {
    log.event('envoy_domains', { configured, rules, others: ruleDomains.others() })
  }
  if (settings.envoyShadowMode === 'on') log.event('envoy_shadow_mode', {})
  const decide = createRateLimitService({
    store: store.store,
    ...{ limiter, checks, config, ruleDomains },
    newId: () => randomUUID(),
    options: rateLimitOptions(settings),
  })
  return { decide, close: () => live?.stop() }
}

export function rateLimitOptions(settings: EnvoySettings): RateLimitOptions {
  const { envoyHeaders: headers, envoyLimitHeader, envoyRemainingHeader, envoyResetHeader } = settings
  return {
    headers,
    plainNames: [envoyLimitHeader, envoyRemainingHeader, envoyResetHeader],
    metadata: settings.envoyMetadata === 'on',
    overrides: settings.envoyOverrides === 'on',
    compat: {
      shadowMode: settings.envoyShadowMode === 'on',
      quotaMode: settings.envoyQuotaMode === 'on',
      stopAtLimit: settings.envoyStopAtLimit === 'on',
      keyPrefix: settings.envoyKeyPrefix,
    },
  }
}
