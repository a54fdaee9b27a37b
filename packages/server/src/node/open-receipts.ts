// Settings → what a node keeps of admitted requests for refunds: in Redis if the counters are there, else in memory.

import type { Limiter } from 'sluice'
import { bookInMemory, bookInRedis } from '../checks/receipt-book.ts'
import { ReceiptKeys } from '../checks/receipt-keys.ts'
import { Receipts } from '../checks/receipts.ts'
import type { OpenStore } from '../counters/open-store.ts'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { Settings } from '../settings/settings.ts'

export type OpenReceipts = { readonly receipts: Receipts; close(): void }

type ReceiptSettings = Pick<Settings, 'refundMinutes' | 'storeDeadlineMs'>

type Parts = {
  readonly limiter: Limiter
  readonly store: OpenStore
  readonly metrics: Metrics
  readonly log: Log
}

/** As long as a check waits for Redis by default. */
const WAIT_MS = 100

export async function openReceipts(settings: ReceiptSettings, parts: Parts): Promise<OpenReceipts> {
  const { refundMinutes, storeDeadlineMs: waitMs = WAIT_MS } = settings
  const { limiter, metrics, log } = parts
  const { notes } = parts.store
  const keys = new ReceiptKeys(notes, log)
  await keys.start()
  const onUnconfirmed = () => {
    metrics.kept.receiptsUnconfirmed += 1
  }
  const onDrop = () => {
    metrics.kept.admissionsDropped += 1
  }
  const book = notes === undefined ? bookInMemory(onDrop) : bookInRedis(notes, { waitMs, onUnconfirmed })
  return {
    receipts: new Receipts({ limiter, keys, book, lastsMs: refundMinutes * 60_000 }),
    close: () => {
      keys.stop()
      notes?.close()
    },
  }
}
