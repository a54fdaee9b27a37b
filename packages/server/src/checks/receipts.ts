// Receipts of admitted requests, so that any node can refund them. A generated request id carries its receipt; a
// client-chosen id looks it up in the receipt store. The caller of the check may refund it, and so may admins.

import { andThen, type Decision, type Limiter, type MaybePromise } from 'sluice'
import type { Caller } from '../access/roles.ts'
import { isSealedId, openId, sealId } from './receipt-ids.ts'
import type { ReceiptKeys } from './receipt-keys.ts'
import { ANONYMOUS, type ReceiptStore } from './receipt-store.ts'
import type { IssuedReceipt } from './receipt-text.ts'

export type ReceiptsDeps = {
  readonly limiter: Pick<Limiter, 'receipt'>
  readonly keys: ReceiptKeys
  readonly store: ReceiptStore
  /** Maximum age at which a request can be refunded. */
  readonly ttlMsMax: number
}

/**
 * unknown: no such request. unreadable: formatted like a generated id, but sealed with an unknown key or altered.
 * foreign: issued to another caller.
 */
export type Found = IssuedReceipt | 'unknown' | 'unreadable' | 'foreign'

export class Receipts {
  readonly #deps: ReceiptsDeps

  constructor(deps: ReceiptsDeps) {
    this.#deps = deps
  }

  /** Returns the request id inside an id that the client received earlier and sends again to renew its permits. */
  renewed(name: string, caller: Caller): string | undefined {
    const opened = openId(name, this.#deps.keys)
    return opened !== undefined && mayUse(opened, caller) ? opened.requestId : undefined
  }

  /** Stores the receipt. Returns the id for the answer: the client's own if it chose one. */
  admitted(
    decision: Decision,
    chosenId: string | undefined,
    caller: Caller,
    position: number | undefined,
  ): MaybePromise<string> {
    const { limiter, keys, store, ttlMsMax } = this.#deps
    const full = limiter.receipt(decision)
    const receipt = { ...full, ttlUs: Math.min(full.ttlUs, ttlMsMax * 1000) }
    const issued: IssuedReceipt = { receipt, caller: caller.id, position }
    const sealed = chosenId === undefined ? sealId(decision.requestId, issued, keys) : undefined
    if (sealed !== undefined) return sealed
    const id = chosenId ?? decision.requestId // the receipt is too long for an id
    if (decision.source === 'policy') return id // nothing was taken, and Redis is unreachable
    return andThen(store.write(id, issued), () => id)
  }

  async find(id: string, caller: Caller): Promise<Found> {
    const { keys, store } = this.#deps
    let opened: IssuedReceipt | undefined = openId(id, keys)
    if (opened === undefined && isSealedId(id)) {
      await keys.refresh() // another node may have sealed it with a newer key
      opened = openId(id, keys)
    }
    const isAdmin = caller.role === 'admin'
    const found = opened ?? (await store.find(id, caller.id)) ?? (await store.find(id, isAdmin ? undefined : ANONYMOUS))
    if (found === undefined) return isSealedId(id) ? 'unreadable' : 'unknown'
    return mayUse(found, caller) ? found : 'foreign'
  }
}

/** A check without a token may be refunded by any caller. */
function mayUse({ caller: issuedTo }: IssuedReceipt, { id, role }: Caller): boolean {
  return issuedTo === id || issuedTo === ANONYMOUS || role === 'admin'
}
