// The newest so many of something, found by id. A ring: the newest takes the place of the oldest. (To ask a Map for its
// oldest key takes 20 µs once many are gone.)

type Kept<T> = { readonly id: string; readonly item: T }

export class Recent<T> {
  readonly #byId = new Map<string, Kept<T>>()
  readonly #inOrder: Kept<T>[] = []
  readonly #max: number
  readonly #onDrop: (item: T) => void
  #next = 0

  constructor(max: number, onDrop: (item: T) => void = () => {}) {
    this.#max = max
    this.#onDrop = onDrop
  }

  /** An id that is used again names the newest from then on. */
  remember(id: string, item: T): void {
    const kept = { id, item }
    const oldest = this.#inOrder[this.#next]
    if (oldest !== undefined) this.#forget(oldest)
    this.#inOrder[this.#next] = kept
    this.#next = (this.#next + 1) % this.#max
    this.#byId.set(id, kept)
  }

  find(id: string): T | undefined {
    return this.#byId.get(id)?.item
  }

  /** The newest first. */
  newest(count: number): T[] {
    const held = this.#inOrder.length
    const last = this.#next - 1 + held // `next` is where the next one goes, and wraps around
    const indexes = Array.from({ length: Math.min(count, held) }, (_, back) => (last - back) % held)
    return indexes.flatMap((index) => this.#inOrder[index]?.item ?? [])
  }

  #forget(kept: Kept<T>): void {
    if (this.#byId.get(kept.id) !== kept) return // a newer one has taken over the id
    this.#byId.delete(kept.id)
    this.#onDrop(kept.item)
  }
}
