// Reference store: the pure algorithms over a Map. Both real stores must agree with it.

import type { Charge, Clock, Give, GiveResult, Grant, IdempotencyKey, Limit, Store, Take, Taken } from 'sluice'
import type { Algorithm, ListAlgorithm } from '../../src/algorithms/algorithm.ts'
import { concurrency, holds, type PermitState } from '../../src/algorithms/concurrency.ts'
import { type CurrentState, migrateList, migratePacked } from '../../src/algorithms/edit.ts'
import { heldRoom } from '../../src/algorithms/held.ts'
import { isPacked, PACKED, type PackedLimit } from '../../src/algorithms/registry.ts'
import { slidingWindowLog } from '../../src/algorithms/sliding-window-log.ts'
import { isCharged } from '../../src/store/counterfactual.ts'
import { buildGrant, heldOf, isGivable, shortOf, unitsOf } from '../../src/store/grant.ts'
import { isBinding } from '../../src/store/store.ts'

type Written = { limit: Limit; state: unknown }
type Bucket = { id: string; algorithm: Algorithm<unknown>; current: CurrentState<unknown> }

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

  give(gives: readonly Give[], opId?: string, idempotencyKey?: IdempotencyKey): GiveResult {
    const nowUs = this.#clock.nowUs()
    if (idempotencyKey !== undefined && this.#given.has(idempotencyKey.id)) return 'repeated'
    if (idempotencyKey !== undefined) this.#given.add(idempotencyKey.id)
    for (const give of gives) {
      const { limit, owner, detail, units, bookedUs, settled } = give
      const { id, algorithm, current } = this.#bucket(limit, owner, detail, nowUs)
      if (!isGivable(current, give, algorithm.resetUs(limit, current.state, nowUs))) continue
      if (units < 0) algorithm.charge(limit, current.state, nowUs, -units, opId)
      else algorithm.refund(limit, current.state, nowUs, units, bookedUs, opId, settled)
      this.#written.set(id, { limit, state: current.state })
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
    const reserved = new Map<string, number>()
    const works = charges.map((charge) => {
      const { limit, owner, detail } = charge
      const id = idOf(limit, owner, detail)
      const isSeeded = charge.kind === 'counterfactual' && limit.seed !== undefined && !this.#written.has(id)
      const bucket = buckets.get(id) ?? { ...this.#bucket((isSeeded && limit.seed) || limit, owner, detail, nowUs), id }
      if (isSeeded && !buckets.has(id)) dropExpired(bucket, limit, nowUs)
      buckets.set(id, bucket)
      const { algorithm, current } = bucket
      const used = algorithm.used(limit, current.state, nowUs, opId) + (reserved.get(id) ?? 0)
      const short = current.stale ? 'stale_rules' : shortOf(limit, used, charge.min)
      const units = unitsOf(charge, used, short, heldRoom(limit, current.state))
      reserved.set(id, (reserved.get(id) ?? 0) + units)
      return { charge, bucket, short, units, isSeeded } as const
    })
    const granted = works.every(({ charge, short }) => short === false || !isBinding(charge.kind))
    const permits = works.filter(({ charge }) => charge.limit.algorithm === 'concurrency')
    const held = ({ bucket }: (typeof works)[number]) => holds(bucket.current.state as PermitState, opId ?? '', nowUs)
    const replayed = commit && permits.length > 0 && permits.every(held)
    const grants = works.map(({ charge, bucket, short, units, isSeeded }): Grant => {
      const { id, algorithm, current } = bucket
      const { limit } = charge
      const spent = commit && isCharged(charge, granted, works) ? units : 0
      const delayUs = spent > 0 ? algorithm.delayUs(limit, current.state) : 0
      if (spent > 0) algorithm.charge(limit, current.state, nowUs, spent, opId, heldOf(charge, spent))
      const stored = commit && (spent > 0 || ((current.moved || isSeeded) && !current.stale))
      if (stored) this.#written.set(id, { limit, state: current.state })
      const used = algorithm.used(limit, current.state, nowUs)
      return buildGrant(algorithm, charge, current.state, nowUs, used, short, spent, delayUs, opId)
    })
    return { granted, nowUs, grants, source: 'store', replayed }
  }

  /** Works on a copy; nothing changes until it is written back. */
  #bucket(limit: Limit, owner: string, detail: string, nowUs: number): Bucket {
    const id = idOf(limit, owner, detail)
    const written = this.#written.get(id)
    if (isPacked(limit)) {
      const algorithm: Algorithm<unknown> = PACKED[limit.algorithm]
      const state = { ...((written?.state ?? PACKED[limit.algorithm].fresh()) as { at: number; x: number; y: number }) }
      return { id, algorithm, current: migratePacked((written?.limit ?? limit) as PackedLimit, state, limit, nowUs) }
    }
    const algorithm: ListAlgorithm<unknown> = limit.algorithm === 'concurrency' ? concurrency : slidingWindowLog
    const state = structuredClone(written?.state) ?? algorithm.fresh()
    const current = migrateList(algorithm, written?.limit ?? limit, state, limit, nowUs)
    return { id, algorithm, current }
  }
}

/** Entries of a log or of permits that have expired do not pass to a seeded bucket. */
function dropExpired({ algorithm, current }: Bucket, limit: Limit, nowUs: number): void {
  if ('dropExpired' in algorithm) (algorithm as ListAlgorithm<unknown>).dropExpired(limit, current.state, nowUs)
}

function idOf(limit: Limit, owner: string, detail: string): string {
  return JSON.stringify([limit.id, limit.fact, owner, detail])
}
