// Metrics of the gRPC listener. Labels are the methods that this node serves and the status codes of gRPC.

import type { Registry } from 'prom-client'
import { type CounterDefinition, type GaugeDefinition, registerCounters, registerGauges } from './registration.ts'

export type GrpcFacts = {
  readonly connections: number
  readonly calls: number
  readonly protocolErrors: number
  /** Ended calls by method and status. */
  readonly ended: readonly (readonly [method: string, status: string, count: number])[]
  /** Messages of streams, by direction. */
  readonly messages: { readonly received: number; readonly sent: number }
}

export const NO_GRPC: GrpcFacts = {
  connections: 0,
  calls: 0,
  protocolErrors: 0,
  ended: [],
  messages: { received: 0, sent: 0 },
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
]
