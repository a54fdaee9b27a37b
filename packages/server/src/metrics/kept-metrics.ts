// Counts of what is kept of requests for later: receipts of admissions, and decisions that every node finds.

import { Counter, type Registry } from 'prom-client'
import type { SharedDecisions } from '../checks/shared-decisions.ts'

export class KeptCounts {
  /** Requests that could no longer be refunded because too many were remembered after them. */
  admissionsDropped = 0
  /** Requests whose receipts Redis did not confirm in time. */
  receiptsUnconfirmed = 0
  decisions: Pick<SharedDecisions, 'written' | 'dropped'> = { written: 0, dropped: 0 }
}

export function registerKept(registry: Registry, counts: KeptCounts): void {
  const counter = (name: string, help: string, read: () => number) => {
    const registered = new Counter({
      ...{ name, help, registers: [] },
      collect() {
        this.reset()
        this.inc(read())
      },
    })
    registry.registerMetric(registered)
  }
  counter('sluice_admissions_dropped_total', 'Admitted requests forgotten early, no longer refundable.', () => {
    return counts.admissionsDropped
  })
  counter('sluice_receipts_unconfirmed_total', 'Receipts that Redis did not confirm in time.', () => {
    return counts.receiptsUnconfirmed
  })
  counter('sluice_decisions_shared_total', 'Decisions written where every node finds them.', () => {
    return counts.decisions.written
  })
  counter('sluice_decisions_dropped_total', 'Decisions that were too many to be written there.', () => {
    return counts.decisions.dropped
  })
}
