// State of the fleet, live: nodes, alerts and figures of the last minutes. Types are those of GET /api/v1/fleet.

import { useEffect, useState } from 'preact/hooks'
import { nowMs } from './clock.ts'
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

/** The service sends its state every two seconds. */
const STALE_MS = 5000
const TICK_MS = 1000

/** Milliseconds without news if they are so many that the last state may no longer be true; else undefined. */
export function staleMs(receivedMs: number | undefined, now: number): number | undefined {
  return receivedMs !== undefined && now - receivedMs > STALE_MS ? now - receivedMs : undefined
}

export type KnownFleet = {
  /** The newest state. */
  readonly fleet: Fleet | undefined
  readonly stream: StreamState
  /** Time without news, if it is long: what `fleet` says may no longer be true. */
  readonly silentMs: number | undefined
}

export function useFleet(): KnownFleet {
  const [known, setKnown] = useState<{ readonly fleet: Fleet; readonly receivedMs: number }>()
  const [now, setNow] = useState(nowMs())
  const onFleet = (data: unknown) => {
    setKnown({ fleet: data as Fleet, receivedMs: nowMs() })
    setNow(nowMs())
  }
  const stream = useStream('/fleet/stream', {}, { fleet: onFleet })
  useEffect(() => {
    const timer = setTimeout(() => setNow(nowMs()), TICK_MS)
    return () => clearTimeout(timer)
  }, [now])
  return { fleet: known?.fleet, stream, silentMs: staleMs(known?.receivedMs, now) }
}

/** Name of a node; with its port, if several nodes have the name, as on one machine. */
export function nodeName({ nodes }: Fleet, { node, address }: { readonly node: string; readonly address?: string }) {
  const isUnique = nodes.filter((one) => one.node === node).length < 2
  return isUnique || address === undefined ? node : `${node}:${address.slice(address.lastIndexOf(':') + 1)}`
}
