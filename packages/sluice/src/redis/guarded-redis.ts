// A Redis with its guards (deadline and circuit breaker): one for a single server, one per primary for a Cluster, so
// that a dead or slow primary affects no bucket of the others.

import { type Clock, systemTimers } from '../clock.ts'
import type { BreakerState, Transition } from '../failure/breaker.ts'
import { type GuardedStore, guardStore, type Peek, PROBE } from '../failure/guard-store.ts'
import type { Target } from '../scatter/scatter-store.ts'
import type { BucketName, Charge, Store } from '../store/store.ts'
import type { BatchedStore } from './batched-store.ts'
import type { ServerName } from './batcher.ts'
import type { KeyNames } from './key.ts'
import type { RedisInfo } from './redis-info.ts'
import { withTimeout } from './unreachable.ts'

export type ServerTransition = Transition & ServerName

/** `timeouts`: checks that the server did not answer within the deadline. */
export type ServerState = ServerName & { readonly state: BreakerState; readonly timeouts: number }

export type GuardedRedisOptions = {
  /** 0: no guards. */
  readonly deadlineMs: number
  readonly nodes: number
  readonly names: KeyNames
  readonly clock: Clock | undefined
  readonly onTransition: (transition: ServerTransition) => void
}

/** Cap on guards. Those of primaries that serve none of our slots are dropped first. */
const PRIMARIES_MAX = 1000

export class GuardedRedis {
  readonly ready: Promise<unknown>
  /** All stores, for stats() and close(). */
  readonly stores: () => readonly Store[]
  /** The guarded store of a single server; undefined for a Cluster, where each slot is a target. */
  readonly single: Store | undefined
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
    this.#replicas = withDeadline(batched.peekReplicas, options.deadlineMs)
    this.#shared = withoutClose(batched, this.#replicas)
    this.#options = options
    this.ready = batched.ready
    const single = batched.primaryOf === undefined ? this.#guard('', batched) : undefined
    this.stores = () => {
      this.#closeReplacedBreakers()
      return single === undefined ? [batched, ...this.#guards.values()] : [single]
    }
    this.single = single
  }

  targetOf(bucket: BucketName): Target {
    if (this.single !== undefined) return { id: this.name, store: this.single }
    const slot = this.#options.names.groups?.slotOf(bucket) ?? 0
    const primary = this.#batched.primaryOf?.(slot) ?? ''
    return { id: `${this.name} ${slot}`, store: this.#guard(primary, this.#shared, slot) }
  }

  states(): ServerState[] {
    this.#closeReplacedBreakers()
    return [...this.#guards].map(([server, guard]) => {
      return { ...this.#namesOf(server), state: guard.breaker, timeouts: guard.stats?.().timeouts ?? 0 }
    })
  }

  lastUs(): number {
    return this.#batched.lastUs()
  }

  info(): Promise<RedisInfo> {
    return this.#batched.info()
  }

  drill(forMs: number): void {
    this.#drillUntilMs = performance.now() + forMs
    for (const guard of this.#guards.values()) guard.drill(forMs)
  }

  /** Probes each server that had no request for this long, in a Cluster also primaries that never had one. */
  probeIdle(idleMs: number): void {
    for (const slot of this.#options.names.groups?.slots ?? []) {
      const primary = this.#batched.primaryOf?.(slot) ?? ''
      if (primary !== '') this.#guard(primary, this.#shared, slot)
    }
    for (const guard of this.#guards.values()) guard.probeIdle(idleMs)
  }

  /** `slot`: a slot that the server serves, in a Cluster. */
  #guard(server: string, inner: Store, slot?: number): Store {
    const known = this.#guards.get(server)
    if (known !== undefined) return known
    const { deadlineMs, nodes, clock, onTransition } = this.#options
    if (deadlineMs === 0) return inner
    if (this.#guards.size >= PRIMARIES_MAX) this.#forgetReplaced()
    const guard = guardStore(inner, {
      deadlineMs,
      nodes,
      clock,
      ready: this.#batched.ready,
      replicas: this.#replicas,
      probe: this.#probe(slot),
      idleProbe: (bucket) => this.#batched.probeIdle(bucket),
      onTransition: (transition) => onTransition({ ...transition, ...this.#namesOf(server) }),
    })
    const drillMs = this.#drillUntilMs - performance.now()
    if (drillMs > 0) guard.drill(drillMs)
    this.#guards.set(server, guard)
    return guard
  }

  /** A probe charge whose bucket is in the slot. */
  #probe(slot: number | undefined): Charge {
    const { groups } = this.#options.names
    if (groups === undefined || slot === undefined) return PROBE
    for (let number = 0; ; number += 1) {
      const probe = { ...PROBE, owner: `probe${number}` }
      if (groups.slotOf(probe) === slot) return probe
    }
  }

  /** Closes the breakers of primaries that no longer serve any of our slots: their probes would never succeed. */
  #closeReplacedBreakers(): void {
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
    const { slots = [0] } = this.#options.names.groups ?? {} // a single server serves all
    return new Set(slots.map(primaryOf))
  }

  #namesOf(server: string): ServerName {
    return { store: this.name, server: server === '' ? undefined : server }
  }
}

/** Applies the deadline to reads from replicas; after it, the primary is read. */
function withDeadline(peek: Peek | undefined, deadlineMs: number): Peek | undefined {
  return (
    peek &&
    ((charges, expiresMs) => {
      const leftMs = expiresMs === undefined ? undefined : expiresMs - systemTimers.nowMs()
      const ms = deadlineMs === 0 ? leftMs : Math.min(deadlineMs, leftMs ?? deadlineMs)
      return withTimeout(peek(charges), ms)
    })
  )
}

/** The store for one of several guards, which must not close it or count its stats. */
function withoutClose(store: Store, replicas: Peek | undefined): Store {
  return {
    take: (take) => store.take(take),
    give: (gives, opId, idempotencyKey) => store.give(gives, opId, idempotencyKey),
    peek: (charges, mayBeStale, expiresMs) => {
      if (!mayBeStale || replicas === undefined) return store.peek(charges)
      return replicas(charges, expiresMs).catch(() => store.peek(charges))
    },
    reset: (bucket) => store.reset(bucket),
    close: async () => {},
  }
}
