// Number of this process among the workers of `--workers`.

import cluster from 'node:cluster'

/** From 1; 0 without workers. */
export function workerNumber(): number {
  return cluster.isWorker ? (cluster.worker?.id ?? 0) : 0
}
