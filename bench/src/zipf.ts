// Keys as a server meets them: a few clients send much, many send little, and each request brings a string of its own,
// cut out of a socket's bytes. No string object is ever handed out twice, so nobody profits from a hash that an earlier
// call left in it. Seeded: each contender meets the same keys in the same order.

/** A number in [0, 1). */
export type Random = () => number

/** mulberry32: 32 bits of state are plenty for choosing keys. */
export function seeded(seed: number): Random {
  let state = seed | 0
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Chooses ids below `count`: the k-th most frequent one about 1/k as often as the first. */
export function zipf(count: number, random: Random): () => number {
  const shares = new Float64Array(count)
  let sum = 0
  for (let rank = 0; rank < count; rank++) shares[rank] = sum += 1 / (rank + 1)
  return () => scattered(rankAt(shares, random() * sum), count)
}

export function uniform(count: number, random: Random): () => number {
  return () => Math.floor(random() * count)
}

/** Every id below `count` in turn, in an order without a pattern. */
export function each(count: number): () => number {
  let turn = 0
  return () => scattered(turn++ % count, count)
}

/** So many new keys. */
export function freshKeys(count: number, choose: () => number): string[] {
  const keys: string[] = []
  for (let index = 0; index < count; index++) keys.push(freshKey(choose()))
  return keys
}

const bytes = Buffer.alloc(32)

/** `user_12345`, the client_id of the documented example, as a flat one-byte string that nobody has seen before. */
export function freshKey(id: number): string {
  return freshText(`user_${id}`)
}

/** The same text in a string of its own, as a parser cuts it out of what a socket received. */
export function freshText(text: string): string {
  return bytes.toString('latin1', 0, bytes.write(text, 'latin1'))
}

/** Frequent clients are not neighbours by name. 7919 is prime, so for counts it does not divide this is one to one. */
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
