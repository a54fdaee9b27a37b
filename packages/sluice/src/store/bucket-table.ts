// Ten million buckets without an object per bucket: 24 bytes each in typed arrays, found by a keyed fingerprint.
// Segments are small hash tables behind a directory. A full one first drops buckets that cannot be told from fresh
// ones, then grows by an eighth of the largest size, then splits in two: no step ever touches more than one segment,
// so none stops the world. Arrays have one of eight sizes and are used again, so growing leaves little garbage behind.

/** Segments have 1 to 8 times so many slots. */
const STEP_SLOTS = 1024
const STEPS_MAX = 8
/** Sparse enough that most buckets are found at the first look: a second one is often a cache miss. */
const LOAD_MAX = 0.7
/** Arrays kept for use, per size. */
const POOL_MAX = 8
/**
 * A full segment of live buckets is not searched for dead ones again before this, or a flood would pay for a sweep per
 * key.
 */
const SWEEP_PAUSE_US = 200_000

/**
 * A slot is six words: two of fingerprint, then two numbers of 52 bits, each with half of the caller's tag in its spare
 * twelve. A fingerprint of (0, 0) is a free slot.
 */
const SLOT_WORDS = 6
const HIGH_BITS = 20
const HIGH_MASK = 2 ** HIGH_BITS - 1
const HALF_TAG = 2 ** 12
/** Tags are numbers below this. */
export const TAGS: number = HALF_TAG * HALF_TAG

class Segment {
  readonly words: Int32Array
  readonly slots: number
  readonly bits: number
  count = 0
  sweepAfterUs = 0

  constructor(words: Int32Array, bits: number) {
    this.words = words
    this.slots = words.length / SLOT_WORDS
    this.bits = bits
  }

  /** Where the slot of a fingerprint begins, or the free slot where it belongs. A segment always has a free slot. */
  wordOf(high: number, low: number): number {
    const { words } = this
    let word = SLOT_WORDS * (((low >>> 16) * this.slots) >>> 16)
    for (;;) {
      const a = words[word]
      const b = words[word + 1]
      if ((a === high && b === low) || (a === 0 && b === 0)) return word
      word += SLOT_WORDS
      if (word === words.length) word = 0
    }
  }

  isFull(): boolean {
    return this.count + 1 > this.slots * LOAD_MAX
  }

  /** Copies the slots that `keep` wants into whichever segment `target` names, word by word. */
  copyTo(target: (high: number) => Segment, keep: (word: number) => boolean): void {
    const { words } = this
    for (let word = 0; word < words.length; word += SLOT_WORDS) {
      const high = words[word] as number // within the array, as is the next
      const low = words[word + 1] as number
      if ((high !== 0 || low !== 0) && keep(word)) target(high).copyIn(high, low, words, word)
    }
  }

  copyIn(high: number, low: number, from: Int32Array, word: number): void {
    const { words } = this
    const start = this.wordOf(high, low)
    for (let offset = 0; offset < SLOT_WORDS; offset += 1) words[start + offset] = from[word + offset] as number
    this.count += 1
  }
}

// What these read and write is within the array: words come from wordOf or a loop over all slots.
function tagAt(words: Int32Array, word: number): number {
  return ((words[word + 3] as number) >>> HIGH_BITS) + ((words[word + 5] as number) >>> HIGH_BITS) * HALF_TAG
}

function numberAt(words: Int32Array, word: number): number {
  return ((words[word + 1] as number) & HIGH_MASK) * 2 ** 32 + ((words[word] as number) >>> 0)
}

function writeNumber(words: Int32Array, word: number, number: number, halfTag: number): void {
  words[word] = number | 0
  words[word + 1] = (number * 2 ** -32) | 0 | (halfTag << HIGH_BITS)
}

/** Who owns the numbers in the slots. */
export type SlotOwner = {
  /** Asked for each slot of a segment that is swept: true if the bucket cannot be told from a fresh one and may go. */
  isVacant(tag: number, first: number, second: number): boolean
  /** Told once about each bucket that went. */
  dropped(tag: number): void
}

export class BucketTable {
  count = 0
  readonly #owner: SlotOwner
  /** Arrays to be used again, by their number of steps. */
  readonly #pool: Int32Array[][] = Array.from({ length: STEPS_MAX + 1 }, () => [])
  #directory: Segment[] = [this.#newSegment(1, 1), this.#newSegment(1, 1)]
  #bits = 1
  #sweeping = 0
  // Where the last `find` ended. Reading and writing go through fields, so finding allocates nothing.
  #words: Int32Array = new Int32Array(SLOT_WORDS)
  #word = 0
  /** What was found there; zeros in a free slot. */
  tag = 0
  first = 0
  second = 0

  constructor(owner: SlotOwner) {
    this.#owner = owner
  }

  /** Looks a bucket up, never (0, 0), and leaves what it holds in `tag`, `first` and `second`. */
  find(high: number, low: number): boolean {
    const segment = this.#segmentOf(high)
    const { words } = segment
    const word = segment.wordOf(high, low)
    this.#words = words
    this.#word = word
    this.tag = tagAt(words, word)
    this.first = numberAt(words, word + 2)
    this.second = numberAt(words, word + 4)
    return words[word] !== 0 || words[word + 1] !== 0
  }

  /** Whole numbers of at least 0, below 2^52. */
  write(tag: number, first: number, second: number): void {
    writeNumber(this.#words, this.#word + 2, first, tag & (HALF_TAG - 1))
    writeNumber(this.#words, this.#word + 4, second, tag >>> 12)
  }

  /** Adds a bucket that is not there yet, growing if need be. */
  insert(high: number, low: number, tag: number, first: number, second: number, nowUs: number): void {
    if (this.#segmentOf(high).isFull() && !this.reclaim(high, nowUs)) this.#grow(this.#segmentOf(high))
    this.find(high, low)
    this.#words[this.#word] = high
    this.#words[this.#word + 1] = low
    this.write(tag, first, second)
    this.#segmentOf(high).count += 1
    this.count += 1
  }

  /** Drops vacant buckets where a new one would go, unless that was tried a moment ago; true when it made room. */
  reclaim(high: number, nowUs: number): boolean {
    const segment = this.#segmentOf(high)
    return nowUs >= segment.sweepAfterUs && this.#sweep(segment, nowUs)
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

  /** True when it freed an eighth of the segment, which is what makes the copy worth it. */
  #sweep(segment: Segment, nowUs: number): boolean {
    const { words } = segment
    segment.sweepAfterUs = nowUs + SWEEP_PAUSE_US
    let vacant = 0
    for (let word = 0; word < words.length; word += SLOT_WORDS) {
      const free = words[word] === 0 && words[word + 1] === 0
      if (!free && this.#isVacant(words, word)) vacant += 1
    }
    if (vacant < (segment.slots * LOAD_MAX) / 8) return false
    const kept = this.#newSegment(segment.count - vacant, segment.bits)
    segment.copyTo(
      () => kept,
      (word) => {
        const gone = this.#isVacant(words, word)
        if (gone) this.#owner.dropped(tagAt(words, word))
        return !gone
      },
    )
    this.count += kept.count - segment.count
    kept.sweepAfterUs = segment.sweepAfterUs
    this.#point(segment, kept, kept)
    return true
  }

  #isVacant(words: Int32Array, word: number): boolean {
    return this.#owner.isVacant(tagAt(words, word), numberAt(words, word + 2), numberAt(words, word + 4))
  }

  #grow(segment: Segment): void {
    if (segment.slots === STEPS_MAX * STEP_SLOTS) this.#split(segment)
    else {
      const larger = this.#newSegment(segment.count + 1, segment.bits)
      segment.copyTo(
        () => larger,
        () => true,
      )
      larger.sweepAfterUs = segment.sweepAfterUs
      this.#point(segment, larger, larger)
    }
  }

  #split(segment: Segment): void {
    if (segment.bits === this.#bits) {
      this.#directory = this.#directory.flatMap((entry) => [entry, entry])
      this.#bits += 1
    }
    const zero = this.#newSegment(segment.count / 2, segment.bits + 1)
    const one = this.#newSegment(segment.count / 2, segment.bits + 1)
    const bit = 31 - segment.bits
    segment.copyTo(
      (high) => ((high >>> bit) & 1 ? one : zero),
      () => true,
    )
    this.#point(segment, zero, one)
  }

  /** Points the directory entries of a segment at its successors, the first half at one, the second at the other. */
  #point(segment: Segment, zero: Segment, one: Segment): void {
    const first = this.#directory.indexOf(segment)
    const entries = 2 ** (this.#bits - segment.bits)
    this.#directory.fill(zero, first, first + entries)
    if (one !== zero) this.#directory.fill(one, first + entries / 2, first + entries)
    const spare = this.#pool[segment.slots / STEP_SLOTS]
    if (spare !== undefined && spare.length < POOL_MAX) spare.push(segment.words.fill(0))
  }

  /** Room for `count` buckets and for some more. */
  #newSegment(count: number, bits: number): Segment {
    const steps = Math.min(STEPS_MAX, Math.floor(count / (STEP_SLOTS * LOAD_MAX)) + 1)
    return new Segment(this.#pool[steps]?.pop() ?? new Int32Array(SLOT_WORDS * STEP_SLOTS * steps), bits)
  }
}
