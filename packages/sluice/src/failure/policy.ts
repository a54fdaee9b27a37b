// Failure policy of each rule (`on_fail`), applied while the store is unavailable: open admits, closed refuses, local
// counts in this process against the node share of the limit.

import { NodeShares } from '../algorithms/node-share.ts'
import { hasPermits } from '../algorithms/traits.ts'
import { givesBack } from '../store/grant.ts'
import type { SyncStore } from '../store/node-share-store.ts'
import { type Charge, type Grant, isBinding, type PolicyReason, type Taken } from '../store/store.ts'

/** The outage lasts for an unknown time: retry after a second. */
const CLOSED: Grant = {
  units: 0,
  short: 'now',
  remaining: 0,
  resetAfterUs: 1_000_000,
  retryAfterUs: 1_000_000,
  delayUs: 0,
}

export class FailurePolicy {
  readonly #local: SyncStore
  readonly #shares: NodeShares

  /** `local` holds the buckets of this node; `nodes` is the number of nodes. */
  constructor(local: SyncStore, nodes: number) {
    this.#local = local
    this.#shares = new NodeShares(nodes)
  }

  decide(charges: readonly Charge[], reason: PolicyReason): Taken {
    const local = localCharges(charges)
    if (local.length === 0) return decidedByPolicy(charges, reason)
    const shares = local.map((charge) => this.#shareOf(charge))
    const taken = this.#local.take({ charges: shares })
    const undo = () => this.#local.give(givesBack(shares, taken, () => 0))
    return { ...localDecision(charges, local, taken, reason), undo }
  }

  peek(charges: readonly Charge[], reason: PolicyReason): Taken {
    const local = localCharges(charges)
    if (local.length === 0) return decidedByPolicy(charges, reason)
    const peeked = this.#local.peek(local.map((charge) => this.#shareOf(charge)))
    return localDecision(charges, local, peeked, reason)
  }

  /** Charges the node share with the units needed now; nothing is leased ahead. */
  #shareOf(charge: Charge): Charge {
    const whole = charge.limit.shard?.whole ?? charge.limit // shards count as one bucket here
    return { ...charge, limit: this.#shares.of(whole), max: charge.min }
  }
}

/** Empty if a closed rule refuses the request: takes are all or nothing. */
function localCharges(charges: readonly Charge[]): readonly Charge[] {
  return charges.some(isClosed) ? [] : charges.filter(isLocal)
}

function decidedByPolicy(charges: readonly Charge[], policyReason: PolicyReason): Taken {
  const grants = charges.map((charge) => (isClosed(charge) ? CLOSED : open(charge)))
  return { granted: !charges.some(isClosed), nowUs: 0, grants, source: 'policy', policyReason, replayed: false }
}

/** `nowUs` is 0: the time of local buckets is not that of the store. */
function localDecision(
  charges: readonly Charge[],
  local: readonly Charge[],
  { granted, grants }: Taken,
  policyReason: PolicyReason,
): Taken {
  const all = charges.map((charge) => withoutUnits(grants[local.indexOf(charge)] ?? open(charge)))
  return { granted, nowUs: 0, grants: all, source: 'local', policyReason, replayed: false }
}

/** Hold charges are refused: only the store can grant leases. */
function isClosed({ limit, kind }: Charge): boolean {
  return kind === 'hold' || (limit.onFail === 'closed' && isBinding(kind))
}

/** Admits, and reports the whole capacity as remaining. */
function open({ limit }: Charge): Grant {
  return { units: 0, short: false, remaining: limit.capacity, resetAfterUs: 0, retryAfterUs: 0, delayUs: 0 }
}

/**
 * Permits are never counted locally: those that other nodes hold are unknown here. Nor are counterfactual charges: an
 * answer by policy is not compared.
 */
function isLocal({ limit, kind }: Charge): boolean {
  return limit.onFail === 'local' && !hasPermits(limit) && kind !== 'counterfactual'
}

/** Units of the node share cannot be given back to the store. */
function withoutUnits(grant: Grant): Grant {
  return { ...grant, units: 0 }
}
