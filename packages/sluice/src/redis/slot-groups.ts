// Slot groups of a Cluster. A script may touch one slot only, so owners are hashed into a fixed number of groups with
// one slot each, and checks of owners in one group share a script call. The hash is keyed: clients cannot choose their
// group. The slots are spread evenly, so primaries that serve equal ranges of slots serve equal numbers of groups.

import { hmacSha256 } from '../sha-256.ts'
import { HalfSipHash, type HashSeed, seedOf } from '../store/half-sip-hash.ts'
import type { BucketName } from '../store/store.ts'
import { SLOTS, slotOf } from './slot.ts'

/** Up to 16 primaries share the load, and batches stay large: docs/decisions/0017-slot-groups.md has the figures. */
export const SLOT_GROUPS_DEFAULT = 16
/** Redis recommends at most 1000 nodes in a Cluster. */
const SLOT_GROUPS_MAX = 1024

export const SLOT_GROUPS_FIX: string = `use a power of two from 1 to ${SLOT_GROUPS_MAX}`

export function isSlotGroups(count: unknown): count is number {
  return Number.isInteger(count) && isPowerOfTwo(count as number) && (count as number) <= SLOT_GROUPS_MAX
}

function isPowerOfTwo(count: number): boolean {
  return count >= 1 && Number.isInteger(Math.log2(count))
}

type Owned = Omit<BucketName, 'detail'>

export class SlotGroups {
  readonly count: number
  /** One for each group. */
  readonly slots: readonly number[]
  readonly #tags: readonly string[]
  readonly #seed: HashSeed
  readonly #hash = new HalfSipHash()

  /** Secret and count have to be the same on every node. `count` is a power of two. */
  constructor(secret: string, count: number = SLOT_GROUPS_DEFAULT) {
    const digest = hmacSha256(secret, 'slots', 'utf8')
    this.#seed = seedOf(wordAt(digest, 0), wordAt(digest, 4))
    this.count = count
    this.#tags = tagsOf(count)
    this.slots = this.#tags.map(slotOf)
  }

  slotOf(bucket: Owned): number {
    return this.slots[this.#groupOf(bucket)] as number // each group has one
  }

  /** The hash tag of all keys of the group. */
  tagOf(bucket: Owned): string {
    return this.#tags[this.#groupOf(bucket)] as string // each group has one
  }

  /** Shards of a split bucket go to groups far apart: four consecutive ones to four different quarters of the slots. */
  #groupOf({ limit, owner }: Owned): number {
    this.#hash.hash(this.#seed, limit.fact, owner)
    const offset = limit.shard === undefined ? 0 : reversedBits(limit.shard.index - 1, this.count)
    return (this.#hash.low + offset) & (this.count - 1)
  }
}

/** The four bytes at this position, of which the lowest comes first. */
function wordAt(digest: string, position: number): number {
  const byteAt = (index: number) => Number.parseInt(digest.slice(index * 2, index * 2 + 2), 16)
  return [3, 2, 1, 0].reduce((word, index) => (word << 8) | byteAt(position + index), 0)
}

/** For each group, the first number in braces whose slot lies in the group's range of slots. */
function tagsOf(count: number): string[] {
  const tags = new Map<number, string>()
  for (let number = 0; tags.size < count; number += 1) {
    const tag = `{${number}}`
    const group = Math.floor((slotOf(tag) * count) / SLOTS)
    if (!tags.has(group)) tags.set(group, tag)
  }
  return Array.from({ length: count }, (_, group) => tags.get(group) as string) // the loop found one for each
}

/** Reverses the bits of an index below `count`: consecutive indexes end up in different halves, quarters, … */
function reversedBits(index: number, count: number): number {
  let result = 0
  for (let low = 1, high = count / 2; high >= 1; low *= 2, high /= 2) if (index & low) result += high
  return result
}
