// Follows a configuration of envoyproxy/ratelimit. A changed configuration is loaded as a whole once its files are
// stable; an invalid one is logged, and the last good one stays active.

import type { Log } from '../log.ts'
import { watchFingerprint } from '../rules/file-watch.ts'
import { configFingerprint, type EnvoyConfig, loadConfig } from './config-files.ts'

export type LiveConfig = {
  current(): EnvoyConfig
  stop(): void
}

/** Throws EnvoyConfigInvalid if the configuration is invalid at the start. */
export function followConfig(path: string, log: Log): LiveConfig {
  const known = configFingerprint(path) // before the content, so that a later change is noticed
  let config = load(path, log)
  const watch = watchFingerprint(
    async () => fingerprintOrNone(path),
    known,
    () => {
      try {
        config = load(path, log)
      } catch (error) {
        log.event('envoy_config_rejected', { path, reason: (error as Error).message })
      }
    },
  )
  return { current: () => config, stop: () => watch.stop() }
}

function load(path: string, log: Log): EnvoyConfig {
  const { config, warnings } = loadConfig(path)
  log.event('envoy_config_applied', { path, domains: [...config.domains.keys()] })
  if (warnings.length > 0) log.event('envoy_config_warnings', { path, warnings })
  return config
}

/** A folder that is being replaced cannot be listed for a moment. */
function fingerprintOrNone(path: string): string {
  try {
    return configFingerprint(path)
  } catch {
    return 'absent'
  }
}
