// Memory store that always returns promises, like Redis.

import type { Store } from '../store/store.ts'

export function remote(store: Store): Store {
  return {
    take: async (take) => store.take(take),
    peek: async (charges) => store.peek(charges),
    give: async (gives, opId) => store.give(gives, opId),
    reset: async (bucket) => store.reset(bucket),
    close: () => store.close(),
  }
}
