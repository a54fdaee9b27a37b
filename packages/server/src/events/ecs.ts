// Formats events with the field names of the Elastic Common Schema (ECS). Fields without an ECS name are under
// `sluice`, by their own names. Absent values are left out.

import { isIP } from 'node:net'
import type { DecisionEvent } from './event.ts'

const ECS_VERSION = '8.17.0'
const NS_PER_US = 1000
/** Line breaks of Unicode that JSON does not escape: some readers split lines at them. */
const OTHER_LINE_BREAKS = /[\u0085\u2028\u2029]/g
const HASHED = 'hmac:'

export type Ecs = Readonly<Record<string, unknown>>

/** One JSON line, with its line break. Values cannot add lines or fields. */
export function ecsLine(event: DecisionEvent, host: string): string {
  const json = JSON.stringify(ecsDocument(event, host))
  return `${json.replace(OTHER_LINE_BREAKS, escaped)}\n`
}

export function ecsDocument(event: DecisionEvent, host: string): Ecs {
  const { event_id, timestamp, client_id, ip, endpoint, method, request_id, node, decision_us, ...rest } = event
  const isAddress = ip !== null && isIP(ip) !== 0 && !ip.includes('%')
  return {
    '@timestamp': new Date(timestamp).toISOString(),
    ecs: { version: ECS_VERSION },
    event: {
      id: event_id,
      kind: 'event',
      category: ['web'],
      type: [event.allowed ? 'allowed' : 'denied'],
      action: 'rate-limit',
      outcome: event.allowed ? 'success' : 'failure',
      duration: Math.round(decision_us * NS_PER_US),
    },
    ...(isAddress ? { source: { ip } } : {}),
    ...(client_id === null ? {} : { user: { id: client_id } }),
    ...(endpoint === null ? {} : { url: { path: endpoint } }),
    http: { request: present({ id: request_id, method }) },
    service: { name: 'sluice', node: { name: node } },
    host: { name: host },
    sluice: present({ ...rest, ...(isAddress || ip === null ? {} : otherAddress(ip)) }),
  }
}

/** A hashed address, or one that Elasticsearch does not accept as an address. */
function otherAddress(ip: string): Record<string, string> {
  return ip.startsWith(HASHED) ? { ip_hash: ip } : { ip }
}

function present(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined))
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
}
