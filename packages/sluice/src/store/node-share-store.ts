// Memory store of one node among several: charges `consistency: local` limits against their node share. Other limits
// pass through unchanged.

import { NodeShares } from '../algorithms/node-share.ts'
import type { StoreStats } from './stats.ts'
import type { BucketName, Charge, Give, GiveResult, IdempotencyKey, Store, Take, Taken } from './store.ts'

/** A store whose results are all synchronous. */
export interface SyncStore extends Store {
  take(take: Take): Taken
  takeSync(take: Take): Taken
  peek(charges: readonly Charge[]): Taken
  give(gives: readonly Give[], opId?: string, idempotencyKey?: IdempotencyKey): GiveResult
  reset(bucket: BucketName): void
  stats(): Pick<StoreStats, 'keys' | 'overflowed'>
}

export function nodeShareStore(store: SyncStore, nodes: number): SyncStore {
  const shares = new NodeShares(nodes)
  const share = <B extends BucketName>(bucket: B): B => {
    return bucket.limit.local ? { ...bucket, limit: shares.of(bucket.limit) } : bucket
  }
  const take = (given: Take) => {
    return store.take({ ...given, charges: given.charges.map(share), resets: given.resets?.map(share) })
  }
  return {
    take,
    takeSync: take,
    peek: (charges) => store.peek(charges.map(share)),
    give: (gives, opId, idempotencyKey) => store.give(gives.map(share), opId, idempotencyKey),
    reset: (bucket) => store.reset(share(bucket)),
    stats: () => store.stats(),
    wallAheadUs: () => store.wallAheadUs?.() ?? 0,
    lastUs: () => store.lastUs?.() ?? 0,
    close: () => store.close(),
  }
}
