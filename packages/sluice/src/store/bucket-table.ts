// Ten million buckets without an object per bucket: 24 bytes each in typed arrays, found by a keyed fingerprint.
// Segments are small hash tables behind a directory. A full one first drops buckets that cannot be told from fresh
// ones, then grows by a chunk, then splits in two: no step ever touches more than one segment, so none stops the world.
// Chunks are all of one size and used again, so growing leaves no holes in the heap and no garbage behind.

const CHUNK_SLOTS = 1024
const CHUNK_BITS = 10
const SEGMENT_CHUNKS_MAX = 8
/** Sparse enough that most buckets are found at the first look: a second one is often a cache miss. */
const LOAD_MAX = 0.7
const POOL_CHUNKS_MAX = 64
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

type Chunk = Int32Array

class Segment {
  readonly chunks: readonly Chunk[]
  readonly slots: number
  readonly bits: number
  count = 0
  sweepAfterUs = 0

  constructor(chunks: readonly Chunk[], bits: number) {
    this.chunks = chunks
    this.slots = chunks.length * CHUNK_SLOTS
    this.bits = bits
  }

  /** The slot of a fingerprint, or the free slot where it belongs. A segment always has a free slot. */
  slotOf(high: number, low: number): number {
    const { slots } = this
    let slot = ((low >>> 0) * slots * 2 ** -32) | 0
    for (;;) {
      const chunk = this.chunkOf(slot)
      const word = wordOf(slot)
      const a = chunk[word]
      const b = chunk[word + 1]
      if ((a === high && b === low) || (a === 0 && b === 0)) return slot
      slot = slot + 1 === slots ? 0 : slot + 1
    }
  }

  chunkOf(slot: number): Chunk {
    return this.chunks[slot >>> CHUNK_BITS] as Chunk // every slot below `slots` is in one of the chunks
  }

  isFull(): boolean {
    return this.count + 1 > this.slots * LOAD_MAX
  }

  /** Copies the slots that `keep` wants into whichever segment `target` names, word by word. */
  copyTo(target: (high: number) => Segment, keep: (chunk: Chunk, word: number) => boolean): void {
    for (const chunk of this.chunks) {
      for (let word = 0; word < chunk.length; word += SLOT_WORDS) {
        const high = chunk[word] as number // within the chunk, as is the next
        const low = chunk[word + 1] as number
        if ((high !== 0 || low !== 0) && keep(chunk, word)) target(high).copyIn(high, low, chunk, word)
      }
    }
  }

  copyIn(high: number, low: number, from: Chunk, word: number): void {
    const slot = this.slotOf(high, low)
    const chunk = this.chunkOf(slot)
    const start = wordOf(slot)
    for (let offset = 0; offset < SLOT_WORDS; offset += 1) chunk[start + offset] = from[word + offset] as number
    this.count += 1
  }
}

function wordOf(slot: number): number {
  return SLOT_WORDS * (slot & (CHUNK_SLOTS - 1))
}

// What these read and write is within the chunk: words come from wordOf or a loop over all slots.
function tagAt(chunk: Chunk, word: number): number {
  const low = (chunk[word + 3] as number) >>> HIGH_BITS
  return low + ((chunk[word + 5] as number) >>> HIGH_BITS) * HALF_TAG
}

function numberAt(chunk: Chunk, word: number): number {
  return ((chunk[word + 1] as number) & HIGH_MASK) * 2 ** 32 + ((chunk[word] as number) >>> 0)
}

function writeNumber(chunk: Chunk, word: number, number: number, halfTag: number): void {
  chunk[word] = number | 0
  chunk[word + 1] = (number * 2 ** -32) | 0 | (halfTag << HIGH_BITS)
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
  readonly #pool: Chunk[] = []
  #directory: Segment[] = [new Segment([newChunk()], 1), new Segment([newChunk()], 1)]
  #bits = 1
  #sweeping = 0
  // Where the last `find` ended: reading and writing go through these, so finding allocates nothing.
  #chunk: Chunk = newChunk()
  #word = 0

  constructor(owner: SlotOwner) {
    this.#owner = owner
  }

  /** Looks a bucket up, never (0, 0); when it is there, the next four are about it. */
  find(high: number, low: number): boolean {
    const segment = this.#segmentOf(high)
    const slot = segment.slotOf(high, low)
    const chunk = segment.chunkOf(slot)
    const word = wordOf(slot)
    this.#chunk = chunk
    this.#word = word
    return chunk[word] !== 0 || chunk[word + 1] !== 0
  }

  get tag(): number {
    return tagAt(this.#chunk, this.#word)
  }

  get first(): number {
    return numberAt(this.#chunk, this.#word + 2)
  }

  get second(): number {
    return numberAt(this.#chunk, this.#word + 4)
  }

  /** Whole numbers of at least 0, below 2^52. */
  write(tag: number, first: number, second: number): void {
    writeNumber(this.#chunk, this.#word + 2, first, tag & (HALF_TAG - 1))
    writeNumber(this.#chunk, this.#word + 4, second, tag >>> 12)
  }

  /** Adds a bucket that is not there yet, growing if need be. */
  insert(high: number, low: number, tag: number, first: number, second: number, nowUs: number): void {
    if (this.#segmentOf(high).isFull() && !this.reclaim(high, nowUs)) this.#grow(this.#segmentOf(high))
    this.find(high, low)
    this.#chunk[this.#word] = high
    this.#chunk[this.#word + 1] = low
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
    segment.sweepAfterUs = nowUs + SWEEP_PAUSE_US
    let vacant = 0
    for (const chunk of segment.chunks) {
      for (let word = 0; word < chunk.length; word += SLOT_WORDS) {
        const free = chunk[word] === 0 && chunk[word + 1] === 0
        if (!free && this.#isVacant(chunk, word)) vacant += 1
      }
    }
    if (vacant < (segment.slots * LOAD_MAX) / 8) return false
    const kept = this.#newSegment(segment.count - vacant, segment.bits)
    segment.copyTo(
      () => kept,
      (chunk, word) => {
        const gone = this.#isVacant(chunk, word)
        if (gone) this.#owner.dropped(tagAt(chunk, word))
        return !gone
      },
    )
    this.count += kept.count - segment.count
    kept.sweepAfterUs = segment.sweepAfterUs
    this.#point(segment, kept, kept)
    return true
  }

  #isVacant(chunk: Chunk, word: number): boolean {
    return this.#owner.isVacant(tagAt(chunk, word), numberAt(chunk, word + 2), numberAt(chunk, word + 4))
  }

  #grow(segment: Segment): void {
    if (segment.chunks.length === SEGMENT_CHUNKS_MAX) this.#split(segment)
    else {
      const larger = new Segment(this.#newChunks(segment.chunks.length + 1), segment.bits)
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
    for (const chunk of segment.chunks) if (this.#pool.length < POOL_CHUNKS_MAX) this.#pool.push(chunk.fill(0))
  }

  /** Room for `count` buckets and for some more. */
  #newSegment(count: number, bits: number): Segment {
    const chunks = Math.floor(count / (CHUNK_SLOTS * LOAD_MAX)) + 1
    return new Segment(this.#newChunks(Math.min(SEGMENT_CHUNKS_MAX, chunks)), bits)
  }

  #newChunks(count: number): Chunk[] {
    return Array.from({ length: count }, () => this.#pool.pop() ?? newChunk())
  }
}

function newChunk(): Chunk {
  return new Int32Array(SLOT_WORDS * CHUNK_SLOTS)
}
