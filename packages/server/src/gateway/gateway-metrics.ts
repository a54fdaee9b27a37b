// What the gateway tells Prometheus beside what every node tells.

import { Counter, Gauge, type Registry } from 'prom-client'

export const OUTCOMES = [
  'passed',
  'refused',
  'left',
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
  /** Connections that were closed as they came: there were too many. */
  dropped = 0
  readonly #counts: Record<GatewayOutcome, number>

  constructor(registry: Registry) {
    const counts = Object.fromEntries(OUTCOMES.map((outcome) => [outcome, 0])) as Record<GatewayOutcome, number>
    this.#counts = counts
    const requests = new Counter({
      name: 'sluice_gateway_requests_total',
      help: 'Requests to the gateway that are over, by how they ended.',
      labelNames: ['outcome'],
      registers: [],
      collect() {
        this.reset()
        for (const [outcome, count] of Object.entries(counts)) this.inc({ outcome }, count)
      },
    })
    const inFlight = () => this.inFlight
    const gauge = new Gauge({
      name: 'sluice_gateway_in_flight',
      aggregator: 'sum',
      help: 'Requests and WebSockets in the gateway at present.',
      registers: [],
      collect() {
        this.set(inFlight())
      },
    })
    const dropped = () => this.dropped
    const drops = new Counter({
      name: 'sluice_gateway_connections_dropped_total',
      help: 'Connections that the gateway closed as they came, because there were too many.',
      registers: [],
      collect() {
        this.reset()
        this.inc(dropped())
      },
    })
    registry.registerMetric(requests)
    registry.registerMetric(drops)
    registry.registerMetric(gauge)
  }

  ended(outcome: GatewayOutcome): void {
    this.#counts[outcome] += 1
  }
}
