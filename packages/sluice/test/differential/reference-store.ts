// The specification as a store: the pure algorithms over a Map, written to be read. Both real stores must agree with
// it.

import type { Charge, Clock, Give, Given, Grant, Limit, Once, Store, Take, Taken } from 'sluice'
import type { Algorithm, ListAlgorithm } from '../../src/algorithms/algorithm.ts'
import { concurrency, holds, type PermitState } from '../../src/algorithms/concurrency.ts'
import { isGivable, type Settled, settleList, settlePacked } from '../../src/algorithms/edit.ts'
import { grantOf, heldOf, shortOf, unitsOf } from '../../src/algorithms/grant.ts'
import { heldRoom } from '../../src/algorithms/held.ts'
import { isPacked, PACKED, type PackedLimit } from '../../src/algorithms/registry.ts'
import { slidingWindowLog } from '../../src/algorithms/sliding-window-log.ts'
import { isBinding } from '../../src/store/store.ts'

type Written = { limit: Limit; state: unknown }
type Bucket = { id: string; algorithm: Algorithm<unknown>; settled: Settled<unknown> }

export class ReferenceStore implements Store {
  readonly #written = new Map<string, Written>()
  readonly #given = new Set<string>()
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  take({ charges, op, gives = [] }: Take): Taken {
    this.give(gives)
    return this.#run(charges, op?.id, true)
  }

  peek(charges: readonly Charge[]): Taken {
    return this.#run(charges, undefined, false)
  }

  give(gives: readonly Give[], opId?: string, once?: Once): Given {
    const nowUs = this.#clock.nowUs()
    if (once !== undefined && this.#given.has(once.id)) return 'repeated'
    if (once !== undefined) this.#given.add(once.id)
    for (const give of gives) {
      const { limit, owner, detail, units, bookedUs, settled: offLease } = give
      const { id, algorithm, settled } = this.#bucket(limit, owner, detail, nowUs)
      if (!isGivable(settled, give, algorithm.resetUs(limit, settled.state, nowUs))) continue
      if (units < 0) algorithm.charge(limit, settled.state, nowUs, -units, opId)
      else algorithm.refund(limit, settled.state, nowUs, units, bookedUs, opId, offLease)
      this.#written.set(id, { limit, state: settled.state })
    }
    return 'given'
  }

  reset({ limit, owner, detail }: Charge): void {
    this.#written.delete(idOf(limit, owner, detail))
  }

  async close(): Promise<void> {}

  #run(charges: readonly Charge[], opId: string | undefined, commit: boolean): Taken {
    const nowUs = this.#clock.nowUs()
    const buckets = new Map<string, Bucket>()
    const spoken = new Map<string, number>()
    const works = charges.map((charge) => {
      const { limit, owner, detail } = charge
      const id = idOf(limit, owner, detail)
      const bucket = buckets.get(id) ?? this.#bucket(limit, owner, detail, nowUs)
      buckets.set(id, bucket)
      const { algorithm, settled } = bucket
      const used = algorithm.used(limit, settled.state, nowUs, opId) + (spoken.get(id) ?? 0)
      const short = settled.stale ? 'stale_rules' : shortOf(limit, used, charge.min)
      const units = unitsOf(charge, used, short, heldRoom(limit, settled.state))
      spoken.set(id, (spoken.get(id) ?? 0) + units)
      return { charge, bucket, short, units } as const
    })
    const granted = works.every(({ charge, short }) => short === false || !isBinding(charge.kind))
    const permits = works.filter(({ charge }) => charge.limit.algorithm === 'concurrency')
    const held = ({ bucket }: (typeof works)[number]) => holds(bucket.settled.state as PermitState, opId ?? '', nowUs)
    const replayed = commit && permits.length > 0 && permits.every(held)
    const grants = works.map(({ charge, bucket, short, units }): Grant => {
      const { id, algorithm, settled } = bucket
      const { limit } = charge
      const spent = commit && (granted || charge.kind === 'force') ? units : 0
      const delayUs = spent > 0 ? algorithm.delayUs(limit, settled.state) : 0
      if (spent > 0) algorithm.charge(limit, settled.state, nowUs, spent, opId, heldOf(charge, spent))
      const stored = commit && (spent > 0 || (settled.moved && !settled.stale))
      if (stored) this.#written.set(id, { limit, state: settled.state })
      const used = algorithm.used(limit, settled.state, nowUs)
      return grantOf(algorithm, charge, settled.state, nowUs, used, short, spent, delayUs, opId)
    })
    return { granted, nowUs, grants, source: 'store', replayed }
  }

  /** Everything is worked out on a copy: what is not written back has not happened. */
  #bucket(limit: Limit, owner: string, detail: string, nowUs: number): Bucket {
    const id = idOf(limit, owner, detail)
    const written = structuredClone(this.#written.get(id))
    if (isPacked(limit)) {
      const algorithm: Algorithm<unknown> = PACKED[limit.algorithm]
      const state = (written?.state ?? PACKED[limit.algorithm].fresh()) as { at: number; x: number; y: number }
      return { id, algorithm, settled: settlePacked((written?.limit ?? limit) as PackedLimit, state, limit, nowUs) }
    }
    const algorithm: ListAlgorithm<unknown> = limit.algorithm === 'concurrency' ? concurrency : slidingWindowLog
    const settled = settleList(algorithm, written?.limit ?? limit, written?.state ?? algorithm.fresh(), limit, nowUs)
    return { id, algorithm, settled }
  }
}

function idOf(limit: Limit, owner: string, detail: string): string {
  return JSON.stringify([limit.id, limit.fact, owner, detail])
}
