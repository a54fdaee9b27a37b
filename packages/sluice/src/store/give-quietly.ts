// Returns unneeded units and ignores errors. At most once, like every give; lost units err low.

import type { Give, Store } from './store.ts'

export async function giveQuietly(store: Store, gives: readonly Give[], opId?: string): Promise<void> {
  try {
    await store.give(gives, opId)
  } catch {
    // Not retried: that could give twice.
  }
}
