// Terms of `consistency: approximate`: how many units a node may admit before it syncs. The fleet admits at most
//
//   limit + nodes × M      M: cap on the units that a node has admitted and the store has not acknowledged
//
// Proof, for any time t. Of the bookings up to t, take the last one after which the bucket, aged to t, is not in debt.
// The bucket then holds at most the limit. All other units were admitted by nodes without the store, because the store
// never admits into debt. A node that has received no reply to a later sync has admitted at most M of them, all
// unacknowledged. A node that has received one knows that the bucket is in debt and has admitted nothing since; the
// units it admitted before were unacknowledged when the reply arrived, so they are at most M too.
//
// Requirements: a node never assumes more free units than the store's last reply, aged, minus its own units
// (approximate-store.ts errs low), and never ages a reply faster than the store does (store-clock.ts). The store may
// book units later than they were admitted, never earlier; they then count for longer.
//
// A sync whose reply is lost may or may not have been booked, and is never sent again. Its units count as
// unacknowledged until every bucket has forgotten them. Windows are then exact again. A token bucket that is always
// empty is not: while syncs keep being lost, it admits nodes × M more per such period.

import type { ApproximateConfig, ApproximateTerms, Limit } from './limit.ts'

const SYNC_MS = 1000
/** Cap on the sync interval, as a share of the window. */
const SYNC_WINDOW_SHARE = 0.1
const UNSYNCED_SHARE = 0.05

export function approximateTerms(limit: Limit, { syncMs, maxUnsynced }: ApproximateConfig): ApproximateTerms {
  const share = Math.max(1, Math.floor(limit.capacity * UNSYNCED_SHARE))
  return {
    syncMs: Math.min(syncMs ?? SYNC_MS, (SYNC_WINDOW_SHARE * limit.windowUs) / 1000),
    unsyncedMax: Math.min(maxUnsynced ?? share, limit.capacity),
    retentionMs: (2 * limit.windowUs * limit.capacity) / Math.max(1, limit.units) / 1000,
  }
}
