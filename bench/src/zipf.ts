// Zipf-distributed keys, each a fresh string as if parsed from a socket. No string object is used twice, because V8
// caches its hash, which would make every Map look faster. Seeded: each contender gets the same keys in the same order.

/** A number in [0, 1). */
export type Random = () => number

/** mulberry32; 32 bits of state suffice for choosing keys. */
export function seeded(seed: number): Random {
  let state = seed | 0
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Chooses ids below `count`; the k-th most frequent is about 1/k as frequent as the first. */
export function zipf(count: number, random: Random): () => number {
  const shares = new Float64Array(count)
  let sum = 0
  for (let rank = 0; rank < count; rank++) shares[rank] = sum += 1 / (rank + 1)
  return () => scattered(rankAt(shares, random() * sum), count)
}

export function uniform(count: number, random: Random): () => number {
  return () => Math.floor(random() * count)
}

/** Every id below `count` once, in pseudo-random order. */
export function everyId(count: number): () => number {
  let turn = 0
  return () => scattered(turn++ % count, count)
}

/** Creates `count` new keys. */
export function freshKeys(count: number, choose: () => number): string[] {
  const keys: string[] = []
  for (let index = 0; index < count; index++) keys.push(freshKey(choose()))
  return keys
}

const bytes = Buffer.alloc(32)

/** `user_12345` as a fresh, flat, one-byte string. */
export function freshKey(id: number): string {
  return freshText(`user_${id}`)
}

/** Copies a text into a fresh string, as a parser would. */
export function freshText(text: string): string {
  return bytes.toString('latin1', 0, bytes.write(text, 'latin1'))
}

/** Spreads frequent clients over the id space. Bijective unless the prime 7919 divides the count. */
function scattered(rank: number, count: number): number {
  return (rank * 7919) % count
}

function rankAt(shares: Float64Array, wanted: number): number {
  let low = 0
  let high = shares.length - 1
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((shares[middle] ?? 0) > wanted) high = middle
    else low = middle + 1
  }
  return low
}
