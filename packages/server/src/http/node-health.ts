// Health of a node, for /readyz and webhooks.

import type { Limiter } from 'sluice'
import type { UnknownContent } from '../compatibility/unknown-content.ts'
import type { KillSwitch } from '../kill-switch/kill-switch.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { LiveRules } from '../rules/live-rules.ts'
import type { OpenStore } from '../store/open-store.ts'
import type { NodeWorkers } from '../workers/node-workers.ts'

/** Lifecycle state of the service. */
export type Lifecycle = { draining: boolean }

export type HealthDeps = {
  readonly limiter: Limiter
  readonly metrics: Metrics
  readonly store: OpenStore
  readonly live: LiveRules
  readonly lifecycle: Lifecycle
  readonly killSwitch: KillSwitch
  readonly workers: NodeWorkers
  /** Undefined: this node reads nothing that other nodes write. */
  readonly unknown?: UnknownContent | undefined
  readonly events: { degradedReason(): string | undefined }
  /** Undefined: no rule can roll out. */
  readonly rollouts?: { degradedReason(): string | undefined } | undefined
}

/** Health of one worker, or of the node. `reasons`: why it is degraded. */
export type NodeHealth = { readonly rulesVersion: number; readonly reasons: readonly string[] }

const HEALTH_TOPIC = 'health'
/** Short, because load balancers give /readyz about a second. */
const HEALTH_MS = 300

export function answerHealth(deps: HealthDeps): void {
  deps.workers.answer(HEALTH_TOPIC, () => healthOf(deps))
}

/** A node is degraded if any worker is, and its rules are as old as those of its slowest worker. */
export async function nodeHealth(deps: HealthDeps): Promise<NodeHealth> {
  const own = healthOf(deps)
  const gathered = await deps.workers.gather<NodeHealth>(HEALTH_TOPIC, undefined, HEALTH_MS).catch(() => undefined)
  if (gathered === undefined) return { ...own, reasons: [...own.reasons, 'workers: the supervisor does not answer'] }
  const all = [own, ...gathered.answers]
  // Workers may report the same reason with different ages.
  const reasons = new Map(all.flatMap((one) => one.reasons).map((text) => [text.replace(/\d+/g, '0'), text]))
  if (gathered.silent > 0) reasons.set('workers', `workers: ${gathered.silent} not answering`)
  const rulesVersion = Math.min(...all.map((one) => one.rulesVersion))
  return { rulesVersion, reasons: [...reasons.values()] }
}

function healthOf(deps: HealthDeps): NodeHealth {
  return { rulesVersion: deps.limiter.version, reasons: degradedReasons(deps) }
}

/** Reasons why this worker is degraded; empty when it is not. */
export function degradedReasons({ live, store, killSwitch, events, rollouts, unknown }: HealthDeps): readonly string[] {
  const [failure, pressure, killed] = [store.failure(), store.pressure.degradedReason(), killSwitch.describe()]
  const reasons = [
    failure && `store: ${failure}`,
    pressure && `store: ${pressure}`,
    store.region?.isIsolated ? 'region: the global Redis does not answer, homes only' : undefined,
    live.degradedReason(),
    killed && `kill switch: ${killed}`,
    events.degradedReason(),
    rollouts?.degradedReason(),
    unknown?.degradedReason(),
  ]
  return reasons.filter((text) => text !== undefined)
}
