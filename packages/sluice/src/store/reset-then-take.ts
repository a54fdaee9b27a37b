// A take with resets, for stores that cannot do both atomically because the buckets have several targets.

import type { Store, Take, Taken } from './store.ts'

export async function resetThenTake(store: Store, { resets = [], ...take }: Take): Promise<Taken> {
  await Promise.all(resets.map(async (bucket) => store.reset(bucket)))
  return store.take(take)
}
