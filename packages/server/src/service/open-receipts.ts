// Opens the receipts of a node: in Redis if the buckets are there, else in memory.

import type { Limiter } from 'sluice'
import { ReceiptKeys } from '../checks/receipt-keys.ts'
import { memoryReceiptStore, redisReceiptStore } from '../checks/receipt-store.ts'
import { Receipts } from '../checks/receipts.ts'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { STORE_DEADLINE_MS } from '../settings/deadlines.ts'
import type { Settings } from '../settings/settings.ts'
import type { OpenStore } from '../store/open-store.ts'

export type OpenReceipts = { readonly receipts: Receipts; readonly keys: ReceiptKeys; close(): void }

type ReceiptSettings = Pick<Settings, 'refundMinutes' | 'storeDeadlineMs'>

type ReceiptsDeps = {
  readonly limiter: Limiter
  readonly store: OpenStore
  readonly metrics: Metrics
  readonly log: Log
}

export async function openReceipts(settings: ReceiptSettings, deps: ReceiptsDeps): Promise<OpenReceipts> {
  const { refundMinutes, storeDeadlineMs: waitMs = STORE_DEADLINE_MS } = settings
  const { limiter, metrics, log } = deps
  const { sharedValues } = deps.store
  const keys = new ReceiptKeys(sharedValues, log)
  await keys.start()
  const onUnconfirmed = () => {
    metrics.receiptUnconfirmed()
  }
  const onDrop = () => {
    metrics.receiptDropped()
  }
  const receiptStore =
    sharedValues === undefined ? memoryReceiptStore(onDrop) : redisReceiptStore(sharedValues, { waitMs, onUnconfirmed })
  return {
    receipts: new Receipts({ limiter, keys, store: receiptStore, ttlMsMax: refundMinutes * 60_000 }),
    keys,
    close: () => {
      keys.stop()
      sharedValues?.close()
    },
  }
}
