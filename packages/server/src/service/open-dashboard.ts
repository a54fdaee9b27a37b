// Opens the dashboard of a node from its settings.

import { AllowedHosts } from '../access/allowed-hosts.ts'
import { readDashboardFiles } from '../dashboard/dashboard-files.ts'
import type { DashboardOptions } from '../http/app.ts'
import type { Settings } from '../settings/settings.ts'
import { nodeName } from '../worker-number.ts'

const HOUR_MS = 3_600_000

/** Undefined with --dashboard off. */
export function openDashboard({
  dashboard,
  dashboardHosts = [],
  host,
  sessionHours,
  trustedProxies,
}: Settings): DashboardOptions | undefined {
  if (dashboard === 'off') return undefined
  const hosts = new AllowedHosts(dashboardHosts, [host], trustedProxies)
  return { files: readDashboardFiles(), hosts, sessionMs: sessionHours * HOUR_MS, node: nodeName() }
}
