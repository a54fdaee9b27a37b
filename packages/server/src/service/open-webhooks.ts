// Sends webhooks for a node. Only the lead worker sends, for all workers; the others watch the same figures, so that
// one of them can take over with a full history.

import { randomUUID } from 'node:crypto'
import { type Clock, systemClock } from 'sluice'
import { degradedReasons, type HealthDeps, nodeHealth } from '../http/node-health.ts'
import { plainKey } from '../http/routes/hot-keys.ts'
import type { Log } from '../log.ts'
import type { Settings } from '../settings/settings.ts'
import { NodeAlerts, type ProcessFigures, SAMPLE_MS } from '../webhooks/node-alerts.ts'
import { type NodeState, watchNode } from '../webhooks/node-watch.ts'
import { type Poll, poll } from '../webhooks/poll.ts'
import { RecentRefusals } from '../webhooks/recent-refusals.ts'
import { SPIKE } from '../webhooks/refusal-spike.ts'
import { Webhooks } from '../webhooks/webhooks.ts'
import type { OpenEvents } from './open-events.ts'

export type WebhooksDeps = HealthDeps & { readonly events: Pick<OpenEvents, 'pipeline' | 'keyHash'> }

/** Timing of the samples, for tests. */
export type WatchTiming = { readonly sampleMs?: number; readonly clock?: Clock }

const FIGURES_TOPIC = 'figures'

/** Returns a function that stops the webhooks. */
export function openWebhooks(
  settings: Settings,
  deps: WebhooksDeps,
  log: Log,
  timing: WatchTiming,
): () => Promise<void> {
  const { webhooks: urls, webhookSecret: secret } = settings
  if (urls === undefined || secret === undefined) return async () => {}
  const webhooks = new Webhooks({ urls, secret, log })
  deps.metrics.watchWebhooks(webhooks)
  const send: Webhooks['send'] = (type, data) => deps.workers.isLead() && webhooks.send(type, data)
  const state = watchNode(() => stateOf(deps), send)
  const figures = watchFigures(deps, send, timing)
  return async () => {
    state.stop()
    figures.stop()
    await webhooks.close()
  }
}

async function stateOf(deps: WebhooksDeps): Promise<NodeState> {
  const { limiter, killSwitch, workers } = deps
  const [rulesVersion, rules] = [limiter.version, limiter.rules.length]
  const { reasons } = workers.isLead() ? await nodeHealth(deps) : { reasons: degradedReasons(deps) }
  return { rulesVersion, rules, reasons, killed: killSwitch.describe() }
}

function watchFigures(deps: WebhooksDeps, send: Webhooks['send'], timing: WatchTiming): Poll {
  const { clock = systemClock, sampleMs = SAMPLE_MS } = timing
  const { workers, metrics } = deps
  const process = randomUUID()
  const refusals = new RecentRefusals(SPIKE.windowMs / SAMPLE_MS)
  workers.answer(FIGURES_TOPIC, () => figuresOf(deps, process, refusals))
  const alerts = new NodeAlerts()
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
  // A global bucket gets all checks of its rule; it is no news that it is hot.
  const hotKeys = limiter.hotKeys().filter(({ fact }) => fact !== '')
  return {
    process,
    totals: metrics.checkTotals(),
    topRules: refusals.top(metrics.refusedByRule()),
    hotKeys: hotKeys.map((key) => plainKey(key, events.keyHash)),
    sinks: sinks.map(({ name, isUp, pending, dropped }) => ({ name, isUp, pending, dropped })),
  }
}
