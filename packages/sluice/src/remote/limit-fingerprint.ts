// Fingerprint of a limit as the store applies it. A remote node sends it with each charge, so that the service detects
// a node with older or newer rules, although no numbers are sent.

import type { Limit } from '../algorithms/limit.ts'
import { fingerprintOf } from '../receipt.ts'

const known = new WeakMap<Limit, string>()

/** `limit` must be the limit that the store applies: with the margin for leases, if the rule is leased. */
export function limitFingerprint(limit: Limit): string {
  const before = known.get(limit)
  if (before !== undefined) return before
  const fingerprint = `${fingerprintOf(limit)}.${limit.holdTicks.toString(36)}`
  known.set(limit, fingerprint)
  return fingerprint
}
