// Options of createLimiter, and their validation.

import { IPV6_PREFIX_DEFAULT } from './canonical/address.ts'
import { type Clock, systemClock } from './clock.ts'
import { optionInvalid } from './errors.ts'
import { type KnownFields, requireKnown, requireStore } from './known-fields.ts'
import type { Bypass } from './rules/bypass.ts'
import type { RulesInput } from './rules/rule-input.ts'
import type { Store } from './store/store.ts'

export type LimiterOptions = {
  /** Rules, in any supported spelling. For data of type unknown, such as a parsed file: `parseRules(data)`. */
  readonly rules: RulesInput
  /** Store of the buckets; the memory of this process by default. */
  readonly store?: Store | undefined
  /** Version of the rule set; by default the first is 1 and each `setRules` adds 1. */
  readonly version?: number | undefined
  /** Layer of this limiter: rules whose `enforce_at` names the other layer are skipped. */
  readonly layer?: 'edge' | 'service' | undefined
  /** Prefix length of an IPv6 client: all addresses of one network share a bucket. Default: 64. */
  readonly ipv6Prefix?: number | undefined
  /** Used only for `expires_at` and hot-key rates; buckets use store time. */
  readonly clock?: Clock | undefined
  /**
   * Verifies a bypass token (`Subject.bypassToken`): undefined if it is unknown or expired. Synchronous, and must not
   * throw. `sluice/bypass` has one for tokens that are stored as hashes.
   */
  readonly bypass?: ((token: string) => Bypass | undefined) | undefined
}

const OPTIONS: KnownFields<LimiterOptions> = {
  rules: true,
  store: true,
  version: true,
  layer: true,
  ipv6Prefix: true,
  clock: true,
  bypass: true,
}

/** An invalid layer would silently skip rules, and an invalid prefix would merge clients. */
export function checkOptions(options: LimiterOptions): void {
  requireKnown(options, OPTIONS, '{ rules: […] }')
  const { layer, ipv6Prefix = IPV6_PREFIX_DEFAULT, store, version = 1, clock = systemClock, bypass } = options
  requireStore('store', store)
  if (layer !== undefined && layer !== 'edge' && layer !== 'service') {
    throw optionInvalid('layer', layer, 'use "edge" or "service", or leave it out')
  }
  if (!Number.isInteger(ipv6Prefix) || ipv6Prefix < 1 || ipv6Prefix > 128) {
    throw optionInvalid('ipv6Prefix', ipv6Prefix, 'give a number of bits from 1 to 128')
  }
  if (!Number.isSafeInteger(version) || version < 0) {
    throw optionInvalid('version', version, 'give a whole number of at least 0')
  }
  if (typeof clock?.nowUs !== 'function') throw optionInvalid('clock', clock, 'pass an object with nowUs()')
  if (bypass !== undefined && typeof bypass !== 'function') {
    throw optionInvalid('bypass', bypass, 'pass a function that returns the bypass of a token, or undefined')
  }
}

/** Throws OPTION_INVALID unless it is a number of units to refund. */
export function checkUnits(units: number | undefined): void {
  if (units === undefined || (Number.isSafeInteger(units) && units > 0)) return
  throw optionInvalid('units', units, 'give a whole number above 0')
}
