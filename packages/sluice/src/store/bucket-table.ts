// Ten million buckets without an object per bucket: 32 bytes each in typed arrays, found by a 64-bit fingerprint.
// Segments are small hash tables behind a directory. A full one first drops buckets that cannot be told from fresh
// ones, then grows by an eighth, then splits in two: no step ever touches more than one segment, so none stops the world.

const SLOTS_MIN = 64
const SLOTS_MAX = 8192
const LOAD_MAX = 0.88
const GROWTH = 1.125
/** A full segment of live buckets is not searched for dead ones again before this, or a flood would pay for a sweep per key. */
const SWEEP_PAUSE_US = 200_000

/**
 * A slot is 32 bytes, so that a bucket is found, read and written in one cache line: two 32-bit words of fingerprint, two
 * numbers that the caller wants to remember, and the caller's tag. Fingerprint (0, 0) is a free slot.
 */
class Segment {
  readonly words: Int32Array
  readonly numbers: Float64Array
  readonly slots: number
  readonly bits: number
  count = 0
  sweepAfterUs = 0

  constructor(slots: number, bits: number) {
    const buffer = new ArrayBuffer(32 * slots)
    this.words = new Int32Array(buffer)
    this.numbers = new Float64Array(buffer)
    this.slots = slots
    this.bits = bits
  }

  /** The slot of a fingerprint, or the free slot where it belongs. A segment always has a free slot. */
  slotOf(high: number, low: number): number {
    const { words, slots } = this
    let slot = ((low >>> 0) * slots * 2 ** -32) | 0
    for (;;) {
      const a = words[8 * slot]
      const b = words[8 * slot + 1]
      if ((a === high && b === low) || (a === 0 && b === 0)) return slot
      slot = slot + 1 === slots ? 0 : slot + 1
    }
  }

  isFree(slot: number): boolean {
    return this.words[8 * slot] === 0 && this.words[8 * slot + 1] === 0
  }

  // Slots come from slotOf or a loop over all of them, so each of these four is within its array.
  first(slot: number): number {
    return this.numbers[4 * slot + 1] as number
  }

  second(slot: number): number {
    return this.numbers[4 * slot + 2] as number
  }

  tag(slot: number): number {
    return this.words[8 * slot + 6] as number
  }

  write(slot: number, first: number, second: number, tag: number): void {
    this.numbers[4 * slot + 1] = first
    this.numbers[4 * slot + 2] = second
    this.words[8 * slot + 6] = tag
  }

  get isFull(): boolean {
    return this.count + 1 > this.slots * LOAD_MAX
  }

  insert(high: number, low: number, first: number, second: number, tag: number): void {
    const slot = this.slotOf(high, low)
    this.words[8 * slot] = high
    this.words[8 * slot + 1] = low
    this.write(slot, first, second, tag)
    this.count += 1
  }

  /** Copies the slots that `keep` wants into whichever segment `target` names. */
  copyTo(target: (high: number) => Segment, keep: (segment: Segment, slot: number) => boolean): void {
    for (let slot = 0; slot < this.slots; slot += 1) {
      if (this.isFree(slot) || !keep(this, slot)) continue
      const high = this.words[8 * slot] as number // within the array, as is the next
      const low = this.words[8 * slot + 1] as number
      target(high).insert(high, low, this.first(slot), this.second(slot), this.tag(slot))
    }
  }
}

export type { Segment }

/** Who owns the numbers in the slots. */
export type SlotOwner = {
  /** Asked for each slot of a segment that is swept: true if the bucket cannot be told from a fresh one and may go. */
  isVacant(first: number, second: number, tag: number): boolean
  /** Told once about each bucket that went. */
  dropped(tag: number): void
}

export class BucketTable {
  count = 0
  /** Where the last `find` or `insert` ended: reading and writing go through these two, so finding allocates nothing. */
  segment: Segment = new Segment(SLOTS_MIN, 1)
  slot = 0
  #directory: Segment[] = [this.segment, new Segment(SLOTS_MIN, 1)]
  #bits = 1
  #sweeping = 0
  readonly #owner: SlotOwner

  constructor(owner: SlotOwner) {
    this.#owner = owner
  }

  /** Points `segment` and `slot` at the bucket; false when it is not there. */
  find(high: number, low: number): boolean {
    const segment = this.#segmentOf(high)
    const slot = segment.slotOf(high, low)
    this.segment = segment
    this.slot = slot
    return !segment.isFree(slot)
  }

  /** Room for one more bucket where the last `find` missed: made by reclaiming, or by growing unless told not to. */
  makeRoom(high: number, nowUs: number, mayGrow: boolean): boolean {
    const segment = this.#segmentOf(high)
    if (mayGrow && !segment.isFull) return true
    if (nowUs >= segment.sweepAfterUs && this.#sweep(segment, nowUs)) return true
    if (!mayGrow) return false
    const slots = Math.ceil(segment.slots * GROWTH)
    if (slots <= SLOTS_MAX) this.#replace(segment, new Segment(slots, segment.bits))
    else this.#split(segment)
    return true
  }

  /** A bucket that is not there yet; `makeRoom` came first. Fingerprint (0, 0) means free, so it is never stored. */
  insert(high: number, low: number, first: number, second: number, tag: number): void {
    this.#segmentOf(high).insert(high, low, first, second, tag)
    this.count += 1
  }

  /** Reclaims the next segment in turn, so that memory of a quiet store is found as well. */
  sweepNext(nowUs: number): void {
    this.#sweeping = (this.#sweeping + 1) % this.#directory.length
    this.#sweep(this.#segmentAt(this.#sweeping), nowUs)
  }

  #segmentOf(high: number): Segment {
    return this.#segmentAt(high >>> (32 - this.#bits))
  }

  #segmentAt(index: number): Segment {
    return this.#directory[index] as Segment // the directory has 2^bits entries and every index has `bits` bits
  }

  /** Drops vacant buckets; true when that freed an eighth of the segment, enough to be worth the copy. */
  #sweep(segment: Segment, nowUs: number): boolean {
    segment.sweepAfterUs = nowUs + SWEEP_PAUSE_US
    let live = 0
    for (let slot = 0; slot < segment.slots; slot += 1) {
      if (!segment.isFree(slot) && !this.#vacant(segment, slot)) live += 1
    }
    if (segment.count - live < Math.max(1, segment.slots / 8)) return false
    const slots = Math.max(SLOTS_MIN, Math.ceil((live * GROWTH) / LOAD_MAX))
    this.#replace(segment, new Segment(slots, segment.bits), (from, slot) => {
      const vacant = this.#vacant(from, slot)
      if (vacant) this.#owner.dropped(from.tag(slot))
      return !vacant
    })
    return true
  }

  #vacant(segment: Segment, slot: number): boolean {
    return this.#owner.isVacant(segment.first(slot), segment.second(slot), segment.tag(slot))
  }

  #replace(segment: Segment, by: Segment, keep: (segment: Segment, slot: number) => boolean = () => true): void {
    segment.copyTo(() => by, keep)
    by.sweepAfterUs = segment.sweepAfterUs
    this.count += by.count - segment.count
    this.#point(segment, by, by)
  }

  #split(segment: Segment): void {
    if (segment.bits === this.#bits) {
      this.#directory = this.#directory.flatMap((entry) => [entry, entry])
      this.#bits += 1
    }
    const slots = Math.ceil((segment.count / 2) * (GROWTH / LOAD_MAX)) + SLOTS_MIN
    const zero = new Segment(slots, segment.bits + 1)
    const one = new Segment(slots, segment.bits + 1)
    const bit = 31 - segment.bits
    segment.copyTo(
      (high) => ((high >>> bit) & 1 ? one : zero),
      () => true,
    )
    this.#point(segment, zero, one)
  }

  /** Points the directory entries of a segment at its successors: the first half at one, the second at the other. */
  #point(segment: Segment, zero: Segment, one: Segment): void {
    const first = this.#directory.indexOf(segment)
    const entries = 2 ** (this.#bits - segment.bits)
    this.#directory.fill(zero, first, first + entries)
    if (one !== zero) this.#directory.fill(one, first + entries / 2, first + entries)
  }
}
