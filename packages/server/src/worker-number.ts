// Name of this process in the fleet, and its number among the workers of `--workers`.

import cluster from 'node:cluster'
import { hostname } from 'node:os'

/** From 1; 0 without workers. */
export function workerNumber(): number {
  return cluster.isWorker ? (cluster.worker?.id ?? 0) : 0
}

/** Host name and, with workers, the number of this one: workers are separate producers of events. */
export function nodeName(): string {
  const worker = workerNumber()
  return worker === 0 ? hostname() : `${hostname()}/${worker}`
}
