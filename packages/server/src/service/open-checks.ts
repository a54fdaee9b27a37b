// Opens the check controller of a node with its receipts and its decision history.

import { type Limiter, wallClock } from 'sluice'
import {
  type CheckController,
  type CheckControllerDeps,
  createCheckController,
  type ExceptionHooks,
} from '../checks/check-controller.ts'
import { DecisionHistory } from '../checks/decision-history.ts'
import { plainDecision } from '../checks/plain-decision.ts'
import type { ReceiptKeys } from '../checks/receipt-keys.ts'
import type { Receipts } from '../checks/receipts.ts'
import { SharedDecisions } from '../checks/shared-decisions.ts'
import type { Database } from '../db/database.ts'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { headerOptions } from '../settings/header-settings.ts'
import type { Settings } from '../settings/settings.ts'
import type { OpenStore } from '../store/open-store.ts'
import { openDecisionRing } from './decision-ring.ts'
import type { OpenEvents } from './open-events.ts'
import { openReceipts } from './open-receipts.ts'

export type OpenChecks = {
  readonly checks: CheckController
  readonly history: DecisionHistory
  readonly receipts: Receipts
  readonly receiptKeys: ReceiptKeys
  readonly sharedDecisions: SharedDecisions | undefined
  close(): Promise<void>
}

export type OpenChecksDeps = {
  readonly limiter: Limiter
  readonly store: OpenStore
  readonly database: Database | undefined
  readonly events: Pick<OpenEvents, 'pipeline' | 'keyHash'>
  readonly rollouts: { readonly node: CheckControllerDeps['rollouts'] }
  readonly metrics: Metrics
  readonly log: Log
  readonly exceptions: ExceptionHooks
}

export async function openChecks(settings: Settings, deps: OpenChecksDeps): Promise<OpenChecks> {
  const { limiter, store, database, metrics, log, exceptions } = deps
  const { pipeline: events, keyHash } = deps.events
  const {
    receipts,
    keys: receiptKeys,
    close: closeReceipts,
  } = await openReceipts(settings, { limiter, store, metrics, log })
  const headers = headerOptions(settings)
  const ring = openDecisionRing(store.sharedValues, database)
  const sharedDecisions = ring && new SharedDecisions(ring, (recorded) => plainDecision(recorded, keyHash, headers))
  if (sharedDecisions !== undefined) metrics.watchDecisionRecords(sharedDecisions)
  const history = new DecisionHistory(wallClock, (recorded) => sharedDecisions?.share(recorded))
  const checks = createCheckController({
    limiter,
    metrics,
    log,
    keyHash,
    history,
    receipts,
    events,
    rollouts: deps.rollouts.node,
    headers,
    exceptions,
  })
  const close = async () => {
    await sharedDecisions?.close()
    closeReceipts()
  }
  return { checks, history, receipts, receiptKeys, sharedDecisions, close }
}
