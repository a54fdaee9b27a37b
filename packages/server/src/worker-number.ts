// Name of this process in the fleet, and its number among the workers of `--workers`. A worker that replaces another
// has its number and its name: to the fleet it is the same process after a restart.

import cluster from 'node:cluster'
import { hostname } from 'node:os'

/** Variable in which a worker gets its number. */
export const WORKER_NUMBER_ENV = 'WORKER_OF_SLUICE'

/** From 1; 0 without workers. */
export function workerNumber(): number {
  return cluster.isWorker ? Number(process.env[WORKER_NUMBER_ENV] ?? 0) : 0
}

/** Host name and, with workers, the number of this one: workers are separate producers of events. */
export function nodeName(): string {
  const worker = workerNumber()
  return worker === 0 ? hostname() : `${hostname()}/${worker}`
}
