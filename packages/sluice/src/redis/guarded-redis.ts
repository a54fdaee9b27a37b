// One Redis with its guards. A single server has one; a Cluster has one for each primary, so that a primary which is
// dead or slow leaves the buckets of all others exact.

import type { BreakerState, Transition } from '../failure/breaker.ts'
import { type GuardedStore, type GuardOptions, guardStore } from '../failure/guard-store.ts'
import type { Place } from '../scatter/scatter-store.ts'
import type { BucketName, Store } from '../store/store.ts'
import type { BatchedStore } from './batched-store.ts'
import type { KeyNames } from './key.ts'
import type { RedisFacts } from './redis-facts.ts'
import { SLOTS } from './slot.ts'

/** `shard` is the address of a primary, where there are several. */
export type ShardTransition = Transition & { readonly store: string; readonly shard: string | undefined }

export type ShardState = { readonly store: string; readonly shard: string | undefined; readonly state: BreakerState }

export type GuardedRedisOptions = Omit<GuardOptions, 'onTransition'> & {
  readonly deadlineMs: number
  readonly names: KeyNames
  readonly onTransition?: ((transition: ShardTransition) => void) | undefined
}

/** Primaries come and go; those that serve no slot any more are forgotten when there are so many. */
const PRIMARIES_MAX = 1000

export class GuardedRedis {
  readonly ready: Promise<unknown>
  /** Everything that is to be read and closed. */
  readonly stores: () => readonly Store[]
  /** The one that takes whatever is asked; undefined of a Cluster, where each slot is a place of its own. */
  readonly whole: Store | undefined
  readonly name: string
  readonly #batched: BatchedStore
  readonly #shared: Store
  readonly #options: GuardedRedisOptions
  readonly #guards = new Map<string, GuardedStore>()
  #drillUntilMs = 0

  constructor(name: string, batched: BatchedStore, options: GuardedRedisOptions) {
    this.name = name
    this.#batched = batched
    this.#shared = unowned(batched)
    this.#options = options
    this.ready = batched.ready
    const whole = batched.primaryOf === undefined ? this.#guard('', batched) : undefined
    this.stores = () => {
      this.#settleReplaced()
      return whole === undefined ? [batched, ...this.#guards.values()] : [whole]
    }
    this.whole = whole
  }

  placeOf(bucket: BucketName): Place {
    if (this.whole !== undefined) return { id: this.name, store: this.whole }
    const slot = this.#options.names.groups?.slotOf(bucket) ?? 0
    const primary = this.#batched.primaryOf?.(slot) ?? ''
    return { id: `${this.name} ${slot}`, store: this.#guard(primary, this.#shared) }
  }

  states(): ShardState[] {
    this.#settleReplaced()
    return [...this.#guards].map(([shard, { breaker }]) => ({ ...this.#namesOf(shard), state: breaker }))
  }

  facts(): Promise<RedisFacts> {
    return this.#batched.facts()
  }

  drill(forMs: number): void {
    this.#drillUntilMs = performance.now() + forMs
    for (const guard of this.#guards.values()) guard.drill(forMs)
  }

  #guard(shard: string, inner: Store): Store {
    const known = this.#guards.get(shard)
    if (known !== undefined) return known
    const { deadlineMs, onTransition } = this.#options
    if (deadlineMs === 0) return inner
    if (this.#guards.size >= PRIMARIES_MAX) this.#forgetReplaced()
    const guard = guardStore(inner, {
      ...this.#options,
      ready: this.#batched.ready,
      onTransition: (transition) => onTransition?.({ ...transition, ...this.#namesOf(shard) }),
    })
    const drillMs = this.#drillUntilMs - performance.now()
    if (drillMs > 0) guard.drill(drillMs)
    this.#guards.set(shard, guard)
    return guard
  }

  /** Nobody asks a primary that has no slots any more, so nobody would find out that all is well without it. */
  #settleReplaced(): void {
    const failed = [...this.#guards].filter(([, { breaker }]) => breaker !== 'closed')
    if (failed.length === 0) return
    const serving = this.#serving()
    for (const [shard, guard] of failed) if (!serving.has(shard)) guard.replaced()
  }

  #forgetReplaced(): void {
    const serving = this.#serving()
    for (const [shard, guard] of this.#guards) {
      if (serving.has(shard)) continue
      this.#guards.delete(shard)
      void guard.close()
    }
  }

  #serving(): ReadonlySet<string> {
    const { primaryOf = () => '' } = this.#batched
    return new Set(Array.from({ length: SLOTS }, (_, slot) => primaryOf(slot)))
  }

  #namesOf(shard: string): { store: string; shard: string | undefined } {
    return { store: this.name, shard: shard === '' ? undefined : shard }
  }
}

/** For one of several guards: the store is read and closed by itself, once. */
function unowned(store: Store): Store {
  return {
    take: (take) => store.take(take),
    give: (gives, opId) => store.give(gives, opId),
    peek: (charges) => store.peek(charges),
    reset: (bucket) => store.reset(bucket),
    close: async () => {},
  }
}
