// Cache of one connection from the bytes of a header block to its parsed request: most calls of a client repeat the
// same block. Direct-mapped, so a lookup is one hash and one comparison, and its size is fixed.

const ENTRIES = 16
/** Longer blocks are decoded every time. */
const BLOCK_BYTES_MAX = 512

type Entry<T> = { readonly bytes: Uint8Array; readonly value: T }

export class BlockCache<T> {
  #entries: (Entry<T> | undefined)[] = []
  #generation = -1

  /** The generation is that of the decoder's table: an entry is valid only while the table stays the same. */
  find(bytes: Uint8Array, start: number, end: number, generation: number): T | undefined {
    const length = end - start
    if (generation !== this.#generation || length > BLOCK_BYTES_MAX) return undefined
    const entry = this.#entries[indexOf(bytes, start, end)]
    if (entry === undefined || entry.bytes.length !== length) return undefined
    const known = entry.bytes
    for (let at = 0; at < length; at += 1) {
      if (known[at] !== bytes[start + at]) return undefined
    }
    return entry.value
  }

  store(bytes: Uint8Array, start: number, end: number, generation: number, value: T): void {
    if (end - start > BLOCK_BYTES_MAX) return
    if (generation !== this.#generation) {
      this.#entries = new Array(ENTRIES).fill(undefined)
      this.#generation = generation
    }
    const index = indexOf(bytes, start, end)
    this.#entries[index] = { bytes: Uint8Array.prototype.slice.call(bytes, start, end), value }
  }
}

function indexOf(bytes: Uint8Array, start: number, end: number): number {
  let hash = end - start
  for (let at = start; at < end; at += 1) hash = (Math.imul(hash, 31) + (bytes[at] as number)) | 0
  return (hash ^ (hash >>> 8)) & (ENTRIES - 1)
}
