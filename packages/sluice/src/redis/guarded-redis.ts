// One Redis with its guards. A single server has one; a Cluster has one for each primary, so that a primary which is
// dead or slow leaves the buckets of all others exact.

import type { BreakerState, Transition } from '../failure/breaker.ts'
import { type GuardedStore, type GuardOptions, guardStore, type Peek, PROBE } from '../failure/guard-store.ts'
import type { Place } from '../scatter/scatter-store.ts'
import type { BucketName, Charge, Store } from '../store/store.ts'
import type { BatchedStore } from './batched-store.ts'
import type { KeyNames } from './key.ts'
import type { RedisFacts } from './redis-facts.ts'
import { inPatience } from './unreachable.ts'

/** `server` is the address of a primary, where there are several. */
export type ServerTransition = Transition & { readonly store: string; readonly server: string | undefined }

export type ServerState = { readonly store: string; readonly server: string | undefined; readonly state: BreakerState }

export type GuardedRedisOptions = Omit<GuardOptions, 'onTransition'> & {
  readonly deadlineMs: number
  readonly names: KeyNames
  readonly onTransition?: ((transition: ServerTransition) => void) | undefined
}

/** Primaries come and go; those that serve no slot of ours any more are forgotten when there are so many. */
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
  readonly #replicas: Peek | undefined
  readonly #options: GuardedRedisOptions
  readonly #guards = new Map<string, GuardedStore>()
  #drillUntilMs = 0

  constructor(name: string, batched: BatchedStore, options: GuardedRedisOptions) {
    this.name = name
    this.#batched = batched
    this.#replicas = inTime(batched.peekReplicas, options.deadlineMs)
    this.#shared = unowned(batched, this.#replicas)
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
    return { id: `${this.name} ${slot}`, store: this.#guard(primary, this.#shared, slot) }
  }

  states(): ServerState[] {
    this.#settleReplaced()
    return [...this.#guards].map(([server, { breaker }]) => ({ ...this.#namesOf(server), state: breaker }))
  }

  facts(): Promise<RedisFacts> {
    return this.#batched.facts()
  }

  drill(forMs: number): void {
    this.#drillUntilMs = performance.now() + forMs
    for (const guard of this.#guards.values()) guard.drill(forMs)
  }

  /** `slot`: one that the server has, in a Cluster. */
  #guard(server: string, inner: Store, slot?: number): Store {
    const known = this.#guards.get(server)
    if (known !== undefined) return known
    const { deadlineMs, onTransition } = this.#options
    if (deadlineMs === 0) return inner
    if (this.#guards.size >= PRIMARIES_MAX) this.#forgetReplaced()
    const guard = guardStore(inner, {
      ...this.#options,
      ready: this.#batched.ready,
      replicas: this.#replicas,
      probe: this.#probe(slot),
      onTransition: (transition) => onTransition?.({ ...transition, ...this.#namesOf(server) }),
    })
    const drillMs = this.#drillUntilMs - performance.now()
    if (drillMs > 0) guard.drill(drillMs)
    this.#guards.set(server, guard)
    return guard
  }

  /** A bucket in that slot to probe with. */
  #probe(slot: number | undefined): Charge {
    const { groups } = this.#options.names
    if (groups === undefined || slot === undefined) return PROBE
    for (let number = 0; ; number += 1) {
      const probe = { ...PROBE, owner: `probe${number}` }
      if (groups.slotOf(probe) === slot) return probe
    }
  }

  /** Nobody asks a primary that has no slot of ours any more, so nobody would find out that all is well without it. */
  #settleReplaced(): void {
    const failed = [...this.#guards].filter(([, { breaker }]) => breaker !== 'closed')
    if (failed.length === 0) return
    const serving = this.#serving()
    for (const [server, guard] of failed) if (!serving.has(server)) guard.replaced()
  }

  #forgetReplaced(): void {
    const serving = this.#serving()
    for (const [server, guard] of this.#guards) {
      if (serving.has(server)) continue
      this.#guards.delete(server)
      void guard.close()
    }
  }

  #serving(): ReadonlySet<string> {
    const { primaryOf = () => '' } = this.#batched
    const { slots = [0] } = this.#options.names.groups ?? {} // a single server is asked for whatever there is
    return new Set(slots.map(primaryOf))
  }

  #namesOf(server: string): { store: string; server: string | undefined } {
    return { store: this.name, server: server === '' ? undefined : server }
  }
}

/** Replicas that do not answer are not waited for longer than a primary is: then that is asked. */
function inTime(peek: Peek | undefined, deadlineMs: number): Peek | undefined {
  return peek && ((charges) => inPatience(peek(charges), deadlineMs === 0 ? undefined : deadlineMs))
}

/** For one of several guards: the store is read and closed by itself, once. */
function unowned(store: Store, replicas: Peek | undefined): Store {
  return {
    take: (take) => store.take(take),
    give: (gives, opId, once) => store.give(gives, opId, once),
    peek: (charges, mayBeStale) => {
      if (!mayBeStale || replicas === undefined) return store.peek(charges)
      return replicas(charges).catch(() => store.peek(charges))
    },
    reset: (bucket) => store.reset(bucket),
    close: async () => {},
  }
}
