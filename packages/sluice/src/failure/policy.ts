// What is answered when the store does not: each rule says for itself. Open lets the request pass, closed refuses it,
// local counts it in this process against this node's part of the limit.

import { givesBack } from '../algorithms/grant.ts'
import { LimitParts } from '../algorithms/parts.ts'
import type { SyncStore } from '../store/parted-store.ts'
import { type Charge, type Grant, isBinding, type Taken } from '../store/store.ts'

/** Nobody knows when the store is back; a second is a polite time to ask again. */
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
  readonly #parts: LimitParts

  /** `local` holds the buckets of this node, `nodes` is how many there are. */
  constructor(local: SyncStore, nodes: number) {
    this.#local = local
    this.#parts = new LimitParts(nodes)
  }

  decide(charges: readonly Charge[]): Taken {
    const counted = countedOf(charges)
    if (counted.length === 0) return uncounted(charges)
    const parts = counted.map((charge) => this.#part(charge))
    const taken = this.#local.take({ charges: parts })
    const undo = () => this.#local.give(givesBack(parts, taken, () => 0))
    return { ...answer(charges, counted, taken), undo }
  }

  /** What it would decide. */
  peek(charges: readonly Charge[]): Taken {
    const counted = countedOf(charges)
    if (counted.length === 0) return uncounted(charges)
    return answer(charges, counted, this.#local.peek(counted.map((charge) => this.#part(charge))))
  }

  /** What is needed and no more: nothing is held ahead of this node's own part. */
  #part(charge: Charge): Charge {
    const whole = charge.limit.shard?.whole ?? charge.limit // a split bucket is one bucket here
    return { ...charge, limit: this.#parts.of(whole), max: charge.min }
  }
}

/** All or nothing, as ever: a request that is refused by a closed rule costs nothing at a local one. */
function countedOf(charges: readonly Charge[]): readonly Charge[] {
  return charges.some(isClosed) ? [] : charges.filter(isCounted)
}

function uncounted(charges: readonly Charge[]): Taken {
  const grants = charges.map((charge) => (isClosed(charge) ? CLOSED : open(charge)))
  return { granted: !charges.some(isClosed), nowUs: 0, grants, source: 'policy', replayed: false }
}

/** `nowUs` is 0, as no store was asked: the time of local buckets is not that of the store. */
function answer(charges: readonly Charge[], counted: readonly Charge[], { granted, grants }: Taken): Taken {
  const all = charges.map((charge) => unbooked(grants[counted.indexOf(charge)] ?? open(charge)))
  return { granted, nowUs: 0, grants: all, source: 'local', replayed: false }
}

/** Units on lease can only be had of the store. */
function isClosed({ limit, kind }: Charge): boolean {
  return kind === 'hold' || (limit.onFail === 'closed' && isBinding(kind))
}

/** Whoever asks is let pass, so all there is is left. */
function open({ limit }: Charge): Grant {
  return { units: 0, short: false, remaining: limit.capacity, resetAfterUs: 0, retryAfterUs: 0, delayUs: 0 }
}

/** Permits are never counted locally: what is held elsewhere is not known here. */
function isCounted({ limit }: Charge): boolean {
  return limit.onFail === 'local' && limit.algorithm !== 'concurrency'
}

/** Units taken from this node's part are no units of the store: nothing of it can be given back there. */
function unbooked(grant: Grant): Grant {
  return { ...grant, units: 0 }
}
