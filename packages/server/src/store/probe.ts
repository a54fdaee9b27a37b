// Store operations of the service itself, on buckets of its own: they charge no client.

import { type Charge, compileLimit, type Store } from 'sluice'

/** Queries the store, which tracks the result. `spread`: also the global store of a region. */
export async function probe(store: Store, { spread = false }: { readonly spread?: boolean } = {}): Promise<void> {
  const limit = compileLimit({ id: 'sluice.probe', algorithm: 'fixed_window', units: 1, windowUs: 1_000_000, spread })
  const charge: Charge = { limit, owner: '', detail: '', min: 1, max: 1, kind: 'shadow' }
  await Promise.resolve(store.peek([charge])).catch(() => {})
}

const WARM_UP_TAKES = 20
const WARM_UP_ROUNDS = 50
const WARM_UP_MS_MAX = 500

/**
 * Loads the script and runs the code path of a check until V8 has compiled it: the first requests of a cold process
 * would otherwise take tens of milliseconds. Ends early if the store fails or is slow.
 */
export async function warmUp(store: Store): Promise<void> {
  const limit = compileLimit({ id: 'sluice.warm_up', algorithm: 'token_bucket', units: 1_000_000, windowUs: 1_000_000 })
  const startedMs = performance.now()
  for (let round = 0; round < WARM_UP_ROUNDS && performance.now() - startedMs < WARM_UP_MS_MAX; round += 1) {
    const takes = Array.from({ length: WARM_UP_TAKES }, (_, number) => {
      const charge: Charge = { limit, owner: '', detail: String(number % 4), min: 1, max: 1, kind: 'enforce' }
      return Promise.resolve(store.take({ charges: [charge] }))
    })
    const taken = await Promise.allSettled(takes)
    if (taken.some((one) => one.status === 'rejected' || one.value.source === 'policy')) return
  }
}
