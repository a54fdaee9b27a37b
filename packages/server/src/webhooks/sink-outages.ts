// Reports sinks that fail for some seconds, and their recovery. A single failed write is retried and not reported.

import type { WebhookEvent } from './webhooks.ts'

export const DOWN_MS = 10_000

/** State of a sink in one process. */
export type SinkState = {
  readonly name: string
  readonly isUp: boolean
  readonly pending: number
  readonly dropped: number
}

export class SinkOutages {
  /** By name, while the sink is down. */
  readonly #outages = new Map<string, { readonly sinceMs: number; isReported: boolean }>()

  /** `sinks`: of all processes of the node. */
  next(sinks: readonly SinkState[], nowMs: number): WebhookEvent[] {
    return mergedSinks(sinks).flatMap((sink) => (sink.isUp ? this.#up(sink, nowMs) : this.#down(sink, nowMs)))
  }

  /** Outages that were reported and have not ended. */
  open(): { sink: string; sinceMs: number }[] {
    const reported = [...this.#outages].filter(([, { isReported }]) => isReported)
    return reported.map(([sink, { sinceMs }]) => ({ sink, sinceMs }))
  }

  #down(sink: SinkState, nowMs: number): WebhookEvent[] {
    const outage = this.#outages.get(sink.name) ?? { sinceMs: nowMs, isReported: false }
    this.#outages.set(sink.name, outage)
    if (outage.isReported || nowMs - outage.sinceMs < DOWN_MS) return []
    outage.isReported = true
    return [{ type: 'sink.down', data: dataOf(sink) }]
  }

  #up(sink: SinkState, nowMs: number): WebhookEvent[] {
    const outage = this.#outages.get(sink.name)
    this.#outages.delete(sink.name)
    if (!outage?.isReported) return []
    const seconds = Math.round((nowMs - outage.sinceMs) / 1000)
    return [{ type: 'sink.up', data: { ...dataOf(sink), seconds } }]
  }
}

/** A sink of a node is up if it is up in all of its processes. */
function mergedSinks(sinks: readonly SinkState[]): SinkState[] {
  const merged = new Map<string, SinkState>()
  for (const sink of sinks) {
    const other = merged.get(sink.name) ?? { name: sink.name, isUp: true, pending: 0, dropped: 0 }
    merged.set(sink.name, {
      name: sink.name,
      isUp: sink.isUp && other.isUp,
      pending: sink.pending + other.pending,
      dropped: sink.dropped + other.dropped,
    })
  }
  return [...merged.values()]
}

function dataOf({ name, pending, dropped }: SinkState): WebhookEvent['data'] {
  return { sink: name, pending, dropped }
}
