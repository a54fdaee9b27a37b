// Prometheus metrics that only the gateway has.

import type { Registry } from 'prom-client'
import {
  type CounterDefinition,
  type GaugeDefinition,
  registerCounters,
  registerGauges,
} from '../metrics/registration.ts'

export const OUTCOMES = [
  'passed',
  'refused',
  'aborted',
  'invalid',
  'no_route',
  'unreachable',
  'slow',
  'busy',
  'failed',
] as const
export type GatewayOutcome = (typeof OUTCOMES)[number]

export class GatewayMetrics {
  inFlight = 0
  readonly ended: Record<GatewayOutcome, number>

  constructor(registry: Registry) {
    this.ended = Object.fromEntries(OUTCOMES.map((outcome) => [outcome, 0])) as Record<GatewayOutcome, number>
    registerCounters(registry, () => this, COUNTERS)
    registerGauges(registry, () => this, GAUGES)
  }
}

const COUNTERS: readonly CounterDefinition<GatewayMetrics>[] = [
  {
    name: 'sluice_gateway_requests_total',
    help: 'Requests that the gateway has finished, by outcome.',
    labels: ['outcome'],
    read: ({ ended }) => Object.entries(ended).map(([outcome, count]) => [{ outcome }, count] as const),
  },
]

const GAUGES: readonly GaugeDefinition<GatewayMetrics>[] = [
  {
    name: 'sluice_gateway_in_flight_requests',
    help: 'Requests and WebSockets in the gateway.',
    aggregator: 'sum',
    read: ({ inFlight }) => inFlight,
  },
]
