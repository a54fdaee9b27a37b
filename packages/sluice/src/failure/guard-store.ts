// A store around a store that may fail: every take is answered inside its deadline, by the store or by the rules' own
// `on_fail`. Nothing is ever sent again. A reply that comes too late is settled once: units that nobody was told of go
// back.

import { givesBack } from '../algorithms/grant.ts'
import { compileLimit } from '../algorithms/limit.ts'
import { type Clock, systemClock, systemTimers, type Timers } from '../clock.ts'
import { LimiterError } from '../errors.ts'
import { type Maybe, promised } from '../maybe.ts'
import { giveQuietly } from '../store/give-quietly.ts'
import { memoryStore } from '../store/memory.ts'
import type { SyncStore } from '../store/parted-store.ts'
import {
  type BucketName,
  type Charge,
  type Give,
  type Grant,
  NOT_ASKED,
  type Once,
  type Returned,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'
import { StoreFullError } from '../store/store-full.ts'
import { Breaker, type BreakerState, type Transition } from './breaker.ts'
import { Deadline } from './deadline.ts'
import { FailurePolicy } from './policy.ts'
import { Prober } from './prober.ts'

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
  /** Charged by the probe that looks whether a failed store works again. */
  readonly probe?: Charge | undefined
}

export type Peek = (charges: readonly Charge[]) => Promise<Taken>

/** What is asked of the store, what is answered without it, and what is done with an answer that comes too late. */
type Question = {
  ask(): Taken | Promise<Taken>
  /** Asks again for buckets that exist, when the store has no room for those that do not. */
  askWithout?(absent: readonly boolean[]): Promise<Taken>
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

export const DEADLINE_MS = 100
const STARTING_MS = 1000
const WAITING_MAX = 20_000
const LOCAL_KEYS_MAX = 1_000_000

/** A bucket that refuses no probe, and that a probe has to write. */
export const PROBE: Charge = {
  limit: compileLimit({ id: 'sluice.probe', algorithm: 'fixed_window', units: 1_000_000, windowUs: 1_000_000 }),
  owner: '',
  detail: '',
  min: 1,
  max: 1,
  kind: 'enforce',
}

export function guardStore(store: Store, options: GuardOptions = {}): GuardedStore {
  return new GuardStore(store, options)
}

class GuardStore implements GuardedStore {
  readonly #store: Store
  readonly #replicas: Peek | undefined
  readonly #timers: Timers
  readonly #local: SyncStore
  readonly #policy: FailurePolicy
  readonly #breaker: Breaker
  readonly #deadline: Deadline
  readonly #prober: Prober
  readonly #probed: Charge
  readonly #counts = {
    timeouts: 0,
    failures: 0,
    policy_decisions: 0,
    late_replies: 0,
    late_returns: 0,
    full_decisions: 0,
  }
  #failedTurn = false
  #closed = false

  constructor(store: Store, options: GuardOptions) {
    const { deadlineMs = DEADLINE_MS, nodes = 1, onTransition = () => {} } = options
    this.#store = store
    this.#replicas = options.replicas
    this.#timers = options.timers ?? systemTimers
    this.#local = memoryStore({ maxKeys: LOCAL_KEYS_MAX, clock: options.clock ?? systemClock })
    this.#policy = new FailurePolicy(this.#local, nodes)
    this.#breaker = new Breaker(onTransition)
    const startMs = options.ready === undefined ? deadlineMs : Math.max(deadlineMs, STARTING_MS)
    this.#deadline = new Deadline(startMs, this.#timers, () => this.#failed())
    this.#prober = new Prober(() => this.#probe(), this.#timers, options.random ?? Math.random)
    this.#probed = options.probe ?? PROBE
    const started = () => {
      this.#deadline.limitMs = deadlineMs
    }
    options.ready?.then(started, started)
  }

  get breaker(): BreakerState {
    return this.#breaker.state
  }

  drill(forMs: number): void {
    this.#breaker.drill(this.#timers.nowMs(), forMs)
    if (this.#breaker.state === 'open') this.#prober.start()
  }

  replaced(): void {
    this.#prober.stop()
    this.#breaker.succeeded(this.#timers.nowMs())
  }

  /** Answers at once while the breaker is open. */
  takeSync({ charges }: Take): Taken | undefined {
    return this.#breaker.state === 'closed' ? undefined : this.#decided(this.#policy.decide(charges))
  }

  take(take: Take): Taken | Promise<Taken> {
    return this.#answer({
      ask: () => this.#store.take(take),
      askWithout: (absent) => this.#takeWithout(take, absent),
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

  /** Throws STORE_UNAVAILABLE when the store does not confirm it in time: with `once`, it can be repeated. */
  give(gives: readonly Give[], opId?: string, once?: Once): Promise<Returned> {
    if (this.#breaker.state === 'open') return Promise.reject(unavailable('nothing was given back'))
    const late = () => unavailable('no answer in time, so units may or may not have been given back')
    return this.#inTime(() => this.#store.give(gives, opId, once), late)
  }

  /** Throws STORE_UNAVAILABLE when the store does not confirm it in time. It may happen later, and can be repeated. */
  reset(bucket: BucketName): Promise<void> {
    if (this.#breaker.state === 'open') return Promise.reject(unavailable('nothing was reset'))
    const late = () => unavailable('no answer in time, so the bucket may or may not have been reset')
    return this.#inTime(() => this.#store.reset(bucket), late)
  }

  stats(): Readonly<Record<string, number>> {
    const waiting = this.#deadline.waiting
    return { ...this.#store.stats?.(), ...this.#counts, breaker_open: this.breaker === 'closed' ? 0 : 1, waiting }
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#prober.stop()
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
    const { askedMs: startMs = nowMs } = question
    const full = this.#deadline.waiting >= WAITING_MAX
    if (full || this.#breaker.state === 'open' || this.#deadline.isOver(startMs, nowMs)) {
      return this.#decided(question.instead())
    }
    return new Promise((resolve, reject) => {
      let decided: Taken | undefined
      let admitted = false
      const waiting = {
        startMs,
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
        this.#succeeded()
        resolve(taken)
      }
      const failed = (error: unknown) => {
        if (decided !== undefined) return
        if (error instanceof StoreFullError && question.askWithout !== undefined) {
          question.askWithout(error.absent).then(answered, failed)
          return
        }
        this.#deadline.done(waiting)
        if (isOutage(error)) {
          this.#countFailure()
          resolve(this.#decided(question.instead()))
        } else {
          this.#succeeded() // an error of this request alone is an answer
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

  /** `on_fail` decides about the buckets that the full store cannot make; all others are charged as usual. */
  async #takeWithout(take: Take, absent: readonly boolean[]): Promise<Taken> {
    this.#counts.full_decisions += 1
    const policy = this.#policy.decide(take.charges.filter((_, index) => absent[index]))
    const existing = take.charges.filter((_, index) => !absent[index])
    if (existing.length === 0) return policy
    if (!policy.granted) return merged(absent, policy, undefined)
    try {
      const taken = await this.#store.take({ ...take, charges: existing })
      if (!taken.granted) policy.undo?.()
      return merged(absent, policy, taken)
    } catch (error) {
      policy.undo?.()
      if (error instanceof StoreFullError) return this.#policy.decide(take.charges) // others vanished meanwhile
      throw error
    }
  }

  /** Settles within the deadline, as `work` does or with the error of `late`. */
  #inTime<T>(work: () => Maybe<T>, late: () => LimiterError): Promise<T> {
    return new Promise((resolve, reject) => {
      const waiting = { startMs: this.#timers.nowMs(), settled: false, expire: () => reject(late()) }
      const settle = (then: () => void) => {
        if (waiting.settled) return
        this.#deadline.done(waiting)
        then()
      }
      this.#deadline.add(waiting)
      promised(work).then(
        (answer) => settle(() => resolve(answer)),
        (error) => {
          if (isOutage(error)) this.#countFailure()
          settle(() => reject(error))
        },
      )
    })
  }

  /** Counts failures of one turn of the event loop once: they went out together. */
  #countFailure(): void {
    this.#counts.failures += 1
    if (this.#failedTurn) return
    this.#failedTurn = true
    this.#timers.soon(() => {
      this.#failedTurn = false
    })
    this.#failed()
  }

  #failed(): void {
    if (this.#closed) return
    this.#breaker.failed(this.#timers.nowMs())
    this.#prober.start()
  }

  #succeeded(): void {
    this.#breaker.succeeded(this.#timers.nowMs())
    if (this.#breaker.state === 'closed') this.#prober.stop()
  }

  /** Charges the probed bucket, which is what a check needs too. Resolves to whether that was answered in time. */
  #probe(): Promise<boolean> {
    const nowMs = this.#timers.nowMs()
    if (this.#breaker.isDrilled(nowMs)) return Promise.resolve(false)
    const waiting = { startMs: nowMs, settled: false, expire: () => {} }
    const answered = () => {
      if (waiting.settled || this.#closed) return false
      this.#deadline.done(waiting)
      this.#succeeded()
      return this.#breaker.state === 'closed' // unless a drill has begun meanwhile
    }
    const failed = (error: unknown) => {
      if (!isOutage(error)) return answered()
      if (!waiting.settled) this.#deadline.done(waiting)
      this.#countFailure()
      return false
    }
    this.#deadline.add(waiting)
    return promised(() => this.#store.take({ charges: [this.#probed] })).then(answered, failed)
  }

  /**
   * A late reply: a request that was let pass keeps what it needed; the rest was charged for nobody. So were permits:
   * whoever does not know of one will not release it.
   */
  #giveBack({ charges, op, resets }: Take, taken: Taken, admitted: boolean): void {
    if (resets !== undefined) return // its units stand for what it reset: without them, neither would count
    const needed = ({ kind, min, limit }: Charge) =>
      admitted && taken.granted && kind !== 'hold' && limit.algorithm !== 'concurrency' ? min : 0
    const gives = givesBack(charges, taken, needed)
    if (gives.length === 0) return
    this.#counts.late_returns += 1
    void giveQuietly(this.#store, gives, op?.id)
  }
}

/** One answer of two: `policy` for the absent buckets, `taken` for the others, unless `policy` has refused already. */
function merged(absent: readonly boolean[], policy: Taken, taken: Taken | undefined): Taken {
  const { source, nowUs } = policy
  const [decided, charged] = [policy.grants.values(), taken?.grants.values()]
  const grants = absent.map((isAbsent): Grant => {
    if (isAbsent) return { ...(decided.next().value ?? NOT_ASKED), at: { source, nowUs } }
    return charged?.next().value ?? NOT_ASKED
  })
  if (taken === undefined) return { ...policy, grants }
  return { ...taken, grants, undo: policy.undo }
}

function unavailable(reason: string): LimiterError {
  return new LimiterError('STORE_UNAVAILABLE', `the store does not answer: ${reason}`)
}

/** A value that cannot be read is no outage: asking again would not help, and others are not concerned. */
function isOutage(error: unknown): boolean {
  return error instanceof LimiterError ? error.code === 'STORE_UNAVAILABLE' : true
}
