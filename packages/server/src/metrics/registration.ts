// Registers metrics from tables of definitions. Values are read at scrape time, so the hot path pays only for
// incrementing its own counters.

import { type Aggregator, Counter, Gauge, type Histogram, type Registry } from 'prom-client'
import type { FastHistogram } from './fast-histogram.ts'

/** One value, or one per combination of labels. */
export type Values = number | readonly (readonly [labels: Readonly<Record<string, string>>, value: number])[]

export type CounterDefinition<S> = {
  readonly name: string
  readonly help: string
  readonly labels?: readonly string[]
  readonly read: (source: S) => Values
}

/** `aggregator` merges the values of several workers into the value of their node. */
export type GaugeDefinition<S> = CounterDefinition<S> & { readonly aggregator: Aggregator }

export function registerCounters<S>(
  registry: Registry,
  source: () => S,
  definitions: readonly CounterDefinition<S>[],
): void {
  for (const { name, help, labels: labelNames = [], read } of definitions) {
    new Counter({
      name,
      help,
      labelNames,
      registers: [registry],
      collect() {
        this.reset()
        for (const [labels, value] of labelled(read(source()))) this.inc(labels, value)
      },
    })
  }
}

export function registerGauges<S>(
  registry: Registry,
  source: () => S,
  definitions: readonly GaugeDefinition<S>[],
): void {
  for (const { name, help, labels: labelNames = [], aggregator, read } of definitions) {
    new Gauge({
      name,
      help,
      labelNames,
      aggregator,
      registers: [registry],
      collect() {
        this.reset()
        for (const [labels, value] of labelled(read(source()))) this.set(labels, value)
      },
    })
  }
}

export function registerHistogram(registry: Registry, name: string, help: string, histogram: FastHistogram): void {
  registerHistograms(registry, name, help, () => [[{}, histogram]])
}

/**
 * Registers one histogram per combination of labels. prom-client calls only `get` on a registered metric, so the object
 * needs no other method.
 */
export function registerHistograms(
  registry: Registry,
  name: string,
  help: string,
  read: () => readonly (readonly [labels: Readonly<Record<string, string>>, histogram: FastHistogram])[],
): void {
  const description = { name, help, type: 'histogram', aggregator: 'sum' }
  const values = () => read().flatMap(([labels, histogram]) => histogram.values(name, labels))
  const metric = { ...description, get: () => ({ ...description, values: values() }) }
  registry.registerMetric(metric as unknown as Histogram)
}

function labelled(values: Values): Exclude<Values, number> {
  return typeof values === 'number' ? [[{}, values]] : values
}
