// Looks at a bucket that nobody uses, in order to see whether a store answers: changes nothing.

import { type Charge, compileLimit, type Store } from 'sluice'

/** `spread`: in the region and in the global store. */
export async function probe(store: Store, { spread = false }: { readonly spread?: boolean } = {}): Promise<void> {
  const limit = compileLimit({ id: 'sluice.probe', algorithm: 'fixed_window', units: 1, windowUs: 1_000_000, spread })
  const charge: Charge = { limit, owner: '', detail: '', min: 1, max: 1, kind: 'shadow' }
  await Promise.resolve(store.peek([charge])).catch(() => {}) // the store itself notices how it went
}
