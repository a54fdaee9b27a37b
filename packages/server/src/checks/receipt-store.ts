// Receipts of requests with a client-chosen id, found by that id and the caller of the check. Stored in Redis, where
// every node finds them, or in this process if the buckets are in memory.

import { createHash } from 'node:crypto'
import type { SharedValues } from '../store/shared-values.ts'
import { type IssuedReceipt, parseReceipt, serializeReceipt } from './receipt-text.ts'
import { RecentMap } from './recent-map.ts'

export type ReceiptStore = {
  /** A reused id refers to its newest request. */
  write(name: string, issued: IssuedReceipt): void | Promise<void>
  /** `caller` undefined: finds a receipt of any caller. */
  find(name: string, caller: string | undefined): IssuedReceipt | undefined | Promise<IssuedReceipt | undefined>
}

/** Each takes up to a kilobyte. */
const RECEIPTS_MAX = 100_000

/** Keeps the newest `max` receipts: an older request can no longer be refunded. */
export function memoryReceiptStore(onDrop: () => void, max: number = RECEIPTS_MAX): ReceiptStore {
  const issuedReceipts = new RecentMap<IssuedReceipt>(max, onDrop)
  const callers = new RecentMap<string>(max)
  return {
    write: (name, issued) => {
      issuedReceipts.remember(`${issued.caller} ${name}`, issued)
      callers.remember(name, issued.caller)
    },
    find: (name, caller) => issuedReceipts.find(`${caller ?? callers.find(name)} ${name}`),
  }
}

export type ConfirmationOptions = {
  /** Longest wait of a check for confirmation that its receipt is written. */
  readonly waitMs: number
  readonly onUnconfirmed: () => void
}

/** After an unconfirmed write, checks do not wait for confirmations for this long. */
const PAUSE_MS = 250
/** Cap on pending writes. Beyond it receipts are dropped: Redis has stopped answering. */
const WRITES_MAX = 10_000

/**
 * Writes before the check is answered, and waits at most `waitMs`. An unconfirmed receipt may be unknown to a later
 * refund.
 */
export function redisReceiptStore(
  sharedValues: SharedValues,
  { waitMs, onUnconfirmed }: ConfirmationOptions,
): ReceiptStore {
  let pausedUntilMs = 0
  let writes = 0
  const put = async (name: string, issued: IssuedReceipt) => {
    const ttlMs = issued.receipt.ttlUs / 1000
    const puts = [sharedValues.put(`receipt:${hashOf(`${issued.caller} ${name}`)}`, serializeReceipt(issued), ttlMs)]
    // Lets admins refund without knowing the caller.
    if (issued.caller !== ANONYMOUS) puts.push(sharedValues.put(`receipt-of:${hashOf(name)}`, issued.caller, ttlMs))
    writes += 1
    await Promise.all(puts).finally(() => {
      writes -= 1
    })
  }
  return {
    write: async (name, issued) => {
      const paused = performance.now() < pausedUntilMs
      if (writes < WRITES_MAX && (await within(paused ? 0 : waitMs, put(name, issued)))) return
      if (!paused) pausedUntilMs = performance.now() + PAUSE_MS
      onUnconfirmed()
    },
    find: async (name, caller) => {
      const [issuedTo] = caller === undefined ? await sharedValues.get(`receipt-of:${hashOf(name)}`) : [caller]
      const [text] = await sharedValues.get(`receipt:${hashOf(`${issuedTo ?? ANONYMOUS} ${name}`)}`)
      return text === undefined ? undefined : parseReceipt(text)
    },
  }
}

/** Caller of checks without a token. */
export const ANONYMOUS = 'anonymous'

function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('base64url').slice(0, 22)
}

/**
 * Whether the work completed in time. A reply that arrived but is not processed yet counts: the event loop may be busy.
 */
function within(ms: number, work: Promise<void>): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => setImmediate(resolve, false), ms)
    const done = (confirmed: boolean) => {
      clearTimeout(timer)
      resolve(confirmed)
    }
    work.then(
      () => done(true),
      () => done(false),
    )
  })
}
