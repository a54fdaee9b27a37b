// Map of the newest `max` items by id, evicting the oldest first. A ring buffer holds the order: finding the oldest key
// of a Map takes 20 µs after many deletions.

type Kept<T> = { readonly id: string; readonly item: T }

export class RecentMap<T> {
  readonly #byId = new Map<string, Kept<T>>()
  readonly #inOrder: Kept<T>[] = []
  readonly #max: number
  readonly #onDrop: (item: T) => void
  #next = 0

  constructor(max: number, onDrop: (item: T) => void = () => {}) {
    this.#max = max
    this.#onDrop = onDrop
  }

  /** A reused id refers to its newest item. */
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

  /** Newest first. */
  newest(count: number): T[] {
    const held = this.#inOrder.length
    const last = this.#next - 1 + held // `next` is the index of the next write, and wraps around
    const indexes = Array.from({ length: Math.min(count, held) }, (_, back) => (last - back) % held)
    return indexes.flatMap((index) => this.#inOrder[index]?.item ?? [])
  }

  #forget(kept: Kept<T>): void {
    if (this.#byId.get(kept.id) !== kept) return // the id belongs to a newer item
    this.#byId.delete(kept.id)
    this.#onDrop(kept.item)
  }
}
