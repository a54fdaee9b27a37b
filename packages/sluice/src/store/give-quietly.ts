// Giving back what nobody needs. At most once, like every give: units that are lost on the way err low.

import type { Give, Store } from './store.ts'

export async function giveQuietly(store: Store, gives: readonly Give[], opId?: string): Promise<void> {
  try {
    await store.give(gives, opId)
  } catch {
    // Nobody waits for it, and to try again could give twice.
  }
}
