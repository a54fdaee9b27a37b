// Time in which a condition held, measured by samples at an interval. Errs low on a node that started recently.

export class BadTime {
  readonly #sampleMs: number
  readonly #spanMs: number
  /** Times of the samples in which it held, oldest first. */
  readonly #bad: number[] = []

  /** `spanMs`: the longest window. */
  constructor(sampleMs: number, spanMs: number) {
    this.#sampleMs = sampleMs
    this.#spanMs = spanMs
  }

  add(isBad: boolean, nowMs: number): void {
    while (this.#bad[0] !== undefined && this.#bad[0] <= nowMs - this.#spanMs) this.#bad.shift()
    if (isBad) this.#bad.push(nowMs)
  }

  /** Bad seconds of a window that ends now. */
  share(windowMs: number, nowMs: number): { readonly bad: number; readonly of: number } {
    const count = this.#bad.filter((atMs) => atMs > nowMs - windowMs).length
    return { bad: (count * this.#sampleMs) / 1000, of: windowMs / 1000 }
  }
}
