// Wraps a store with a deadline and a circuit breaker. Every take settles within the deadline, decided by the store or
// by `on_fail` of the rules. Nothing is retried. Units charged by a late reply are given back, unless the request
// was admitted.

import { compileLimit } from '../algorithms/limit.ts'
import { hasPermits } from '../algorithms/traits.ts'
import { type Clock, systemClock, systemTimers, type Timers } from '../clock.ts'
import { LimiterError } from '../errors.ts'
import { type MaybePromise, toPromise } from '../maybe-promise.ts'
import { giveQuietly } from '../store/give-quietly.ts'
import { givesBack } from '../store/grant.ts'
import { memoryStore } from '../store/memory.ts'
import type { SyncStore } from '../store/node-share-store.ts'
import type { SomeStats } from '../store/stats.ts'
import {
  type BucketName,
  type Charge,
  type Give,
  type GiveReply,
  type Grant,
  type IdempotencyKey,
  NOT_CHARGED,
  POLICY_REASONS,
  type PolicyReason,
  type SpentTime,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'
import { StoreFullError } from '../store/store-full-error.ts'
import { Breaker, type BreakerState, type Transition } from './breaker.ts'
import { Deadline, type Waiting } from './deadline.ts'
import { FailurePolicy } from './policy.ts'
import { Prober } from './prober.ts'

export type GuardOptions = {
  /** Longest wait of a request for the store. */
  readonly deadlineMs?: number | undefined
  /** Number of nodes that share the limits, for `on_fail: local`. */
  readonly nodes?: number | undefined
  /** Called when the circuit breaker opens or closes. */
  readonly onTransition?: ((transition: Transition) => void) | undefined
  /** Settles after the first attempt to connect. Until then the deadline is at least a second, without stalls. */
  readonly ready?: Promise<unknown> | undefined
  /** Clock of `on_fail: local`. */
  readonly clock?: Clock | undefined
  readonly timers?: Timers | undefined
  readonly random?: (() => number) | undefined
  /** Reads from replicas, for peeks that may be stale. Does not affect the circuit breaker. */
  readonly replicas?: Peek | undefined
  /** Charge that probes make. */
  readonly probe?: Charge | undefined
  /** Probes an idle store, without a trace in its figures. Default: its peek. */
  readonly idleProbe?: ((bucket: BucketName) => MaybePromise<unknown>) | undefined
}

export type Peek = (charges: readonly Charge[], expiresMs?: number) => Promise<Taken>

/** A request to the store, its fallback, and the handling of a late reply. */
type GuardedRequest = {
  send(onSent: () => void): Taken | Promise<Taken>
  /** Repeats the request for the buckets that exist, after the store reported that it is full. */
  sendWithout?(absent: readonly boolean[]): Promise<Taken>
  fallback(reason: PolicyReason): Taken
  onLateReply(taken: Taken, admitted: boolean): void
  readonly spent: SpentTime | undefined
  readonly expiresMs: number | undefined
}

export type GuardedStore = Store & {
  readonly breaker: BreakerState
  /** Opens the circuit breaker for a while, to rehearse an outage. */
  drill(forMs: number): void
  /** Closes the circuit breaker: another server has replaced this one. */
  replaced(): void
  /** Probes the store if it had no request for this long: an outage opens the circuit breaker without traffic, too. */
  probeIdle(idleMs: number): void
  /**
   * Runs another request to the store under the deadline and the breaker. Throws STORE_UNAVAILABLE, or
   * DEADLINE_EXCEEDED if the caller gives up before.
   */
  request<T>(work: () => Promise<T>, expiresMs?: number): Promise<T>
}

export const DEADLINE_MS = 100
const STARTING_MS = 1000
const WAITING_MAX = 20_000
const LOCAL_KEYS_MAX = 1_000_000

/** Default charge of probes: writes a bucket that is never exhausted. */
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
  readonly #probeCharge: Charge
  readonly #idleProbe: NonNullable<GuardOptions['idleProbe']>
  readonly #counts = {
    timeouts: 0,
    failures: 0,
    late_replies: 0,
    late_returns: 0,
  } satisfies SomeStats
  /** Requests decided by `on_fail`, by reason. */
  readonly #byReason = new Map<PolicyReason, number>(POLICY_REASONS.map((reason) => [reason, 0]))
  #failedThisTurn = false
  #closed = false

  constructor(store: Store, options: GuardOptions) {
    const { deadlineMs = DEADLINE_MS, nodes = 1, onTransition = () => {} } = options
    this.#store = store
    this.#replicas = options.replicas
    this.#timers = options.timers ?? systemTimers
    this.#local = memoryStore({ maxKeys: LOCAL_KEYS_MAX, clock: options.clock ?? systemClock })
    this.#policy = new FailurePolicy(this.#local, nodes)
    this.#breaker = new Breaker(onTransition)
    const startMs = options.ready === undefined ? undefined : Math.max(deadlineMs, STARTING_MS)
    this.#deadline = new Deadline(deadlineMs, this.#timers, () => this.#failed(), startMs)
    this.#prober = new Prober(() => this.#probe(), this.#timers, options.random ?? Math.random)
    this.#probeCharge = options.probe ?? PROBE
    this.#idleProbe = options.idleProbe ?? (() => store.peek([this.#probeCharge]))
    const started = () => this.#deadline.started()
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

  probeIdle(idleMs: number): void {
    if (this.#closed || this.#breaker.state === 'open' || this.#timers.nowMs() - this.#deadline.usedMs < idleMs) return
    this.request(async () => this.#idleProbe(this.#probeCharge)).catch(() => {}) // a failure starts the prober
  }

  /** Decides without the store while the breaker is open; otherwise undefined. */
  takeSync({ charges }: Take): Taken | undefined {
    if (this.#breaker.state === 'closed') return undefined
    const reason = this.#openReason()
    return this.#countPolicy(this.#policy.decide(charges, reason), reason)
  }

  take(take: Take): Taken | Promise<Taken> {
    return this.#guarded({
      send: (onSent) => this.#store.take({ ...take, onSent }),
      sendWithout: (absent) => this.#takeWithout(take, absent),
      fallback: (reason) => this.#policy.decide(take.charges, reason),
      onLateReply: (taken, admitted) => this.#settleLate(take, taken, admitted),
      spent: take.spent,
      expiresMs: take.expiresMs,
    })
  }

  peek(charges: readonly Charge[], mayBeStale = false, expiresMs?: number): Taken | Promise<Taken> {
    if (mayBeStale && this.#replicas !== undefined)
      return this.#replicas(charges, expiresMs).catch(() => this.peek(charges, false, expiresMs))
    return this.#guarded({
      send: () => this.#store.peek(charges),
      fallback: (reason) => this.#policy.peek(charges, reason),
      onLateReply: () => {},
      spent: undefined,
      expiresMs,
    })
  }

  async request<T>(work: () => Promise<T>, expiresMs?: number): Promise<T> {
    if (this.#breaker.state === 'open') throw unavailable('it is not asked while the circuit breaker is open')
    const answer = await this.#withDeadline(work, () => unavailable('no reply within the deadline'), expiresMs)
    this.#succeeded()
    return answer
  }

  /** Throws STORE_UNAVAILABLE when the store does not confirm it in time. With an idempotency key, a retry is safe. */
  give(gives: readonly Give[], opId?: string, idempotencyKey?: IdempotencyKey): Promise<GiveReply> {
    if (this.#breaker.state === 'open') return Promise.reject(unavailable('nothing was given back'))
    const timeoutError = () => unavailable('no reply within the deadline; units may or may not have been given back')
    return this.#withDeadline(() => this.#store.give(gives, opId, idempotencyKey), timeoutError)
  }

  /** Throws STORE_UNAVAILABLE when the store does not confirm it in time. It may still happen; a retry is safe. */
  reset(bucket: BucketName): Promise<void> {
    if (this.#breaker.state === 'open') return Promise.reject(unavailable('nothing was reset'))
    const timeoutError = () => unavailable('no reply within the deadline; the bucket may or may not have been reset')
    return this.#withDeadline(() => this.#store.reset(bucket), timeoutError)
  }

  stats(): SomeStats {
    const { waiting } = this.#deadline
    const breaker_open = this.breaker === 'closed' ? 0 : 1
    const reasons = [...this.#byReason]
    return {
      ...this.#store.stats?.(),
      ...this.#counts,
      ...Object.fromEntries(reasons.map(([reason, count]) => [`policy_${reason}`, count])),
      policy_decisions: reasons.reduce((sum, [, count]) => sum + count, 0),
      breaker_open,
      waiting,
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#prober.stop()
    this.#deadline.expireAll()
    await this.#store.close()
  }

  #countPolicy(taken: Taken, reason: PolicyReason): Taken {
    this.#byReason.set(reason, (this.#byReason.get(reason) ?? 0) + 1)
    this.#breaker.answered += 1
    return taken
  }

  /** Reason for which `on_fail` decides without a request to the store; undefined if the store is asked. */
  #reasonNotToAsk({ spent, expiresMs }: GuardedRequest): PolicyReason | undefined {
    if (this.#breaker.state === 'open') return this.#openReason()
    if (this.#deadline.waiting >= WAITING_MAX) return 'too_many_waiting'
    if (expiresMs === 0) return 'unavailable'
    if (spent === undefined || spent.ms < this.#deadline.limitMs) return undefined
    this.#counts.timeouts += 1
    return 'timeout'
  }

  #openReason(): PolicyReason {
    return this.#breaker.isDrilled(this.#timers.nowMs()) ? 'drill' : 'breaker_open'
  }

  /** The store's reply, or the fallback: after the deadline, with an open breaker, or if too many requests wait. */
  #guarded(request: GuardedRequest): Taken | Promise<Taken> {
    const { spent, expiresMs } = request
    const reason = this.#reasonNotToAsk(request)
    if (reason !== undefined) return this.#countPolicy(request.fallback(reason), reason)
    if (this.#isGone(expiresMs)) return Promise.reject(deadlineExceeded())
    return new Promise((resolve, reject) => {
      let isAnswered = false
      let admitted = false
      const byPolicy = (why: PolicyReason) => {
        const taken = this.#countPolicy(request.fallback(why), why)
        admitted = taken.granted
        const undo = () => {
          admitted = false
          taken.undo?.()
        }
        settled()
        resolve({ ...taken, undo })
      }
      const waiting: Waiting = {
        sentMs: 0,
        spentMs: spent?.ms ?? 0,
        expire: () => {
          if (!this.#closed) this.#counts.timeouts += 1
          if (!isAnswered) byPolicy(this.#closed ? 'closing' : 'timeout')
        },
      }
      const settled = () => {
        isAnswered = true
        stop?.()
        this.#deadline.done(waiting)
        if (spent !== undefined) spent.ms = Math.max(spent.ms, this.#deadline.spentMs(waiting))
      }
      const replied = (taken: Taken) => {
        if (isAnswered) {
          if (this.#deadline.done(waiting)) this.#succeeded() // only the caller had given up
          this.#counts.late_replies += 1
          request.onLateReply(taken, admitted)
          return
        }
        settled()
        this.#succeeded()
        resolve(taken)
      }
      const failed = (error: unknown) => {
        if (isAnswered) {
          if (this.#deadline.done(waiting) && isOutage(error)) this.#countFailure()
          return
        }
        if (error instanceof StoreFullError && request.sendWithout !== undefined) {
          request.sendWithout(error.absent).then(replied, failed)
          return
        }
        if (isOutage(error)) {
          this.#countFailure()
          byPolicy('unavailable')
        } else {
          settled()
          this.#succeeded() // the store did reply
          reject(error)
        }
      }
      // Keeps waiting for the store: its reply is given back, and its silence counts for the circuit breaker.
      const giveUp = () => {
        if (isAnswered) return
        isAnswered = true
        reject(deadlineExceeded())
      }
      const stop = this.#beforeDeadline(expiresMs, giveUp)
      this.#deadline.add(waiting)
      try {
        Promise.resolve(request.send(() => this.#deadline.sent(waiting))).then(replied, failed)
      } catch (error) {
        failed(error)
      }
    })
  }

  #isGone(expiresMs: number | undefined): boolean {
    return expiresMs !== undefined && this.#timers.nowMs() >= expiresMs
  }

  /** Runs `giveUp` when the caller gives up, if that is before the deadline. A reply that has arrived is read first. */
  #beforeDeadline(expiresMs: number | undefined, giveUp: () => void): (() => void) | undefined {
    if (expiresMs === undefined) return undefined
    const leftMs = expiresMs - this.#timers.nowMs()
    if (leftMs >= this.#deadline.limitMs) return undefined
    return this.#timers.after(leftMs, () => this.#timers.soon(() => this.#timers.soon(giveUp)))
  }

  /** `on_fail` decides for the buckets that the full store cannot create; the others are charged as usual. */
  async #takeWithout(take: Take, absent: readonly boolean[]): Promise<Taken> {
    const decide = (charges: readonly Charge[]) => this.#policy.decide(charges, 'store_full')
    const policy = this.#countPolicy(decide(take.charges.filter((_, index) => absent[index])), 'store_full')
    const existing = take.charges.filter((_, index) => !absent[index])
    if (existing.length === 0) return policy
    if (!policy.granted) return merged(absent, policy, undefined)
    try {
      const taken = await this.#store.take({ ...take, charges: existing })
      if (!taken.granted) policy.undo?.()
      return merged(absent, policy, taken)
    } catch (error) {
      policy.undo?.()
      if (error instanceof StoreFullError) return decide(take.charges) // more buckets have expired since
      throw error
    }
  }

  /** Settles as `work` does, or rejects with `timeoutError()` after the deadline. */
  #withDeadline<T>(work: () => MaybePromise<T>, timeoutError: () => LimiterError, expiresMs?: number): Promise<T> {
    if (this.#isGone(expiresMs)) return Promise.reject(deadlineExceeded())
    return new Promise((resolve, reject) => {
      const waiting: Waiting = {
        sentMs: 0,
        spentMs: 0,
        expire: () => {
          stop?.()
          reject(timeoutError())
        },
      }
      const stop = this.#beforeDeadline(expiresMs, () => reject(deadlineExceeded()))
      const settled = () => {
        stop?.()
        this.#deadline.done(waiting)
      }
      this.#deadline.add(waiting)
      toPromise(work).then(
        (answer) => {
          settled()
          resolve(answer)
        },
        (error) => {
          if (isOutage(error)) this.#countFailure()
          settled()
          reject(error)
        },
      )
    })
  }

  /** Counts the failures of one event-loop turn as one for the breaker: they were one batch. */
  #countFailure(): void {
    this.#counts.failures += 1
    if (this.#failedThisTurn) return
    this.#failedThisTurn = true
    this.#timers.soon(() => {
      this.#failedThisTurn = false
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

  /** Charges a bucket, as checks do. Resolves to whether the store replied within the deadline. */
  #probe(): Promise<boolean> {
    const nowMs = this.#timers.nowMs()
    if (this.#breaker.isDrilled(nowMs)) return Promise.resolve(false)
    const waiting: Waiting = { sentMs: 0, spentMs: 0, expire: () => {} }
    const answered = () => {
      if (!this.#deadline.done(waiting) || this.#closed) return false
      this.#succeeded()
      return this.#breaker.state === 'closed' // unless a drill has begun since
    }
    const failed = (error: unknown) => {
      if (!isOutage(error)) return answered()
      this.#deadline.done(waiting)
      this.#countFailure()
      return false
    }
    this.#deadline.add(waiting)
    const onSent = () => this.#deadline.sent(waiting)
    return toPromise(() => this.#store.take({ charges: [this.#probeCharge], onSent })).then(answered, failed)
  }

  /**
   * Settles a late reply. An admitted request keeps the units it needed; the others are given back, and so are permits,
   * because the caller does not know that it holds them.
   */
  #settleLate({ charges, op, resets }: Take, taken: Taken, admitted: boolean): void {
    if (resets !== undefined) return // its units replace those of the reset buckets
    const needed = ({ kind, min, limit }: Charge) => {
      const isKept = admitted && (taken.granted || kind === 'counterfactual')
      return isKept && kind !== 'hold' && !hasPermits(limit) ? min : 0
    }
    const gives = givesBack(charges, taken, needed)
    if (gives.length === 0) return
    this.#counts.late_returns += 1
    void giveQuietly(this.#store, gives, op?.id)
  }
}

/** Merges `policy` for the absent buckets with `taken` for the others; `taken` is undefined if `policy` refused. */
function merged(absent: readonly boolean[], policy: Taken, taken: Taken | undefined): Taken {
  const { source, nowUs, policyReason } = policy
  const [decided, charged] = [policy.grants.values(), taken?.grants.values()]
  const grants = absent.map((isAbsent): Grant => {
    if (isAbsent) return { ...(decided.next().value ?? NOT_CHARGED), at: { source, nowUs } }
    return charged?.next().value ?? NOT_CHARGED
  })
  if (taken === undefined) return { ...policy, grants }
  return { ...taken, grants, policyReason, undo: policy.undo }
}

function deadlineExceeded(): LimiterError {
  return new LimiterError('DEADLINE_EXCEEDED', 'the caller gave up before the store answered; nothing was decided')
}

function unavailable(reason: string): LimiterError {
  return new LimiterError('STORE_UNAVAILABLE', `the store is unavailable: ${reason}`)
}

/** An unreadable value is not an outage: it affects only the requests that touch it. */
function isOutage(error: unknown): boolean {
  return error instanceof LimiterError ? error.code === 'STORE_UNAVAILABLE' : true
}
