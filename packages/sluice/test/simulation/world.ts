// Virtual time: runs events in order, and the promise callbacks of each before the next. Nothing waits in real time, so
// a minute of a fleet takes a fraction of a second, and the same seed gives the same run.

import type { Timers } from '../../src/clock.ts'

/** Returns `false` if it neither settled nor created a promise. */
type Work = () => unknown

type Event = { readonly atUs: number; readonly order: number; readonly work: Work }

export class World {
  /** True time; the clocks of nodes differ from it. */
  nowUs: number = Date.UTC(2030, 0, 1) * 1000
  readonly #events: Event[] = []
  #order = 0

  after(us: number, work: Work): void {
    this.#push({ atUs: this.nowUs + Math.max(0, Math.round(us)), order: this.#order++, work })
  }

  /** Runs all events of the next `us`. */
  async run(us: number): Promise<void> {
    const endUs = this.nowUs + us
    let pending = true // calls made since the last run
    for (;;) {
      const [next] = this.#events
      if (next === undefined || next.atUs > endUs) break
      this.#pop()
      this.nowUs = next.atUs
      if (next.work() === false && !pending) continue
      await settled()
      pending = false
    }
    this.nowUs = endUs
  }

  /** Timers of one node, which stop with it. */
  timers(isAlive: () => boolean): Timers {
    const once = (us: number, work: () => void) => {
      let stopped = false
      this.after(us, () => {
        if (stopped || !isAlive()) return false
        work()
        return true
      })
      return () => {
        stopped = true
      }
    }
    const every = (ms: number, work: () => void) => {
      let stop = () => {}
      const again = () => {
        stop = once(ms * 1000, () => {
          again()
          work()
        })
      }
      again()
      return () => stop()
    }
    return {
      nowMs: () => this.nowUs / 1000,
      after: (ms, work) => once(ms * 1000, work),
      every,
      soon: (work) => void once(0, work),
    }
  }

  #push(event: Event): void {
    const events = this.#events
    let at = events.push(event) - 1
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!before(event, events[parent] as Event)) break
      events[at] = events[parent] as Event
      at = parent
    }
    events[at] = event
  }

  #pop(): void {
    const events = this.#events
    const last = events.pop() as Event // never called when empty
    if (events.length === 0) return
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= events.length) break
      if (child + 1 < events.length && before(events[child + 1] as Event, events[child] as Event)) child += 1
      if (!before(events[child] as Event, last)) break
      events[at] = events[child] as Event
      at = child
    }
    events[at] = last
  }
}

function before(a: Event, b: Event): boolean {
  return a.atUs < b.atUs || (a.atUs === b.atUs && a.order < b.order)
}

/** Resolves after all pending promise callbacks. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
