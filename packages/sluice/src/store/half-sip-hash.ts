// A variant of HalfSipHash-1-3 over UTF-16 text: about the cost of an unkeyed hash, and without the key nobody can
// choose texts that fall together. It differs from the standard in how 64 bits come out: both pairs of words after one
// finalisation, instead of a second one. The result is left in two fields, so hashing allocates nothing.

/** Four 32-bit words: the key, and whatever has been absorbed behind it. */
export type HashSeed = { readonly v0: number; readonly v1: number; readonly v2: number; readonly v3: number }

export function randomSeed(): HashSeed {
  const [k0 = 0, k1 = 0] = crypto.getRandomValues(new Uint32Array(2))
  return seedOf(k0, k1)
}

export function seedOf(k0: number, k1: number): HashSeed {
  return { v0: k0 | 0, v1: k1 | 0, v2: k0 ^ 0x6c796765, v3: k1 ^ 0x74656462 }
}

/** Looked up once: V8 has many kinds of strings, and code that meets more than four asks each text for its methods. */
const unitAt = String.prototype.charCodeAt

export class KeyHash {
  high = 0
  low = 0

  /** Hash of two texts behind a seed. The second goes behind the hash of the first, so (ab, c) is not (a, bc). */
  hash(seed: HashSeed, first: string, second: string): void {
    this.#absorb(seed.v0, seed.v1, seed.v2, seed.v3, first)
    if (second !== '') this.#absorb(seed.v0 ^ this.high, seed.v1 ^ this.low, seed.v2, ~seed.v3, second)
  }

  /** A seed for everything behind a prefix. */
  seedBehind(seed: HashSeed, prefix: string): HashSeed {
    this.hash(seed, prefix, '')
    return { v0: seed.v0 ^ this.high, v1: seed.v1 ^ this.low, v2: ~seed.v2, v3: seed.v3 }
  }

  #absorb(a: number, b: number, c: number, d: number, text: string): void {
    const { length } = text
    let v0 = a
    let v1 = b
    let v2 = c
    let v3 = d
    // Two UTF-16 units a word; the last word holds the odd unit, if any, and the length. Then three rounds of nothing.
    const end = length - (length & 1)
    for (let index = 0; index <= end + 6; index += 2) {
      let word = 0
      if (index < end) word = unitAt.call(text, index) | (unitAt.call(text, index + 1) << 16)
      else if (index === end) word = (length === end ? 0 : unitAt.call(text, index)) | (length << 16)
      else if (index === end + 2) v2 ^= 0xee
      v3 ^= word
      v0 = (v0 + v1) | 0
      v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0
      v0 = (v0 << 16) | (v0 >>> 16)
      v2 = (v2 + v3) | 0
      v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2
      v0 = (v0 + v3) | 0
      v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0
      v2 = (v2 + v1) | 0
      v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2
      v2 = (v2 << 16) | (v2 >>> 16)
      v0 ^= word
    }
    this.low = v1 ^ v3
    this.high = v0 ^ v2
  }
}
