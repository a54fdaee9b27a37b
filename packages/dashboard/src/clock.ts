// Wall clock and monotonic clock of the browser, in milliseconds.

export function nowMs(): number {
  return Date.now()
}

export function monotonicMs(): number {
  return performance.now()
}
