// Sorts a stream of requests that is nearly in order: access logs are written when requests end, and several processes
// write their events a second apart. Memory is bounded; a request that comes too late passes through unsorted.

import { byTime, type RecordedRequest } from './recorded-request.ts'

/** Largest delay of a request behind others of the same time. */
const WINDOW_US = 10_000_000
const BUFFERED_MAX = 100_000
const SORT_MIN = 4096

export class InOrder {
  readonly #next: (request: RecordedRequest) => void
  #buffer: RecordedRequest[] = []
  #newestUs = 0
  #isSorted = true
  #lastUs = 0

  /** Calls `next` with each request, in order. */
  constructor(next: (request: RecordedRequest) => void) {
    this.#next = next
  }

  add(request: RecordedRequest): void {
    const { atUs } = request
    if (atUs < this.#lastUs || (atUs === this.#lastUs && request.node !== undefined)) this.#isSorted = false
    this.#lastUs = atUs
    if (atUs > this.#newestUs) this.#newestUs = atUs
    this.#buffer.push(request)
    const { length } = this.#buffer
    if (length >= BUFFERED_MAX) this.#release(this.#newestUs - WINDOW_US, BUFFERED_MAX >> 1)
    else if (length % SORT_MIN === 0) this.#release(this.#newestUs - WINDOW_US, 0)
  }

  /** Passes on everything that is left. */
  end(): void {
    this.#release(Number.POSITIVE_INFINITY, 0)
  }

  /** Passes on requests up to this time, and at least `countMin`. */
  #release(untilUs: number, countMin: number): void {
    const buffer = this.#buffer
    if (!this.#isSorted) buffer.sort(byTime) // stable: requests of equal time keep their order
    let count = 0
    for (; count < buffer.length; count += 1) {
      const request = buffer[count] as RecordedRequest // the index is in range
      if (count >= countMin && request.atUs > untilUs) break
      this.#next(request)
    }
    this.#buffer = buffer.slice(count)
    this.#isSorted = true
  }
}
