// Metrics of the gRPC listener. Labels are the methods that this node serves and the status codes of gRPC.

import type { Registry } from 'prom-client'
import { type CounterDefinition, type GaugeDefinition, registerCounters, registerGauges } from './registration.ts'

export type GrpcFacts = {
  readonly connections: number
  readonly calls: number
  readonly protocolErrors: number
  /** Connections closed at a time limit, by limit. */
  readonly timedOut: Readonly<Record<string, number>>
  /** Calls refused with REFUSED_STREAM, by cap. */
  readonly refusedCalls: Readonly<Record<string, number>>
  /** Ended calls by method and status. */
  readonly ended: readonly (readonly [method: string, status: string, count: number])[]
  /** Messages of streams, by direction. */
  readonly messages: { readonly received: number; readonly sent: number }
  readonly remote: RemoteFacts
}

/** Leases of remote nodes, and quotas of Envoys. */
export type RemoteFacts = {
  readonly nodes: number
  readonly degradedNodes: number
  readonly leases: number
  readonly units: { readonly leased: number; readonly returned: number }
  readonly quotaStreams: number
  readonly quotaBuckets: number
  /** As Envoys reported them. */
  readonly quotaRequests: { readonly allowed: number; readonly denied: number }
  readonly quotaAssignments: { readonly share: number; readonly allow: number; readonly deny: number }
}

const NO_REMOTE: RemoteFacts = {
  ...{ nodes: 0, degradedNodes: 0, leases: 0, units: { leased: 0, returned: 0 } },
  ...{ quotaStreams: 0, quotaBuckets: 0, quotaRequests: { allowed: 0, denied: 0 } },
  quotaAssignments: { share: 0, allow: 0, deny: 0 },
}

export const NO_GRPC: GrpcFacts = {
  connections: 0,
  calls: 0,
  protocolErrors: 0,
  timedOut: {},
  refusedCalls: {},
  ended: [],
  messages: { received: 0, sent: 0 },
  remote: NO_REMOTE,
}

export function registerGrpc(registry: Registry, facts: () => GrpcFacts): void {
  registerCounters(registry, facts, COUNTERS)
  registerGauges(registry, facts, GAUGES)
}

const COUNTERS: readonly CounterDefinition<GrpcFacts>[] = [
  {
    name: 'sluice_grpc_calls_total',
    help: 'gRPC calls that have ended, by method and status.',
    labels: ['method', 'status'],
    read: ({ ended }) => ended.map(([method, status, count]) => [{ method, status }, count] as const),
  },
  {
    name: 'sluice_grpc_stream_messages_total',
    help: 'Messages of gRPC streams, by direction.',
    labels: ['direction'],
    read: ({ messages }) => Object.entries(messages).map(([direction, count]) => [{ direction }, count] as const),
  },
  {
    name: 'sluice_grpc_protocol_errors_total',
    help: 'gRPC connections that were closed because of protocol errors or floods.',
    read: ({ protocolErrors }) => protocolErrors,
  },
  {
    name: 'sluice_grpc_timed_out_connections_total',
    help: 'gRPC connections that were closed at a time limit, by limit.',
    labels: ['limit'],
    read: ({ timedOut }) => Object.entries(timedOut).map(([limit, count]) => [{ limit }, count] as const),
  },
  {
    name: 'sluice_grpc_refused_calls_total',
    help: 'gRPC calls refused with REFUSED_STREAM, by the cap that was reached: connection or process.',
    labels: ['cap'],
    read: ({ refusedCalls }) => Object.entries(refusedCalls).map(([cap, count]) => [{ cap }, count] as const),
  },
  {
    name: 'sluice_remote_leases_total',
    help: 'Leases issued to remote nodes.',
    read: ({ remote }) => remote.leases,
  },
  {
    name: 'sluice_remote_units_total',
    help: 'Units that remote nodes leased, and units that they returned.',
    labels: ['direction'],
    read: ({ remote }) => Object.entries(remote.units).map(([direction, units]) => [{ direction }, units] as const),
  },
  {
    name: 'sluice_quota_requests_total',
    help: 'Requests that Envoys with quotas reported, by result.',
    labels: ['result'],
    read: ({ remote }) => Object.entries(remote.quotaRequests).map(([result, count]) => [{ result }, count] as const),
  },
  {
    name: 'sluice_quota_assignments_total',
    help: 'Assignments sent to Envoys with quotas: a share of the units, allow (no limit applies) or deny.',
    labels: ['strategy'],
    read: ({ remote }) =>
      Object.entries(remote.quotaAssignments).map(([strategy, count]) => [{ strategy }, count] as const),
  },
]

const GAUGES: readonly GaugeDefinition<GrpcFacts>[] = [
  {
    name: 'sluice_grpc_connections',
    help: 'Open gRPC connections.',
    aggregator: 'sum',
    read: ({ connections }) => connections,
  },
  {
    name: 'sluice_grpc_in_flight_calls',
    help: 'gRPC calls in progress, streams included.',
    aggregator: 'sum',
    read: ({ calls }) => calls,
  },
  {
    name: 'sluice_remote_nodes',
    help: 'Remote nodes that follow the rules of this node.',
    aggregator: 'sum',
    read: ({ remote }) => remote.nodes,
  },
  {
    name: 'sluice_remote_nodes_degraded',
    help: 'Remote nodes that report to be degraded: they cannot use the newest rules of this node.',
    aggregator: 'sum',
    read: ({ remote }) => remote.degradedNodes,
  },
  {
    name: 'sluice_quota_streams',
    help: 'Envoys that get quotas from this node.',
    aggregator: 'sum',
    read: ({ remote }) => remote.quotaStreams,
  },
  {
    name: 'sluice_quota_buckets',
    help: 'Buckets of Envoys that get quotas from this node.',
    aggregator: 'sum',
    read: ({ remote }) => remote.quotaBuckets,
  },
]
