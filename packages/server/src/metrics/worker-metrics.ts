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

export function registerWorkers(registry: Registry): void {
  const registers = [registry]
  new Gauge({ name: 'sluice_workers', help: 'Processes that serve requests.', registers }).set(1)
  new Gauge({ ...WORKERS_STALE, registers }).set(0)
  new Counter({ ...WORKERS_REPLACED, registers })
}
