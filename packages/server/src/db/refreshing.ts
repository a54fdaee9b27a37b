// Something that is read again whenever somebody tells of a change, and every few seconds in case nobody could. Reads
// never overlap, and whoever asks gets one that began after that.

/** A change that nobody told of is found after this long. */
const POLL_MS = 10_000

export class Refreshing {
  readonly #load: () => Promise<void>
  #loading: Promise<void> | undefined
  #next: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #stopped = false

  /** `load` must not reject. */
  constructor(load: () => Promise<void>) {
    this.#load = load
  }

  /** Resolves once what there was when this was called, or something newer, has been read. */
  refresh(): Promise<void> {
    if (this.#stopped) return Promise.resolve()
    if (this.#loading === undefined) {
      this.#loading = this.#load().finally(() => {
        this.#loading = undefined
      })
      return this.#loading
    }
    // What is under way may have read too early. One more time is enough for all who ask meanwhile.
    this.#next ??= this.#loading.then(() => {
      this.#next = undefined
      return this.refresh()
    })
    return this.#next
  }

  poll(): void {
    this.#timer = setTimeout(() => void this.refresh().then(() => !this.#stopped && this.poll()), POLL_MS).unref()
  }

  /** Nothing is read from now on; ends when what is under way has ended. */
  async stop(): Promise<void> {
    this.#stopped = true
    clearTimeout(this.#timer)
    await this.#loading
  }
}
