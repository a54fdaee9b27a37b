// How many units a node may admit on its own (`consistency: approximate`), and why the fleet admits at most
//
//   limit + nodes × M      M: units that a node has admitted and the store has not acknowledged, at most
//
// counted as the algorithm counts, at every moment t. Of all that the store has booked by t, take the last booking
// after which its bucket, aged to t, is not in debt. What it holds then is at most the limit. What it does not hold
// was admitted by nodes on their own: the store itself admits nobody into debt. A node that has had no answer to a
// later sync has admitted at most M of that: it is not acknowledged. A node that has had one has believed the bucket
// to be in debt ever since, so it has admitted nothing after that answer; what it had admitted before was not
// acknowledged when the answer came, so it is at most M as well.
//
// It needs that a node never believes a bucket to be fuller than the store's answer, aged, and its own units allow
// (approximate-store.ts errs low), and that it never ages an answer faster than the store does (store-clock.ts).
// The store may book units later than they were admitted, never earlier, and then they count for longer.
//
// A sync whose answer is lost may or may not have been booked, and is never sent again. Its units count as not
// acknowledged for as long as a bucket remembers anything. For windows nothing is left of them then. A token bucket
// that is always empty never gets over them: if syncs keep being lost, it sees nodes × M more in each such time.

import type { ApproximateTerms, ApproximateWishes, Limit } from './limit.ts'

const SYNC_MS = 1000
/** Of the window: what others did is known that late. */
const SYNC_PART = 0.1
const UNSYNCED_SHARE = 0.05

export function approximateTerms(limit: Limit, { syncMs, maxUnsynced }: ApproximateWishes): ApproximateTerms {
  const share = Math.max(1, Math.floor(limit.capacity * UNSYNCED_SHARE))
  return {
    syncMs: Math.min(syncMs ?? SYNC_MS, (SYNC_PART * limit.windowUs) / 1000),
    unsyncedMax: Math.min(maxUnsynced ?? share, limit.capacity),
    remembersMs: (2 * limit.windowUs * limit.capacity) / Math.max(1, limit.units) / 1000,
  }
}
