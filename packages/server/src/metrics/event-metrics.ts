// Metrics of the event pipeline, per sink: decided + operations = sampled out + stored + dropped + lost + pending.

import { Registry } from 'prom-client'
import { type CounterDefinition, type GaugeDefinition, registerCounters, registerGauges } from './registration.ts'
import { totalsOf } from './reports.ts'

export type SinkCounts = {
  readonly name: string
  readonly stored: number
  readonly dropped: number
  /** Died with a worker. Absent: none. */
  readonly lost?: number
  readonly pending: number
  readonly uncounted: number
  readonly lagSeconds: number
  readonly isUp: boolean
}

export type EventCounts = {
  readonly decided: number
  readonly operations: number
  readonly sampledOut: number
  readonly sinks: readonly SinkCounts[]
}

export const NO_EVENTS: EventCounts = { decided: 0, operations: 0, sampledOut: 0, sinks: [] }

export function registerEvents(registry: Registry, counts: () => EventCounts): void {
  registerCounters(registry, counts, COUNTERS)
  registerGauges(registry, counts, GAUGES)
}

/** Returns the counters of these counts in the form of a report. */
export function eventTotals(counts: EventCounts): Promise<string> {
  const registry = new Registry()
  registerCounters(registry, () => counts, COUNTERS)
  return totalsOf(registry)
}

const COUNTERS: readonly CounterDefinition<EventCounts>[] = [
  {
    name: 'sluice_events_decided_total',
    help: 'Decisions that the event pipeline recorded.',
    read: ({ decided }) => decided,
  },
  {
    name: 'sluice_events_operations_total',
    help: 'Refunds and resets that the event pipeline recorded. They count in no total of decisions.',
    read: ({ operations }) => operations,
  },
  {
    name: 'sluice_events_sampled_out_total',
    help: 'Admissions that sampling left out: totals count them, but no event is stored.',
    labels: ['sink'],
    read: ({ sinks, sampledOut }) => sinks.map(({ name }) => [{ sink: name }, sampledOut] as const),
  },
  {
    name: 'sluice_events_stored_total',
    help: 'Events that a sink stored.',
    labels: ['sink'],
    read: ({ sinks }) => sinks.map(({ name, stored }) => [{ sink: name }, stored] as const),
  },
  {
    name: 'sluice_events_dropped_total',
    help: 'Events that a sink did not store: its queue was full, it rejected them, or it has a rate cap.',
    labels: ['sink'],
    read: ({ sinks }) => sinks.map(({ name, dropped }) => [{ sink: name }, dropped] as const),
  },
  {
    name: 'sluice_events_lost_total',
    help: 'Events that died with a killed worker before the sink stored them, at most.',
    labels: ['sink'],
    read: ({ sinks }) => sinks.map(({ name, lost = 0 }) => [{ sink: name }, lost] as const),
  },
  {
    name: 'sluice_events_uncounted_total',
    help: 'Decisions missing from the totals of a sink after an outage of many hours, or a killed worker.',
    labels: ['sink'],
    read: ({ sinks }) => sinks.map(({ name, uncounted }) => [{ sink: name }, uncounted] as const),
  },
]

const GAUGES: readonly GaugeDefinition<EventCounts>[] = [
  {
    name: 'sluice_events_pending',
    help: 'Events that wait to be stored.',
    labels: ['sink'],
    aggregator: 'sum',
    read: ({ sinks }) => sinks.map(({ name, pending }) => [{ sink: name }, pending] as const),
  },
  {
    name: 'sluice_events_sink_lag_seconds',
    help: 'Age of the oldest batch that the sink has not stored.',
    labels: ['sink'],
    aggregator: 'max',
    read: ({ sinks }) => sinks.map(({ name, lagSeconds }) => [{ sink: name }, lagSeconds] as const),
  },
  {
    name: 'sluice_events_sink_up',
    help: '0 while the sink fails to store events.',
    labels: ['sink'],
    aggregator: 'min',
    read: ({ sinks }) => sinks.map(({ name, isUp }) => [{ sink: name }, isUp ? 1 : 0] as const),
  },
]
