// Gives on a node that holds leases: units go back to the lease they came from or, if it has ended, to the store.

import { giveQuietly } from '../store/give-quietly.ts'
import type { Give, GiveReply, IdempotencyKey, Store } from '../store/store.ts'
import type { LeaseTable } from './lease-table.ts'
import { withStoreLimit } from './store-limit.ts'

/** Gives per message, so that the script does not block Redis for long. */
const GIVES_MAX = 50

/** With an idempotency key, a lease gets its units back once the store has confirmed that the give is the first. */
export async function giveWithLeases(
  table: LeaseTable,
  store: Store,
  nowMs: () => number,
  gives: readonly Give[],
  opId?: string,
  idempotencyKey?: IdempotencyKey,
): Promise<GiveReply> {
  const unspend = (give: Give, units: number): boolean => {
    if (give.leasedUs === undefined || give.remote) return false
    const row = table.find(give)
    return row >= 0 && table.rows.unspend(row, units, give.leasedUs, nowMs())
  }
  // Putting back 0 units only tests whether the lease still accepts them.
  const leased = new Set(gives.filter((give) => unspend(give, idempotencyKey === undefined ? give.units : 0)))
  const storeGives = gives.flatMap((give): Give[] => {
    if (!leased.has(give)) return [withStoreLimit(give)]
    // The store records the key per bucket.
    return idempotencyKey === undefined ? [] : [{ ...withStoreLimit(give), units: 0 }]
  })
  const given = storeGives.length === 0 ? 'given' : await store.give(storeGives, opId, idempotencyKey)
  if (idempotencyKey === undefined || given === 'repeated' || given === 'expired') return given
  const ended = [...leased].filter((give) => !unspend(give, give.units)) // during the round trip
  if (ended.length > 0) void giveQuietly(store, ended.map(withStoreLimit), opId)
  return given
}

/** Returns units to the store in messages of bounded size. Errs low: failures are ignored. */
export async function giveInMessages(store: Store, gives: readonly Give[]): Promise<void> {
  const sent: Promise<void>[] = []
  for (let start = 0; start < gives.length; start += GIVES_MAX) {
    sent.push(giveQuietly(store, gives.slice(start, start + GIVES_MAX)))
  }
  await Promise.all(sent)
}
