// Streams that this end has reset: frames that the client had sent before are ignored. Forgets the oldest.

const IDS_MAX = 1000

export class ResetIds {
  readonly #ids = new Set<number>()

  has(id: number): boolean {
    return this.#ids.has(id)
  }

  add(id: number): void {
    this.#ids.add(id)
    if (this.#ids.size <= IDS_MAX) return
    for (const oldest of this.#ids) {
      this.#ids.delete(oldest)
      return
    }
  }
}
