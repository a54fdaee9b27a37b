// The limiter of the short form, `{ limit, window }`: one rule. The same limit on the same store is the same limiter,
// and two different ones of one name on one store are refused, because they would count in the same buckets.

import { type Fault, LimiterError, optionInvalid, optionsInvalid } from '../errors.ts'
import { createLimiter, type Limiter } from '../limiter.ts'
import type { Store } from '../store/store.ts'
import { type OneLimit, windowMs } from './options.ts'

type Named = { readonly terms: string; readonly limiter: Limiter }

const byStore = new WeakMap<Store, Map<string, Named>>()

export function limiterOf<Req>(options: OneLimit<Req>): Limiter {
  const { store, name = 'default' } = options
  if (store === undefined) return newLimiter(options, name)
  const named = byStore.get(store) ?? new Map<string, Named>()
  byStore.set(store, named)
  const { limit, window, algorithm, burst, key, ipv6Prefix } = options
  const terms = JSON.stringify([limit, windowMs(window), algorithm, burst, key !== undefined, ipv6Prefix])
  const known = named.get(name)
  if (known !== undefined && known.terms !== terms) {
    throw optionInvalid('name', name, 'is the name of another limit on this store: give this one a name of its own')
  }
  const limiter = known?.limiter ?? newLimiter(options, name)
  named.set(name, { terms, limiter })
  return limiter
}

function newLimiter<Req>(options: OneLimit<Req>, name: string): Limiter {
  const { limit, window, algorithm, burst, key, store, ipv6Prefix } = options
  const rule = {
    rule_id: name,
    limit,
    window_seconds: windowMs(window) / 1000,
    scope: key === undefined ? 'per_ip' : 'per_user',
    ...(key !== undefined && { on_missing: 'by_ip' }),
    ...(algorithm !== undefined && { algorithm }),
    ...(burst !== undefined && { burst }),
  }
  try {
    return createLimiter({ rules: [rule], store, ipv6Prefix })
  } catch (error) {
    // Numbers that are fine one by one may not go together: only the rule parser knows.
    if (error instanceof LimiterError && error.code === 'RULE_INVALID') throw optionsInvalid(error.faults.map(asOption))
    throw error
  }
}

/** `rules[0].window_seconds` is the `window` of these options. */
function asOption(fault: Fault): Fault {
  return { ...fault, field: fault.field.replace(/^.*\./, '').replace('window_seconds', 'window') }
}
