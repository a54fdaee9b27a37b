// Values derived from the active rules. They are computed once per rule set, not once per check.

import type { Limiter } from 'sluice'

/** Returns a function that returns `read()`, and calls it again only when the active rules have changed. */
export function followRules<Value>(limiter: Pick<Limiter, 'version'>, read: () => Value): () => Value {
  let { version } = limiter
  let value = read()
  return () => {
    if (version !== limiter.version) {
      version = limiter.version
      value = read()
    }
    return value
  }
}
