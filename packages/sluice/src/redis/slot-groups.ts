// The few slots of a Cluster that are used. A script may touch one slot only, so owners are kept in groups of one slot
// each: checks of several owners then travel together and are decided by one script. A keyed hash chooses the group, so
// nobody can aim at one. Groups are spread evenly over the slots: primaries with as many slots have as many groups.
// More primaries than groups would be of no use.

import { createHmac } from 'node:crypto'
import { type HashSeed, KeyHash, seedOf } from '../store/half-sip-hash.ts'
import type { BucketName } from '../store/store.ts'
import { SLOTS, slotOf } from './slot.ts'

/** A power of two. */
const GROUPS = 16

type Owned = Omit<BucketName, 'detail'>

export class SlotGroups {
  readonly #tags: readonly string[] = tagsOfGroups()
  /** Those that are used. */
  readonly slots: readonly number[] = this.#tags.map(slotOf)
  readonly #seed: HashSeed
  readonly #hash = new KeyHash()

  /** The secret has to be the same on every node. */
  constructor(secret: string) {
    const key = createHmac('sha256', secret).update('slots').digest()
    this.#seed = seedOf(key.readUInt32LE(0), key.readUInt32LE(4))
  }

  slotOf(bucket: Owned): number {
    return this.slots[this.#groupOf(bucket)] as number // each group has one
  }

  /** The hash tag that all keys of the group have. */
  tagOf(bucket: Owned): string {
    return this.#tags[this.#groupOf(bucket)] as string // each group has one
  }

  /** The parts of a split bucket are in groups far apart: of four in a row, each in another quarter of the slots. */
  #groupOf({ limit, owner }: Owned): number {
    this.#hash.hash(this.#seed, limit.fact, owner)
    const offset = limit.shard === undefined ? 0 : reversed(limit.shard.index - 1)
    return (this.#hash.low + offset) & (GROUPS - 1)
  }
}

/** For each group the first number, in braces, whose slot lies in its part of all slots. */
function tagsOfGroups(): string[] {
  const tags = new Map<number, string>()
  for (let number = 0; tags.size < GROUPS; number += 1) {
    const tag = `{${number}}`
    const group = Math.floor((slotOf(tag) * GROUPS) / SLOTS)
    if (!tags.has(group)) tags.set(group, tag)
  }
  return Array.from({ length: GROUPS }, (_, group) => tags.get(group) as string) // there is one for each
}

/** The bits of a number backwards: of two, four, … in a row, each falls in another half, quarter, … of all groups. */
function reversed(index: number): number {
  let result = 0
  for (let low = 1, high = GROUPS / 2; high >= 1; low *= 2, high /= 2) if (index & low) result += high
  return result
}
