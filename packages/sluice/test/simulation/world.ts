// Virtual time: events in their order, each run to the end of what it sets off before the next one. Nothing waits for
// real, so a minute of a fleet takes a fraction of a second, and the same seed gives the same minute.

import type { Timers } from '../../src/clock.ts'

type Event = { readonly atUs: number; readonly order: number; readonly work: () => void }

export class World {
  /** True time, which no node knows. */
  nowUs: number = Date.UTC(2030, 0, 1) * 1000
  readonly #events: Event[] = []
  #order = 0

  after(us: number, work: () => void): void {
    this.#push({ atUs: this.nowUs + Math.max(0, Math.round(us)), order: this.#order++, work })
  }

  /** Runs everything that happens in the next `us`. */
  async run(us: number): Promise<void> {
    const endUs = this.nowUs + us
    for (;;) {
      const [next] = this.#events
      if (next === undefined || next.atUs > endUs) break
      this.#pop()
      this.nowUs = next.atUs
      next.work()
      await settled()
    }
    this.nowUs = endUs
  }

  /** Timers of one node, which stop with it. */
  timers(isAlive: () => boolean): Timers {
    const once = (us: number, work: () => void) => {
      let stopped = false
      this.after(us, () => {
        if (!stopped && isAlive()) work()
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
    const last = events.pop() as Event // called when there is one
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

/** Everything that promises had to say has been said. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
