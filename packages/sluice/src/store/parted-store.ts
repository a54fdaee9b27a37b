// A memory store of one node among several: limits that are counted in each process (`consistency: local`) are this
// node's part there. All others are as they are.

import { LimitParts } from '../algorithms/parts.ts'
import type { BucketName, Charge, Give, Given, Once, Store, Take, Taken } from './store.ts'

/** A store that answers at once, as the one in memory does. */
export interface SyncStore extends Store {
  take(take: Take): Taken
  takeSync(take: Take): Taken
  peek(charges: readonly Charge[]): Taken
  give(gives: readonly Give[], opId?: string, once?: Once): Given
  reset(bucket: BucketName): void
  stats(): Readonly<Record<string, number>>
}

export function partedStore(store: SyncStore, nodes: number): SyncStore {
  const parts = new LimitParts(nodes)
  const part = <B extends BucketName>(bucket: B): B => {
    return bucket.limit.local ? { ...bucket, limit: parts.of(bucket.limit) } : bucket
  }
  const take = (asked: Take) => {
    return store.take({ ...asked, charges: asked.charges.map(part), resets: asked.resets?.map(part) })
  }
  return {
    take,
    takeSync: take,
    peek: (charges) => store.peek(charges.map(part)),
    give: (gives, opId, once) => store.give(gives.map(part), opId, once),
    reset: (bucket) => store.reset(part(bucket)),
    stats: () => store.stats(),
    wallAheadUs: () => store.wallAheadUs?.() ?? 0,
    close: () => store.close(),
  }
}
