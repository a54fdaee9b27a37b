// Reports outages of Redis to an application that has no `onTransition`: one warning when an outage begins, one when it
// is over. Without them, on_fail would decide in silence.

import { warn } from '../warning.ts'
import type { ServerTransition } from './guarded-redis.ts'

export function outageWarnings(): (transition: ServerTransition) => void {
  const down = new Set<string>()
  return ({ state, store, server }) => {
    const about = server === undefined ? `store ${store}` : `store ${store}, server ${server}`
    // A breaker goes from open to half open and back for as long as the outage lasts.
    if (state === 'open' && !down.has(about)) {
      down.add(about)
      warn('SLUICE_STORE_DOWN', about)
    }
    if (state === 'closed' && down.delete(about)) warn('SLUICE_STORE_UP', about)
  }
}
