// Schedules reads: on request, and every ten seconds in case a notification was missed. Reads never overlap, and a
// request resolves only after a read that started after it.

const POLL_MS = 10_000

export class Refresher {
  readonly #load: () => Promise<void>
  #loading: Promise<void> | undefined
  #next: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #stopped = false

  /** `load` must not reject. */
  constructor(load: () => Promise<void>) {
    this.#load = load
  }

  /** Resolves after a read that started after this call. */
  refresh(): Promise<void> {
    if (this.#stopped) return Promise.resolve()
    if (this.#loading === undefined) {
      this.#loading = this.#load().finally(() => {
        this.#loading = undefined
      })
      return this.#loading
    }
    // The current read may have started too early. The next read serves all requests made before it starts.
    this.#next ??= this.#loading.then(() => {
      this.#next = undefined
      return this.refresh()
    })
    return this.#next
  }

  poll(): void {
    this.#timer = setTimeout(() => void this.refresh().then(() => !this.#stopped && this.poll()), POLL_MS).unref()
  }

  /** Prevents further reads; resolves when the current one has ended. */
  async stop(): Promise<void> {
    this.#stopped = true
    clearTimeout(this.#timer)
    await this.#loading
  }
}
