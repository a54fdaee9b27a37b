// Settings of the dashboard and of its sessions.

import { readInteger, type Setting } from './setting.ts'

export type DashboardSettings = {
  readonly dashboard: 'on' | 'off'
  /** Host names, in lower case, without ports. */
  readonly dashboardHosts: readonly string[] | undefined
  readonly sessionHours: number
}

const HOST = /^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$/
const HOSTS_MAX = 50
const HOURS_MAX = 720

export const DASHBOARD_SETTINGS: { readonly [K in keyof DashboardSettings]: Setting<DashboardSettings[K]> } = {
  dashboard: {
    flag: 'dashboard',
    env: 'SLUICE_DASHBOARD',
    value: 'on|off',
    help: 'Whether this node serves the dashboard at / and accepts its sessions.',
    fallback: () => 'on',
    shownFallback: 'on',
    read: (text) => (text === 'on' || text === 'off' ? text : undefined),
    fix: 'use on or off',
  },
  dashboardHosts: {
    flag: 'dashboard-hosts',
    env: 'SLUICE_DASHBOARD_HOSTS',
    value: '<name,…>',
    help:
      'Host names under which browsers reach the dashboard. Addresses, localhost and a name in --host are always ' +
      'allowed.',
    fallback: () => undefined,
    shownFallback: '',
    read: readHosts,
    fix: `give up to ${HOSTS_MAX} comma-separated host names without ports, such as sluice.example.com`,
    conflict: ({ dashboard }) => (dashboard === 'off' ? 'remove it, or --dashboard off' : undefined),
  },
  sessionHours: {
    flag: 'session-hours',
    env: 'SLUICE_SESSION_HOURS',
    value: '<hours>',
    help: 'How long a session of the dashboard lasts; at most as long as its token.',
    fallback: () => 12,
    shownFallback: '12',
    read: (text) => readInteger(text, 1, HOURS_MAX),
    fix: `give hours from 1 to ${HOURS_MAX}`,
  },
}

function readHosts(text: string): readonly string[] | undefined {
  const hosts = text.split(',').map((host) => host.trim().toLowerCase())
  return hosts.every((host) => HOST.test(host)) && hosts.length <= HOSTS_MAX ? hosts : undefined
}
