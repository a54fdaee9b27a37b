// Round trips and errors of each Redis server: of each primary in a Cluster.

import type { Registry } from 'prom-client'
import type { ErrorCode } from 'sluice'
import type { ServerName } from 'sluice/redis'
import { OTHER } from './bounded-counts.ts'
import { FastHistogram } from './fast-histogram.ts'
import { registerCounters, registerHistograms } from './registration.ts'

const SECONDS = [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 1]
/** Beyond this, servers share a label: a Cluster whose primaries are replaced often has many addresses. */
const SERVERS_MAX = 200
/** Label of a store that is a single server. */
const WHOLE_STORE = 'all'

export type ServerLabels = { readonly store: string; readonly server: string }

type Counts = {
  readonly labels: ServerLabels
  readonly seconds: FastHistogram
  readonly errors: Map<ErrorCode, number>
}

export class ServerCounts {
  readonly #servers = new Map<string, Counts>()

  answered(name: ServerName, seconds: number): void {
    this.#countsOf(serverLabels(name)).seconds.observe(seconds)
  }

  failed(name: ServerName, code: ErrorCode): void {
    const { errors } = this.#countsOf(serverLabels(name))
    errors.set(code, (errors.get(code) ?? 0) + 1)
  }

  all(): readonly Counts[] {
    return [...this.#servers.values()]
  }

  #countsOf(labels: ServerLabels): Counts {
    const key = `${labels.store} ${labels.server}`
    const known = this.#servers.get(key)
    if (known !== undefined) return known
    if (this.#servers.size >= SERVERS_MAX && labels.store !== OTHER) {
      return this.#countsOf({ store: OTHER, server: OTHER })
    }
    const counts = { labels, seconds: new FastHistogram(SECONDS), errors: new Map() }
    this.#servers.set(key, counts)
    return counts
  }
}

export function serverLabels({ store, server = WHOLE_STORE }: ServerName): ServerLabels {
  return { store, server }
}

export function registerServers(registry: Registry, servers: ServerCounts): void {
  registerHistograms(registry, 'sluice_store_duration_seconds', 'Round trips to a Redis server.', () => {
    return servers.all().map(({ labels, seconds }) => [labels, seconds] as const)
  })
  registerCounters(registry, () => servers, [
    {
      name: 'sluice_store_errors_total',
      help: 'Calls to a Redis server that failed, by error code.',
      labels: ['store', 'server', 'code'],
      read: (all) =>
        all.all().flatMap(({ labels, errors }) => [...errors].map(([code, count]) => [{ ...labels, code }, count])),
    },
  ])
}
