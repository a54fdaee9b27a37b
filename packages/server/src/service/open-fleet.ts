// Connects a node to its fleet: builds its report, and opens the store that holds the reports of all nodes.

import { wallClock } from 'sluice'
import type { Database } from '../db/database.ts'
import { apiHotKey } from '../fleet/api-hot-key.ts'
import { Fleet } from '../fleet/fleet.ts'
import type { NodeReport } from '../fleet/node-report.ts'
import { openReportStore } from '../fleet/report-store.ts'
import { degradedReasons, type HealthDeps } from '../http/node-health.ts'
import type { Log } from '../log.ts'
import { VERSION } from '../package-facts.ts'
import type { Settings } from '../settings/settings.ts'
import { nodeName } from '../worker-number.ts'
import type { OpenAlerts } from './open-alerts.ts'
import type { OpenEvents } from './open-events.ts'

/** Cap on the size of a report. */
const HOT_KEYS_MAX = 20

export type FleetSources = HealthDeps & {
  readonly events: Pick<OpenEvents, 'pipeline' | 'keyHash'>
  readonly database: Database | undefined
  readonly alerts: Pick<OpenAlerts, 'open'>
}

export function openFleet({ region }: Pick<Settings, 'region'>, sources: FleetSources, log: Log): Fleet {
  const { database, store, metrics } = sources
  const nowMs = () => wallClock.nowUs() / 1000
  const facts = {
    node: nodeName(),
    region: region ?? null,
    version: VERSION,
    started_at: new Date(nowMs()).toISOString(),
    store: store.kind,
    database: database?.kind ?? null,
  }
  return new Fleet({
    reports: openReportStore(database, store.sharedValues, nowMs),
    counts: () => metrics.decisionCounts(),
    report: () => ({ ...facts, ...stateOf(sources) }),
    log,
  })
}

type State = Pick<
  NodeReport,
  | 'status'
  | 'reasons'
  | 'rules_version'
  | 'rules'
  | 'store_failure'
  | 'region_isolated'
  | 'sinks'
  | 'alerts'
  | 'hot_keys'
>

function stateOf(sources: FleetSources): State {
  const { limiter, store, lifecycle, events, alerts } = sources
  const reasons = degradedReasons(sources)
  const sinks = events.pipeline?.totals().sinks ?? []
  return {
    status: lifecycle.draining ? 'draining' : reasons.length > 0 ? 'degraded' : 'ready',
    reasons,
    rules_version: limiter.version,
    rules: limiter.rules.length,
    store_failure: store.failure() ?? null,
    region_isolated: store.region?.isIsolated ?? null,
    sinks: sinks.map(({ name, isUp, pending, dropped }) => ({ name, is_up: isUp, pending, dropped })),
    alerts: alerts.open(),
    hot_keys: limiter
      .hotKeys()
      .slice(0, HOT_KEYS_MAX)
      .map((key) => apiHotKey(key, events.keyHash)),
  }
}
