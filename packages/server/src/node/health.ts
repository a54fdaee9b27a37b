// How a node stands: what /readyz tells, and webhooks when it changes.

import type { Limiter } from 'sluice'
import type { OpenStore } from '../counters/open-store.ts'
import type { KillSwitch } from '../kill-switch/kill-switch.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { LiveRules } from '../rules/live-rules.ts'

/** Where the service stands in its life. */
export type Lifecycle = { draining: boolean }

export type HealthParts = {
  readonly limiter: Limiter
  readonly metrics: Metrics
  readonly store: OpenStore
  readonly live: LiveRules
  readonly lifecycle: Lifecycle
  readonly killSwitch: KillSwitch
}

/** Why the node is degraded; empty when it is not. */
export function troubleOf({ live, store, killSwitch }: HealthParts): readonly string[] {
  const [failure, pressure, killed] = [store.failure(), store.pressure.trouble(), killSwitch.inWords()]
  const trouble = [
    failure && `store: ${failure}`,
    pressure && `store: ${pressure}`,
    store.region?.isCutOff ? 'region: the global Redis does not answer, homes only' : undefined,
    live.trouble(),
    killed && `kill switch: ${killed}`,
  ]
  return trouble.filter((text) => text !== undefined)
}
