// What is kept of admitted requests, so that any node can refund them: an id that this service makes carries its
// receipt, one that a client has chosen finds it in the book. The caller that made the check may refund it, and admins.

import type { Decision, Limiter } from 'sluice'
import type { Caller } from '../access/guard.ts'
import { ANONYMOUS, type ReceiptBook } from './receipt-book.ts'
import { isSealedId, openId, sealId } from './receipt-ids.ts'
import type { ReceiptKeys } from './receipt-keys.ts'
import type { Voucher } from './receipt-text.ts'

export type ReceiptsParts = {
  readonly limiter: Pick<Limiter, 'receipt'>
  readonly keys: ReceiptKeys
  readonly book: ReceiptBook
  /** Longest time after which a request can be refunded. */
  readonly lastsMs: number
}

/** unknown: no such request. unreadable: an id like those of this service, which it did not make. */
export type Found = Voucher | 'unknown' | 'unreadable' | 'foreign'

export class Receipts {
  readonly #parts: ReceiptsParts

  constructor(parts: ReceiptsParts) {
    this.#parts = parts
  }

  /** The request id that a client was told before and sends again, to renew its permits; undefined for other names. */
  renewed(name: string, caller: Caller): string | undefined {
    const opened = openId(name, this.#parts.keys)
    return opened !== undefined && mayUse(opened, caller) ? opened.requestId : undefined
  }

  /** Keeps what a request took. Returns the id that the client is told: its own name, if it has chosen one. */
  admitted(decision: Decision, name: string | undefined, caller: Caller): string | Promise<string> {
    const { limiter, keys, book, lastsMs } = this.#parts
    const whole = limiter.receipt(decision)
    const receipt = { ...whole, lastsUs: Math.min(whole.lastsUs, lastsMs * 1000) }
    const voucher: Voucher = { receipt, caller: caller.id }
    const sealed = name === undefined ? sealId(decision.requestId, voucher, keys) : undefined
    if (sealed !== undefined) return sealed
    const id = name ?? decision.requestId // too long to be carried around
    if (decision.source === 'policy') return id // it took nothing, and Redis is away
    const written = book.write(id, voucher)
    return written instanceof Promise ? written.then(() => id) : id
  }

  async find(id: string, caller: Caller): Promise<Found> {
    const { keys, book } = this.#parts
    let opened: Voucher | undefined = openId(id, keys)
    if (opened === undefined && isSealedId(id)) {
      await keys.refresh() // another node may have sealed it with a key that is new
      opened = openId(id, keys)
    }
    const isAdmin = caller.role === 'admin'
    const found = opened ?? (await book.find(id, caller.id)) ?? (await book.find(id, isAdmin ? undefined : ANONYMOUS))
    if (found === undefined) return isSealedId(id) ? 'unreadable' : 'unknown'
    return mayUse(found, caller) ? found : 'foreign'
  }
}

/** Checks without a token are anybody's. */
function mayUse({ caller: maker }: Voucher, { id, role }: Caller): boolean {
  return maker === id || maker === ANONYMOUS || role === 'admin'
}
