// A limit with other units for some keys: same bucket, same generation. The store carries the state over as after an
// edit, so a key keeps what it has used, and its state returns when the exception ends.

import { compileLimit, type LimitNumbers } from '../algorithms/limit.ts'
import { ALGORITHMS } from '../algorithms/traits.ts'
import { LimiterError } from '../errors.ts'
import { type CompiledLimit, numbersOf } from './compile.ts'
import { unitsMaxOf } from './parse-limits.ts'

/** Cached versions of one limit. Beyond it the oldest is compiled again, and nodes return its leases. */
const VERSIONS_MAX = 10_000

/** Keyed by limit object, so an edit of the rule starts with an empty cache. */
const versionsOf = new WeakMap<CompiledLimit, Map<number, CompiledLimit>>()

/** The limit with this many units, or as many as its algorithm supports. */
export function withUnits(compiled: CompiledLimit, given: number): CompiledLimit {
  const units = Math.min(given, unitsMaxOf(compiled.limit.algorithm))
  if (units === compiled.limit.units) return compiled
  const versions = versionsOf.get(compiled) ?? new Map<number, CompiledLimit>()
  const known = versions.get(units)
  if (known !== undefined) return known
  versionsOf.set(compiled, versions)
  const [oldest] = versions.size < VERSIONS_MAX ? [] : versions.keys()
  if (oldest !== undefined) versions.delete(oldest)
  const changed = compileWith(compiled, units)
  versions.set(units, changed)
  return changed
}

/** Errs low: units that are too large for exact arithmetic are rounded down to fewer digits. */
function compileWith(compiled: CompiledLimit, units: number): CompiledLimit {
  const digits = String(units).length
  for (let zeros = 0; zeros < digits; zeros += 1) {
    const rounded = Math.floor(units / 10 ** zeros) * 10 ** zeros
    try {
      return { ...compiled, limit: compileLimit(changedNumbers(compiled, rounded)) }
    } catch (error) {
      if (!(error instanceof LimiterError)) throw error // compileLimit throws only TOO_LARGE
    }
  }
  return compiled
}

/**
 * The burst changes in proportion, so that two nodes that differ for a moment do not forgive debts
 * (algorithms/edit.ts). A lease keeps its TTL: with a shorter one, the store would forget units on lease.
 */
function changedNumbers({ rule, name, limit }: CompiledLimit, units: number): LimitNumbers {
  const { burst: hasBurst } = ALGORITHMS[limit.algorithm]
  const scale = (whole: number) => (limit.units === 0 ? units : Math.max(1, Math.floor((whole * units) / limit.units)))
  const burst = hasBurst ? { burst: scale(limit.capacity) } : {}
  const numbers = numbersOf(
    rule.rule,
    { name, limit: units, window_seconds: limit.windowUs / 1e6, ...burst },
    limit.fact,
    limit.id,
  )
  const shards = Math.min(rule.rule.shards, units, burst.burst ?? units)
  const lease = limit.lease && { lease: { ...numbers.lease, ttlUs: limit.lease.ttlUs, always: true } }
  return { ...numbers, shards, ...lease }
}
