// Limiter of the short form `{ limit, window }`: one rule. Equal limits on one store share a limiter. Different limits
// with the same name on one store are rejected, because they would share buckets.

import { type FieldError, LimiterError, optionInvalid, optionsInvalid } from '../errors.ts'
import { createLimiter } from '../limiter.ts'
import type { Limiter } from '../limiter-api.ts'
import type { Store } from '../store/store.ts'
import { type OneLimit, windowMs } from './options.ts'

type Named = { readonly options: string; readonly limiter: Limiter }

const byStore = new WeakMap<Store, Map<string, Named>>()

export function limiterOf<Req>(options: OneLimit<Req>): Limiter {
  const { store, name = 'default' } = options
  if (store === undefined) return newLimiter(options, name)
  const named = byStore.get(store) ?? new Map<string, Named>()
  byStore.set(store, named)
  const { limit, window, algorithm, burst, key, ipv6Prefix } = options
  const ownOptions = JSON.stringify([limit, windowMs(window), algorithm, burst, key !== undefined, ipv6Prefix])
  const known = named.get(name)
  if (known !== undefined && known.options !== ownOptions) {
    throw optionInvalid('name', name, 'is the name of another limit on this store: choose a unique name')
  }
  const limiter = known?.limiter ?? newLimiter(options, name)
  named.set(name, { options: ownOptions, limiter })
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
    // Values that are valid by themselves may conflict; only the rule parser detects that.
    if (error instanceof LimiterError && error.code === 'RULE_INVALID')
      throw optionsInvalid(error.fieldErrors.map(asOption))
    throw error
  }
}

/** Maps `rules[0].window_seconds` to the option `window`. */
function asOption(error: FieldError): FieldError {
  return { ...error, field: error.field.replace(/^.*\./, '').replace('window_seconds', 'window') }
}
