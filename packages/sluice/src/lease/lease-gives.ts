// Units that come back to a node that holds leases: they go where they came from, the lease or the store.

import { giveQuietly } from '../store/give-quietly.ts'
import type { Give, Once, Returned, Store } from '../store/store.ts'
import { asCharged } from './lease.ts'
import type { LeaseTable } from './lease-table.ts'

/** With `once`, a lease gets its units back after the store has confirmed that this is the first time. */
export async function giveWithLeases(
  table: LeaseTable,
  store: Store,
  nowMs: () => number,
  gives: readonly Give[],
  opId?: string,
  once?: Once,
): Promise<Returned> {
  const unspend = (give: Give, units: number): boolean => {
    if (give.leasedUs === undefined || give.remote) return false
    return table.find(give)?.unspend(units, give.leasedUs, nowMs()) ?? false
  }
  // To put back none of them tells whether the lease is still good.
  const here = new Set(gives.filter((give) => unspend(give, once === undefined ? give.units : 0)))
  for (const give of gives) if (!here.has(give)) table.find(give)?.pardon()
  const told = gives.flatMap((give): Give[] => {
    if (!here.has(give)) return [asCharged(give)]
    return once === undefined ? [] : [{ ...asCharged(give), units: 0 }] // the store remembers the id beside each bucket
  })
  const given = told.length === 0 ? 'given' : await store.give(told, opId, once)
  if (once === undefined || given === 'repeated' || given === 'expired') return given
  const ended = [...here].filter((give) => !unspend(give, give.units)) // while the store was asked
  if (ended.length > 0) void giveQuietly(store, ended.map(asCharged), opId)
  return given
}
