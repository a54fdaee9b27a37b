// Watches a node for alerts, and sends webhooks. Only the leader sends, for all workers; the others watch the same
// figures, so that one of them can take over with a full history.

import { randomUUID } from 'node:crypto'
import { type Clock, systemClock } from 'sluice'
import type { Database } from '../db/database.ts'
import { apiHotKey } from '../fleet/api-hot-key.ts'
import { WEBHOOKS_TOPIC } from '../fleet/webhook-state.ts'
import { degradedReasons, type HealthDeps, nodeHealth } from '../http/node-health.ts'
import type { Log } from '../log.ts'
import { takeEvents } from '../rollouts/rollout-events.ts'
import type { Settings } from '../settings/settings.ts'
import { NodeAlerts, type OpenNodeAlert, type ProcessFigures, SAMPLE_MS } from '../webhooks/node-alerts.ts'
import { type NodeState, watchNode } from '../webhooks/node-watch.ts'
import { type Poll, poll } from '../webhooks/poll.ts'
import { RecentRefusals, withoutDemo } from '../webhooks/recent-refusals.ts'
import { SPIKE } from '../webhooks/refusal-spike.ts'
import { type EventType, Webhooks } from '../webhooks/webhooks.ts'
import type { NodeWorkers } from '../workers/node-workers.ts'
import type { OpenEvents } from './open-events.ts'

export type WebhooksDeps = HealthDeps & {
  readonly events: Pick<OpenEvents, 'pipeline' | 'keyHash'>
  readonly database: Database | undefined
  /** Summary of freeze and global factor; undefined if there is neither. */
  readonly describeIncident: () => string | undefined
}

/** Sends an event of this process to the webhooks of its node, if it has any. Never waits or throws. */
export type Announce = (type: EventType, data: Readonly<Record<string, unknown>>) => void

/** Timing of the samples, for tests. */
export type WatchTiming = { readonly sampleMs?: number; readonly clock?: Clock }

const FIGURES_TOPIC = 'figures'
const EVENTS_MS = 1000
const EVENT_TOPIC = 'webhook'

type Announced = { readonly type: EventType; readonly data: Readonly<Record<string, unknown>> }

/** Events go to all workers: the leader sends them. */
export function announceTo(workers: NodeWorkers): Announce {
  return (type, data) => void workers.gather(EVENT_TOPIC, { type, data }).catch(() => {})
}

export type OpenAlerts = {
  /** Begins to watch. Call it when the routes exist: they answer for the other workers. */
  start(): void
  /** Alerts of this node that are open; empty on all workers but one. */
  open(): readonly OpenNodeAlert[]
  close(): Promise<void>
}

/** Watches the figures of the node for alerts, which are also sent to webhooks if there are any. */
export function openAlerts(settings: Settings, deps: WebhooksDeps, log: Log, timing: WatchTiming): OpenAlerts {
  const webhooks = openWebhooks(settings, deps, log)
  const send: Webhooks['send'] = (type, data) => deps.workers.isLeader() && webhooks?.send(type, data)
  const alerts = new NodeAlerts()
  const { clock = systemClock } = timing
  const polls: Poll[] = []
  return {
    start: () => {
      deps.workers.answer(WEBHOOKS_TOPIC, () => webhooks?.states() ?? [])
      if (webhooks !== undefined) {
        deps.workers.answer(EVENT_TOPIC, ({ type, data }: Announced) => send(type, data))
        polls.push(watchNode(() => stateOf(deps), send))
        const rollouts = watchRollouts(deps, send, timing)
        if (rollouts !== undefined) polls.push(rollouts)
      }
      polls.push(watchFigures(deps, alerts, send, timing))
    },
    open: () => (deps.workers.isLeader() ? alerts.open(clock.nowUs() / 1000) : []),
    close: async () => {
      for (const poll of polls) poll.stop()
      await webhooks?.close()
    },
  }
}

function openWebhooks({ webhooks: urls, webhookSecret: secret }: Settings, deps: WebhooksDeps, log: Log) {
  if (urls === undefined || secret === undefined) return undefined
  const webhooks = new Webhooks({ urls, secret, log })
  deps.metrics.watchWebhooks(webhooks)
  return webhooks
}

async function stateOf(deps: WebhooksDeps): Promise<NodeState> {
  const { limiter, killSwitch, workers, describeIncident } = deps
  const [rulesVersion, rules] = [limiter.version, limiter.rules.length]
  const { reasons } = workers.isLeader() ? await nodeHealth(deps) : { reasons: degradedReasons(deps) }
  return { rulesVersion, rules, reasons, killed: killSwitch.describe(), incident: describeIncident() }
}

/** Events of rollouts are rows of the database. One node takes each; a node without webhooks takes none. */
function watchRollouts(
  { database, workers }: WebhooksDeps,
  send: Webhooks['send'],
  { sampleMs = EVENTS_MS }: WatchTiming,
): Poll | undefined {
  if (database === undefined) return undefined
  const read = async () => (workers.isLeader() ? takeEvents(database).catch(() => []) : [])
  return poll(read, Math.min(sampleMs, EVENTS_MS), (events) => {
    for (const { type, data } of events) send(type, data)
  })
}

function watchFigures(deps: WebhooksDeps, alerts: NodeAlerts, send: Webhooks['send'], timing: WatchTiming): Poll {
  const { clock = systemClock, sampleMs = SAMPLE_MS } = timing
  const { workers, metrics } = deps
  const process = randomUUID()
  const refusals = new RecentRefusals(SPIKE.windowMs / SAMPLE_MS)
  workers.answer(FIGURES_TOPIC, () => figuresOf(deps, process, refusals))
  const read = async () => {
    refusals.add(metrics.refusedByRule())
    return workers.gather<ProcessFigures>(FIGURES_TOPIC).catch(() => undefined)
  }
  return poll(read, sampleMs, (gathered) => {
    if (gathered === undefined) return // the supervisor does not answer; node.degraded reports it
    for (const { type, data } of alerts.next(gathered.answers, clock.nowUs() / 1000)) send(type, data)
  })
}

function figuresOf(deps: WebhooksDeps, process: string, refusals: RecentRefusals): ProcessFigures {
  const { limiter, metrics, events } = deps
  const sinks = events.pipeline?.totals().sinks ?? []
  // A global bucket gets all checks of its rule, so it is always hot and never worth an alert.
  const hotKeys = limiter.hotKeys().filter(({ fact }) => fact !== '')
  const { totals, refusedByRule } = withoutDemo(metrics.checkTotals(), metrics.refusedByRule())
  return {
    process,
    totals: { ...totals, ...metrics.unitTotals() },
    rulesAgeSeconds: metrics.rulesAgeSeconds(),
    topRules: refusals.top(refusedByRule),
    hotKeys: hotKeys.map((key) => apiHotKey(key, events.keyHash)),
    sinks: sinks.map(({ name, isUp, pending, dropped }) => ({ name, isUp, pending, dropped })),
  }
}
