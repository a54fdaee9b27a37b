// A store around the global one that sees how it is: whether it answers, how long that takes, what time it is there.

import { StoreClock } from '../approximate/store-clock.ts'
import type { Timers } from '../clock.ts'
import type { BucketName, Charge, Give, Once, Returned, Store, Take, Taken } from '../store/store.ts'

const LATELY_MS = 10_000

export class WatchedStore implements Store {
  /** Whether the last question was not answered, or by `on_fail`. */
  isLost = false
  readonly clock: StoreClock
  readonly #store: Store
  readonly #timers: Timers
  #answeredMs: number
  #roundTripMs = 0
  /** The shortest since `#sinceMs`, and in the time before that. Until something is known, it is far. */
  #shortestMs = Number.POSITIVE_INFINITY
  #shortestBeforeMs = Number.POSITIVE_INFINITY
  #sinceMs: number

  constructor(store: Store, timers: Timers) {
    this.#store = store
    this.#timers = timers
    this.#answeredMs = timers.nowMs()
    this.#sinceMs = this.#answeredMs
    this.clock = new StoreClock(timers)
  }

  /** How old the newest answer was when it came; while there is none, since when. */
  get lagMs(): number {
    return this.isLost ? this.#timers.nowMs() - this.#answeredMs : this.#roundTripMs
  }

  /** How far away it is: of the answers of late, the one that took least. Others waited for this process as well. */
  get distanceMs(): number {
    return this.isLost ? Number.POSITIVE_INFINITY : Math.min(this.#shortestMs, this.#shortestBeforeMs)
  }

  take(take: Take): Taken | Promise<Taken> {
    return this.#watched(() => this.#store.take(take))
  }

  takeSync(take: Take): Taken | undefined {
    const taken = this.#store.takeSync?.(take)
    if (taken !== undefined) this.#heard(taken, this.#timers.nowMs())
    return taken
  }

  peek(charges: readonly Charge[], mayBeStale?: boolean): Taken | Promise<Taken> {
    return this.#watched(() => this.#store.peek(charges, mayBeStale))
  }

  give(gives: readonly Give[], opId?: string, once?: Once): Returned | Promise<Returned> {
    return this.#store.give(gives, opId, once)
  }

  reset(bucket: BucketName): void | Promise<void> {
    return this.#store.reset(bucket)
  }

  close(): Promise<void> {
    return this.#store.close()
  }

  #watched(ask: () => Taken | Promise<Taken>): Promise<Taken> {
    const sentMs = this.#timers.nowMs()
    return new Promise<Taken>((resolve) => resolve(ask())).then(
      (taken) => {
        this.#heard(taken, sentMs)
        return taken
      },
      (error) => {
        this.isLost = true
        throw error
      },
    )
  }

  #heard({ source, nowUs }: Taken, sentMs: number): void {
    this.isLost = source !== 'store'
    if (this.isLost) return
    this.#answeredMs = this.#timers.nowMs()
    this.#roundTripMs = this.#answeredMs - sentMs
    this.clock.tell(nowUs, sentMs)
    if (this.#answeredMs - this.#sinceMs > LATELY_MS) {
      this.#shortestBeforeMs = this.#shortestMs
      this.#shortestMs = Number.POSITIVE_INFINITY
      this.#sinceMs = this.#answeredMs
    }
    this.#shortestMs = Math.min(this.#shortestMs, this.#roundTripMs)
  }
}
