// State of the fleet, live: nodes, alerts and figures of the last minutes. Types are those of GET /api/v1/fleet.

import { useState } from 'preact/hooks'
import { type StreamState, useStream } from './stream.ts'

export type NodeStatus = 'ready' | 'degraded' | 'draining' | 'silent'

export type FleetNode = {
  readonly node: string
  readonly address: string
  readonly region: string | null
  readonly version: string
  readonly started_at: string
  readonly status: NodeStatus
  readonly reported_ms_ago: number
  readonly reasons: readonly string[]
  readonly rules_version: number
  readonly rules: number
  readonly store: 'memory' | 'redis'
  readonly store_failure: string | null
  readonly database: 'postgres' | 'embedded' | null
  readonly region_isolated: boolean | null
  readonly sinks: readonly {
    readonly name: string
    readonly is_up: boolean
    readonly pending: number
    readonly dropped: number
  }[]
  readonly checks_per_second: number
  readonly refused_per_second: number
}

export type FleetAlert = {
  readonly node: string
  readonly address?: string
  readonly type: string
  readonly for_seconds: number
  readonly data: Readonly<Record<string, unknown>>
}

export type LiveFigures = {
  readonly step_seconds: number
  readonly from: string
  readonly allowed: readonly number[]
  readonly refused: readonly number[]
  readonly sources: Readonly<Record<'store' | 'lease' | 'local' | 'policy', readonly number[]>>
  readonly p50_us: readonly (number | null)[]
  readonly p99_us: readonly (number | null)[]
}

export type Fleet = {
  readonly at: string
  readonly nodes: readonly FleetNode[]
  readonly alerts: readonly FleetAlert[]
  /** One minute in steps of a second, five minutes in steps of five. */
  readonly figures: readonly LiveFigures[]
  readonly incomplete: string | null
}

/** The newest state, and whether the stream is open. */
export function useFleet(): readonly [Fleet | undefined, StreamState] {
  const [fleet, setFleet] = useState<Fleet>()
  const state = useStream('/fleet/stream', {}, { fleet: (data) => setFleet(data as Fleet) })
  return [fleet, state]
}

/** Name of a node; with its port, if several nodes have the name, as on one machine. */
export function nodeName({ nodes }: Fleet, { node, address }: { readonly node: string; readonly address?: string }) {
  const isUnique = nodes.filter((one) => one.node === node).length < 2
  return isUnique || address === undefined ? node : `${node}:${address.slice(address.lastIndexOf(':') + 1)}`
}
