// State of one process of the fleet, as it reports it to all nodes every few seconds.

import type { ApiHotKey } from './api-hot-key.ts'
import type { Figures } from './figures.ts'

export type SinkReport = {
  readonly name: string
  readonly is_up: boolean
  readonly pending: number
  readonly dropped: number
}

/** An open alert. `for_seconds`: its age. */
export type OpenAlert = {
  readonly type: string
  readonly for_seconds: number
  readonly data: Readonly<Record<string, unknown>>
}

export type NodeReport = {
  /** Host name and number of the worker. */
  readonly node: string
  readonly address: string
  readonly region: string | null
  readonly version: string
  readonly started_at: string
  readonly status: 'ready' | 'degraded' | 'draining'
  /** Reasons that the node is degraded. */
  readonly reasons: readonly string[]
  readonly rules_version: number
  readonly rules: number
  readonly store: 'memory' | 'redis'
  /** Error code while the store does not answer. */
  readonly store_failure: string | null
  readonly database: 'postgres' | 'embedded' | null
  readonly region_isolated: boolean | null
  readonly sinks: readonly SinkReport[]
  readonly alerts: readonly OpenAlert[]
  readonly figures: readonly Figures[]
  /** Names of what the node understands. Undefined: an earlier version does not report them. */
  readonly understands?: readonly string[]
  /** The busiest keys. Undefined: an earlier version does not report them. */
  readonly hot_keys?: readonly ApiHotKey[]
}
