// The only place that reads clocks and sets timers. Everything else is handed them, so tests can move time by hand.

export type Clock = {
  /** Wall time in microseconds since the epoch: windows are aligned to it. */
  nowUs(): number
}

export const systemClock: Clock = { nowUs: () => Date.now() * 1000 }

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
