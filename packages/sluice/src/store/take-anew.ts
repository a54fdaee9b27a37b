// A take with resets, for a store that cannot do both in one step because its buckets live in several places.

import type { Store, Take, Taken } from './store.ts'

export async function takeAnew(store: Store, { resets = [], ...take }: Take): Promise<Taken> {
  await Promise.all(resets.map(async (bucket) => store.reset(bucket)))
  return store.take(take)
}
