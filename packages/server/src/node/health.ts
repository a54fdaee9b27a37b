// How a node stands: what /readyz tells, and webhooks when it changes.

import type { Limiter } from 'sluice'
import type { OpenStore } from '../counters/open-store.ts'
import type { KillSwitch } from '../kill-switch/kill-switch.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { LiveRules } from '../rules/live-rules.ts'
import type { NodeWorkers } from '../workers/node-workers.ts'

/** Where the service stands in its life. */
export type Lifecycle = { draining: boolean }

export type HealthParts = {
  readonly limiter: Limiter
  readonly metrics: Metrics
  readonly store: OpenStore
  readonly live: LiveRules
  readonly lifecycle: Lifecycle
  readonly killSwitch: KillSwitch
  readonly workers: NodeWorkers
}

/** How one worker stands, or all of them. */
export type Health = { readonly rulesVersion: number; readonly trouble: readonly string[] }

const HEALTH_TOPIC = 'health'
/** Short, because load balancers give /readyz a second or so. */
const HEALTH_MS = 300

export function answerHealth(parts: HealthParts): void {
  parts.workers.answer(HEALTH_TOPIC, () => healthOf(parts))
}

/** The trouble of any worker is trouble of the node, and its rules are as old as those of the slowest worker. */
export async function nodeHealth(parts: HealthParts): Promise<Health> {
  const own = healthOf(parts)
  const gathered = await parts.workers.gather<Health>(HEALTH_TOPIC, undefined, HEALTH_MS).catch(() => undefined)
  if (gathered === undefined) return { ...own, trouble: [...own.trouble, 'workers: their supervisor does not answer'] }
  const all = [own, ...gathered.answers]
  // The same trouble may be some seconds older in another worker.
  const trouble = new Map(all.flatMap((one) => one.trouble).map((text) => [text.replace(/\d+/g, '0'), text]))
  if (gathered.silent > 0) trouble.set('workers', `workers: ${gathered.silent} not answering`)
  const rulesVersion = Math.min(...all.map((one) => one.rulesVersion))
  return { rulesVersion, trouble: [...trouble.values()] }
}

function healthOf(parts: HealthParts): Health {
  return { rulesVersion: parts.limiter.version, trouble: troubleOf(parts) }
}

/** Why this worker is degraded; empty when it is not. */
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
