// A store around a store that may fail: every take is answered inside its deadline, by the store or by the rules' own
// `on_fail`. Nothing is ever sent again. A reply that comes too late is settled once: units that nobody was told of go
// back.

import { givesBack } from '../algorithms/grant.ts'
import { type Clock, systemClock, systemTimers, type Timers } from '../clock.ts'
import { LimiterError } from '../errors.ts'
import { giveQuietly } from '../store/give-quietly.ts'
import { memoryStore } from '../store/memory.ts'
import type { SyncStore } from '../store/parted-store.ts'
import type { BucketName, Charge, Give, Store, Take, Taken } from '../store/store.ts'
import { Breaker, type BreakerState, type Transition } from './breaker.ts'
import { Deadline } from './deadline.ts'
import { FailurePolicy } from './policy.ts'

export type GuardOptions = {
  /** How long a take may wait for the store. */
  readonly deadlineMs?: number | undefined
  /** How many nodes share the limits, for rules that count locally while the store is away. */
  readonly nodes?: number | undefined
  /** Told when the store is given up, and when it is back. */
  readonly onTransition?: ((transition: Transition) => void) | undefined
  /** Settles when the store can be asked at all: until then a take waits longer, for what takes long only once. */
  readonly ready?: Promise<unknown> | undefined
  /** Of rules that count locally. */
  readonly clock?: Clock | undefined
  readonly timers?: Timers | undefined
  readonly random?: (() => number) | undefined
  /** Where answers may be had that are perhaps behind, instead of the store. Says nothing about the store itself. */
  readonly replicas?: Peek | undefined
}

export type Peek = (charges: readonly Charge[]) => Promise<Taken>

/** What is asked of the store, what is answered without it, and what is done with an answer that comes too late. */
type Question = {
  ask(): Taken | Promise<Taken>
  instead(): Taken
  late(taken: Taken, admitted: boolean): void
  /** When whoever asks began to wait, if that was before. */
  readonly askedMs: number | undefined
}

export type GuardedStore = Store & {
  readonly breaker: BreakerState
  /** Leaves the store alone for a while, on purpose. */
  drill(forMs: number): void
  /** Another one has taken over what the store was for: its failures are past. */
  replaced(): void
}

export const DEADLINE_MS = 15
const STARTING_MS = 1000
const WAITING_MAX = 20_000
const LOCAL_KEYS_MAX = 1_000_000

export function guardStore(store: Store, options: GuardOptions = {}): GuardedStore {
  return new GuardStore(store, options)
}

class GuardStore implements GuardedStore {
  readonly #store: Store
  readonly #replicas: Peek | undefined
  readonly #timers: Timers
  #deadlineMs: number
  readonly #local: SyncStore
  readonly #policy: FailurePolicy
  readonly #breaker: Breaker
  readonly #deadline: Deadline
  readonly #counts = { timeouts: 0, failures: 0, policy_decisions: 0, late_replies: 0, late_returns: 0 }
  #failedTurn = false

  constructor(store: Store, options: GuardOptions) {
    const { deadlineMs = DEADLINE_MS, nodes = 1, onTransition = () => {} } = options
    this.#store = store
    this.#replicas = options.replicas
    this.#timers = options.timers ?? systemTimers
    this.#deadlineMs = options.ready === undefined ? deadlineMs : Math.max(deadlineMs, STARTING_MS)
    this.#local = memoryStore({ maxKeys: LOCAL_KEYS_MAX, clock: options.clock ?? systemClock })
    this.#policy = new FailurePolicy(this.#local, nodes)
    this.#breaker = new Breaker(onTransition, options.random ?? Math.random)
    this.#deadline = new Deadline(this.#timers, () => this.#breaker.failed(this.#timers.nowMs()))
    const started = () => {
      this.#deadlineMs = deadlineMs
      this.#deadline.hasten(this.#timers.nowMs() + deadlineMs)
    }
    options.ready?.then(started, started)
  }

  get breaker(): BreakerState {
    return this.#breaker.state
  }

  drill(forMs: number): void {
    this.#breaker.drill(this.#timers.nowMs(), forMs)
  }

  replaced(): void {
    this.#breaker.succeeded(this.#timers.nowMs())
  }

  /** While the store is left alone, nobody has to wait. */
  takeSync({ charges }: Take): Taken | undefined {
    if (this.#breaker.state === 'closed' || !this.#breaker.leavesAlone(this.#timers.nowMs())) return undefined
    return this.#decided(this.#policy.decide(charges))
  }

  take(take: Take): Taken | Promise<Taken> {
    return this.#answer({
      ask: () => this.#store.take(take),
      instead: () => this.#policy.decide(take.charges),
      late: (taken, admitted) => this.#giveBack(take, taken, admitted),
      askedMs: take.askedMs,
    })
  }

  peek(charges: readonly Charge[], mayBeStale = false): Taken | Promise<Taken> {
    if (mayBeStale && this.#replicas !== undefined) return this.#replicas(charges).catch(() => this.peek(charges))
    return this.#answer({
      ask: () => this.#store.peek(charges),
      instead: () => this.#policy.peek(charges),
      late: () => {},
      askedMs: undefined,
    })
  }

  /** At most once, and nobody waits for it longer than for a take: units that are lost on the way err low. */
  async give(gives: readonly Give[], opId?: string): Promise<void> {
    if (this.#breaker.state === 'open') return
    const given = Promise.resolve(this.#store.give(gives, opId)).catch((error) => {
      if (!isOutage(error)) throw error
      this.#failed()
    })
    const patience = new Promise<void>((resolve) => void this.#timers.after(this.#deadlineMs, resolve))
    await Promise.race([given, patience])
  }

  async reset(bucket: BucketName): Promise<void> {
    await this.#store.reset(bucket)
  }

  stats(): Readonly<Record<string, number>> {
    const waiting = this.#deadline.waiting
    return { ...this.#store.stats?.(), ...this.#counts, breaker_open: this.breaker === 'closed' ? 0 : 1, waiting }
  }

  async close(): Promise<void> {
    this.#deadline.expireAll()
    await this.#store.close()
  }

  #decided(taken: Taken): Taken {
    this.#counts.policy_decisions += 1
    this.#breaker.answered += 1
    return taken
  }

  /** The store's answer, or that of the policy once the time is up or when it is not worth asking. */
  #answer(question: Question): Taken | Promise<Taken> {
    const nowMs = this.#timers.nowMs()
    const dueMs = (question.askedMs ?? nowMs) + this.#deadlineMs
    const full = this.#deadline.waiting >= WAITING_MAX
    if (full || dueMs <= nowMs || !this.#breaker.admits(nowMs)) return this.#decided(question.instead())
    return new Promise((resolve, reject) => {
      let decided: Taken | undefined
      let admitted = false
      const waiting = {
        dueMs,
        settled: false,
        expire: () => {
          this.#counts.timeouts += 1
          const taken = this.#decided(question.instead())
          admitted = taken.granted
          const undo = () => {
            admitted = false
            taken.undo?.()
          }
          decided = { ...taken, undo }
          resolve(decided)
        },
      }
      const answered = (taken: Taken) => {
        if (decided !== undefined) {
          this.#counts.late_replies += 1
          question.late(taken, admitted)
          return
        }
        this.#deadline.done(waiting)
        this.#breaker.succeeded(this.#timers.nowMs())
        resolve(taken)
      }
      const failed = (error: unknown) => {
        if (decided !== undefined) return
        this.#deadline.done(waiting)
        if (isOutage(error)) {
          this.#failed()
          resolve(this.#decided(question.instead()))
        } else {
          this.#breaker.succeeded(this.#timers.nowMs()) // it did answer
          reject(error)
        }
      }
      this.#deadline.add(waiting)
      try {
        Promise.resolve(question.ask()).then(answered, failed)
      } catch (error) {
        failed(error)
      }
    })
  }

  /** All that fails in one turn of the event loop went out together: it counts once. */
  #failed(): void {
    this.#counts.failures += 1
    if (this.#failedTurn) return
    this.#failedTurn = true
    this.#timers.soon(() => {
      this.#failedTurn = false
    })
    this.#breaker.failed(this.#timers.nowMs())
  }

  /**
   * A late reply: a request that was let pass keeps what it needed; the rest was charged for nobody. So were permits:
   * whoever does not know of one will not release it.
   */
  #giveBack({ charges, op }: Take, taken: Taken, admitted: boolean): void {
    const needed = ({ kind, min, limit }: Charge) =>
      admitted && taken.granted && kind !== 'hold' && limit.algorithm !== 'concurrency' ? min : 0
    const gives = givesBack(charges, taken, needed)
    if (gives.length === 0) return
    this.#counts.late_returns += 1
    void giveQuietly(this.#store, gives, op?.id)
  }
}

/** A value that cannot be read is no outage: asking again would not help, and others are not concerned. */
function isOutage(error: unknown): boolean {
  return error instanceof LimiterError ? error.code === 'STORE_UNAVAILABLE' : true
}
