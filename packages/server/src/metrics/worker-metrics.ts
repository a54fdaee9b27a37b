// Number of processes of a node. Each worker counts itself; the supervisor adds the counts that only it has.

import { Counter, Gauge, type Registry } from 'prom-client'

export const WORKERS_REPLACED = {
  name: 'sluice_workers_replaced_total',
  help: 'Workers that exited and were replaced.',
}

export const WORKERS_STALE = {
  name: 'sluice_workers_stale',
  help: 'Workers that did not answer this scrape in time; their last known values are used.',
}

export const WORKER_UP = {
  name: 'sluice_worker_up',
  help: 'With --workers: 1 if the worker answered this scrape in time, by number.',
  labelNames: ['worker'] as const,
}

/** Counts the workers, by number, that answered a scrape, and those that did not. */
export function setWorkersUp(gauge: Gauge<'worker'>, count: number, isUp: (worker: number) => boolean): void {
  for (let worker = 1; worker <= count; worker += 1) gauge.set({ worker }, isUp(worker) ? 1 : 0)
}

export function registerWorkers(registry: Registry): void {
  const registers = [registry]
  new Gauge({ name: 'sluice_workers', help: 'Processes that serve requests.', registers }).set(1)
  new Gauge({ ...WORKERS_STALE, registers }).set(0)
  new Gauge({ ...WORKER_UP, registers })
  new Counter({ ...WORKERS_REPLACED, registers })
}
