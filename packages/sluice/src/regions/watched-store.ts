// Wraps the global store and measures whether it replies, its round trip and its clock.

import { StoreClock } from '../approximate/store-clock.ts'
import type { Timers } from '../clock.ts'
import type { BucketName, Charge, Give, GiveReply, IdempotencyKey, Store, Take, Taken } from '../store/store.ts'

const RECENT_MS = 10_000

export class WatchedStore implements Store {
  /** Whether the last request failed, or `on_fail` answered it. */
  isUnreachable = false
  readonly clock: StoreClock
  readonly #store: Store
  readonly #timers: Timers
  #repliedMs: number
  #roundTripMs = 0
  /** Shortest round trip since `#sinceMs`, and in the period before; infinite until the first reply. */
  #shortestMs = Number.POSITIVE_INFINITY
  #shortestBeforeMs = Number.POSITIVE_INFINITY
  #sinceMs: number

  constructor(store: Store, timers: Timers) {
    this.#store = store
    this.#timers = timers
    this.#repliedMs = timers.nowMs()
    this.#sinceMs = this.#repliedMs
    this.clock = new StoreClock(timers)
  }

  /** Last round trip, or time since the last reply. */
  get lagMs(): number {
    return this.isUnreachable ? this.#timers.nowMs() - this.#repliedMs : this.#roundTripMs
  }

  /** Shortest recent round trip: longer ones include stalls of this process. */
  get distanceMs(): number {
    return this.isUnreachable ? Number.POSITIVE_INFINITY : Math.min(this.#shortestMs, this.#shortestBeforeMs)
  }

  take(take: Take): Taken | Promise<Taken> {
    return this.#timed(() => this.#store.take(take))
  }

  takeSync(take: Take): Taken | undefined {
    const taken = this.#store.takeSync?.(take)
    if (taken !== undefined) this.#onReply(taken, this.#timers.nowMs())
    return taken
  }

  peek(charges: readonly Charge[], mayBeStale?: boolean, expiresMs?: number): Taken | Promise<Taken> {
    return this.#timed(() => this.#store.peek(charges, mayBeStale, expiresMs))
  }

  give(gives: readonly Give[], opId?: string, idempotencyKey?: IdempotencyKey): GiveReply | Promise<GiveReply> {
    return this.#store.give(gives, opId, idempotencyKey)
  }

  reset(bucket: BucketName): void | Promise<void> {
    return this.#store.reset(bucket)
  }

  close(): Promise<void> {
    return this.#store.close()
  }

  #timed(ask: () => Taken | Promise<Taken>): Promise<Taken> {
    const sentMs = this.#timers.nowMs()
    return new Promise<Taken>((resolve) => resolve(ask())).then(
      (taken) => {
        this.#onReply(taken, sentMs)
        return taken
      },
      (error) => {
        this.isUnreachable = true
        throw error
      },
    )
  }

  #onReply({ source, nowUs }: Taken, sentMs: number): void {
    this.isUnreachable = source !== 'store'
    if (this.isUnreachable) return
    this.#repliedMs = this.#timers.nowMs()
    this.#roundTripMs = this.#repliedMs - sentMs
    this.clock.sync(nowUs, sentMs)
    if (this.#repliedMs - this.#sinceMs > RECENT_MS) {
      this.#shortestBeforeMs = this.#shortestMs
      this.#shortestMs = Number.POSITIVE_INFINITY
      this.#sinceMs = this.#repliedMs
    }
    this.#shortestMs = Math.min(this.#shortestMs, this.#roundTripMs)
  }
}
