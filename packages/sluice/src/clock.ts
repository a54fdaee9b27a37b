// The only place that reads clocks and sets timers. Everything else is handed them, so tests can move time by hand.
// Three times are never mixed: that of a store (Redis), which books units; `systemClock`, which never steps, for spans
// and for buckets in memory; and `wallClock`, the time of day, for people.

export type Clock = {
  /** Microseconds since the epoch. */
  nowUs(): number
  /** How far the time of day is ahead of `nowUs`, in steps; absent: not at all. */
  wallAheadUs?(): number
}

/** The time of day: for people, and for moments that people or other machines name. Steps when it is set. */
export const wallClock: Clock = { nowUs: () => Date.now() * 1000 }

/** Less than this is the jitter of reading two clocks, or drift that moves no window by much. */
const STEP_US = 50_000

/**
 * Counts on evenly from the time of day at which it was first read, whatever becomes of that: for spans of time, and
 * for buckets in memory.
 */
export function steadyClock(wall: Clock, elapsedMs: () => number): Clock {
  let startUs = Number.NaN // not before it is read: some runtimes have no time while modules are loaded
  let aheadUs = 0
  const elapsedUs = () => Math.floor(elapsedMs() * 1000)
  const nowUs = () => {
    const us = startUs + elapsedUs()
    if (us > 0) return us
    startUs = wall.nowUs() - elapsedUs()
    return startUs + elapsedUs()
  }
  return {
    nowUs,
    wallAheadUs() {
      const us = wall.nowUs() - nowUs()
      if (Math.abs(us - aheadUs) >= STEP_US) aheadUs = us
      return aheadUs
    },
  }
}

/** Undefined in browsers. Read once, because the global is a getter; the method is not, so that tests can fake it. */
const { process: node } = globalThis as { process?: Pick<NodeJS.Process, 'hrtime'> }

/** `hrtime` is the quicker one: with `performance.now` a check in memory takes 6 % longer. */
const elapsedMs: () => number = node?.hrtime === undefined ? () => performance.now() : () => sumMs(node.hrtime())

function sumMs(time: readonly [number, number]): number {
  return time[0] * 1000 + time[1] / 1e6
}

/**
 * Stands still while the machine is suspended (Linux, macOS): then buckets in memory refill late by as much, which errs
 * low.
 */
export const systemClock: Clock = steadyClock(wallClock, elapsedMs)

/** Time that never steps, and what is to be done later. */
export type Timers = {
  nowMs(): number
  /** Returns what stops it. */
  after(ms: number, work: () => void): () => void
  /** Again and again; does not keep the process alive. */
  every(ms: number, work: () => void): () => void
  /** Behind whatever has already arrived. */
  soon(work: () => void): void
}

export const systemTimers: Timers = {
  nowMs: () => performance.now(),
  after(ms, work) {
    const timer = setTimeout(work, ms)
    return () => clearTimeout(timer)
  },
  every(ms, work) {
    let stopped = false // perhaps by the work itself
    const again = () => {
      work()
      if (!stopped) timer = unreferenced(setTimeout(again, ms))
    }
    let timer = unreferenced(setTimeout(again, ms))
    return () => {
      stopped = true
      clearTimeout(timer)
    }
  },
  soon(work) {
    if (typeof setImmediate === 'function') setImmediate(work)
    else setTimeout(work, 0) // browsers and jsdom
  },
}

/** Only Node.js has to be told. Browsers, jsdom and Electron renderers return a number, which has no `unref`. */
function unreferenced<Timer extends { unref?(): unknown }>(timer: Timer): Timer {
  timer.unref?.()
  return timer
}
