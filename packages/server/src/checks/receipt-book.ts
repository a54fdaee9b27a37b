// Receipts of requests that clients have named themselves, found by that name and by who made the check. In Redis, so
// that every node finds them, or in this process where the buckets are.

import { createHash } from 'node:crypto'
import type { SharedNotes } from '../counters/shared-notes.ts'
import { readVoucher, type Voucher, voucherText } from './receipt-text.ts'
import { Recent } from './recent.ts'

export type ReceiptBook = {
  /** A name that is used again means the newest request from then on. */
  write(name: string, voucher: Voucher): void | Promise<void>
  /** `caller` undefined: finds a record of any caller. */
  find(name: string, caller: string | undefined): Voucher | undefined | Promise<Voucher | undefined>
}

/** Up to a kilobyte each. */
const RECEIPTS_MAX = 100_000

/** The newest so many. Errs towards forgetting: a request that is no longer known keeps what it consumed. */
export function bookInMemory(onDrop: () => void, max: number = RECEIPTS_MAX): ReceiptBook {
  const vouchers = new Recent<Voucher>(max, onDrop)
  const callers = new Recent<string>(max)
  return {
    write: (name, voucher) => {
      vouchers.remember(`${voucher.caller} ${name}`, voucher)
      callers.remember(name, voucher.caller)
    },
    find: (name, caller) => vouchers.find(`${caller ?? callers.find(name)} ${name}`),
  }
}

export type Patience = {
  /** How long a check waits to hear that its receipt is written. */
  readonly waitMs: number
  readonly onUnconfirmed: () => void
}

/** After a write that was not confirmed in time, checks do not wait for the next ones for this long. */
const PAUSE_MS = 250
/** Beyond it receipts are not written at all: Redis has stopped answering. */
const WRITES_MAX = 10_000

/**
 * Written before the check is answered. A Redis that does not confirm in time holds up no check: the receipt may arrive
 * all the same, and what is not known later is not refunded.
 */
export function bookInRedis(notes: SharedNotes, { waitMs, onUnconfirmed }: Patience): ReceiptBook {
  let pausedUntilMs = 0
  let writes = 0
  const put = async (name: string, voucher: Voucher) => {
    const ttlMs = voucher.receipt.lastsUs / 1000
    const texts = [notes.put(`receipt:${hashOf(`${voucher.caller} ${name}`)}`, voucherText(voucher), ttlMs)]
    // For admins, who need not know who made the check.
    if (voucher.caller !== ANONYMOUS) texts.push(notes.put(`receipt-of:${hashOf(name)}`, voucher.caller, ttlMs))
    writes += 1
    await Promise.all(texts).finally(() => {
      writes -= 1
    })
  }
  return {
    write: async (name, voucher) => {
      const paused = performance.now() < pausedUntilMs
      if (writes < WRITES_MAX && (await within(paused ? 0 : waitMs, put(name, voucher)))) return
      if (!paused) pausedUntilMs = performance.now() + PAUSE_MS
      onUnconfirmed()
    },
    find: async (name, caller) => {
      const [maker] = caller === undefined ? await notes.get(`receipt-of:${hashOf(name)}`) : [caller]
      const [text] = await notes.get(`receipt:${hashOf(`${maker ?? ANONYMOUS} ${name}`)}`)
      return text === undefined ? undefined : readVoucher(text)
    },
  }
}

/** Of checks without a token. */
export const ANONYMOUS = 'anonymous'

function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('base64url').slice(0, 22)
}

/** Whether it was done in time. Answers that have arrived but were not read yet count: this process may be busy. */
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
