// Ten million buckets without an object per bucket: 24 bytes each in typed arrays, found by a keyed fingerprint.
// Segments are small hash tables behind a directory. A full one first drops buckets that cannot be told from fresh
// ones, then grows by a chunk, then splits in two: no step ever touches the buckets of more than one segment, so none
// stops the world. Chunks are all of one size and used again, so growing leaves no holes in the heap and no garbage.

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
/** Tags are numbers below the square of this. */
const HALF_TAG = 2 ** 12

type Chunk = Int32Array

/** Stands where a segment has no chunk. */
const NO_CHUNK: Chunk = new Int32Array(0)

/** What is known of a segment; its slots are found through the directory. */
class Segment {
  readonly chunks: readonly Chunk[]
  readonly slots: number
  /** So many of the first bits of a fingerprint lead here. */
  readonly bits: number
  count = 0
  sweepAfterUs = 0

  constructor(chunks: readonly Chunk[], bits: number) {
    this.chunks = chunks
    this.slots = chunks.length * CHUNK_SLOTS
    this.bits = bits
  }

  isFull(): boolean {
    return this.count + 1 > this.slots * LOAD_MAX
  }

  /** Calls `each` with the place of each bucket. */
  visit(each: (chunk: Chunk, word: number) => void): void {
    for (const chunk of this.chunks) {
      for (let word = 0; word < chunk.length; word += SLOT_WORDS) if (!isFree(chunk, word)) each(chunk, word)
    }
  }
}

// What these read and write is within the chunk: words come from a slot number or a loop over all slots.
function isFree(chunk: Chunk, word: number): boolean {
  return chunk[word] === 0 && chunk[word + 1] === 0
}

function tagAt(chunk: Chunk, word: number): number {
  return ((chunk[word + 3] as number) >>> HIGH_BITS) + ((chunk[word + 5] as number) >>> HIGH_BITS) * HALF_TAG
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
  /** What the last `find` found; zeros in a free slot. */
  tag = 0
  first = 0
  second = 0
  readonly #owner: SlotOwner
  readonly #pool: Chunk[] = []
  /** The segment that each value of the first `#bits` bits leads to; one of fewer bits has several entries in a row. */
  #segments: Segment[] = [new Segment([newChunk()], 1), new Segment([newChunk()], 1)]
  // The same once more as a lookup needs it, with as few steps from one to the next as can be: entry → slots, and
  // entry and slot → chunk.
  #slots = new Uint16Array(0)
  #chunks: Chunk[] = []
  #bits = 1
  #sweeping = 0
  // Where the last `find` ended. Reading and writing go through fields, so finding allocates nothing.
  #chunk: Chunk = newChunk()
  #word = 0

  constructor(owner: SlotOwner) {
    this.#owner = owner
    this.#directAll()
  }

  /** Looks a bucket up, never (0, 0), and leaves what it holds in `tag`, `first` and `second`. */
  find(high: number, low: number): boolean {
    const entry = high >>> (32 - this.#bits)
    const slots = this.#slots[entry] as number // the directory has 2^bits entries and `entry` has `bits` bits
    let slot = ((low >>> 16) * slots) >>> 16
    for (;;) {
      const chunk = this.#chunks[entry * SEGMENT_CHUNKS_MAX + (slot >>> CHUNK_BITS)] as Chunk // every slot is in one
      const word = SLOT_WORDS * (slot & (CHUNK_SLOTS - 1))
      const a = chunk[word]
      const b = chunk[word + 1]
      const free = a === 0 && b === 0
      if (free || (a === high && b === low)) {
        this.#chunk = chunk
        this.#word = word
        this.tag = tagAt(chunk, word)
        this.first = numberAt(chunk, word + 2)
        this.second = numberAt(chunk, word + 4)
        return !free
      }
      slot = slot + 1 === slots ? 0 : slot + 1
    }
  }

  /** Whole numbers of at least 0, below 2^52. */
  write(tag: number, first: number, second: number): void {
    writeNumber(this.#chunk, this.#word + 2, first, tag & (HALF_TAG - 1))
    writeNumber(this.#chunk, this.#word + 4, second, tag >>> 12)
  }

  /** Adds a bucket that is not there yet, growing if need be. */
  insert(high: number, low: number, tag: number, first: number, second: number, nowUs: number): void {
    if (this.#segmentOf(high).isFull() && !this.reclaim(high, nowUs)) this.#grow(this.#segmentOf(high))
    this.#place(high, low)
    this.write(tag, first, second)
    this.count += 1
  }

  /** Drops vacant buckets where a new one would go, unless that was tried a moment ago; true when it made room. */
  reclaim(high: number, nowUs: number): boolean {
    const segment = this.#segmentOf(high)
    return nowUs >= segment.sweepAfterUs && this.#sweep(segment, nowUs)
  }

  /** Reclaims the next segment in turn, so that memory of a quiet store is found as well. */
  sweepNext(nowUs: number): void {
    this.#sweeping = (this.#sweeping + 1) % this.#segments.length
    this.#sweep(this.#segments[this.#sweeping] as Segment, nowUs)
  }

  #segmentOf(high: number): Segment {
    return this.#segments[high >>> (32 - this.#bits)] as Segment // as in `find`
  }

  /** Takes the free slot where a fingerprint belongs. */
  #place(high: number, low: number): void {
    this.find(high, low)
    this.#chunk[this.#word] = high
    this.#chunk[this.#word + 1] = low
    this.#segmentOf(high).count += 1
  }

  /** True when it freed an eighth of the segment, which is what makes the copy worth it. */
  #sweep(segment: Segment, nowUs: number): boolean {
    segment.sweepAfterUs = nowUs + SWEEP_PAUSE_US
    let vacant = 0
    segment.visit((chunk, word) => {
      if (this.#isVacant(chunk, word)) vacant += 1
    })
    if (vacant < (segment.slots * LOAD_MAX) / 8) return false
    segment.visit((chunk, word) => {
      if (!this.#isVacant(chunk, word)) return
      this.#owner.dropped(tagAt(chunk, word))
      chunk.fill(0, word, word + 2)
    })
    this.count -= vacant
    this.#replace(segment, [this.#newSegment(chunksFor(segment.count - vacant), segment)])
    return true
  }

  #isVacant(chunk: Chunk, word: number): boolean {
    return this.#owner.isVacant(tagAt(chunk, word), numberAt(chunk, word + 2), numberAt(chunk, word + 4))
  }

  #grow(segment: Segment): void {
    const { chunks, count, bits } = segment
    if (chunks.length < SEGMENT_CHUNKS_MAX) {
      this.#replace(segment, [this.#newSegment(chunks.length + 1, segment)])
      return
    }
    if (bits === this.#bits) {
      this.#segments = this.#segments.flatMap((entry) => [entry, entry])
      this.#bits += 1
      this.#directAll()
    }
    const half = () => this.#newSegment(chunksFor(count / 2), segment, bits + 1)
    this.#replace(segment, [half(), half()])
  }

  /** Puts one or two segments in the place of one, and its buckets into them. */
  #replace(segment: Segment, successors: readonly Segment[]): void {
    const first = this.#segments.indexOf(segment)
    const entries = 2 ** (this.#bits - segment.bits)
    const each = entries / successors.length
    successors.forEach((successor, index) => {
      this.#segments.fill(successor, first + index * each, first + (index + 1) * each)
    })
    this.#direct(first, first + entries)
    segment.visit((chunk, word) => this.#copyIn(chunk, word))
    for (const chunk of segment.chunks) if (this.#pool.length < POOL_CHUNKS_MAX) this.#pool.push(chunk.fill(0))
  }

  #directAll(): void {
    this.#slots = new Uint16Array(this.#segments.length)
    this.#chunks = Array.from({ length: this.#segments.length * SEGMENT_CHUNKS_MAX }, () => NO_CHUNK)
    this.#direct(0, this.#segments.length)
  }

  /** Brings what a lookup needs up to date for some entries. */
  #direct(first: number, end: number): void {
    for (let entry = first; entry < end; entry += 1) {
      const { chunks, slots } = this.#segments[entry] as Segment // one of those that there are
      this.#slots[entry] = slots
      for (let index = 0; index < SEGMENT_CHUNKS_MAX; index += 1) {
        this.#chunks[entry * SEGMENT_CHUNKS_MAX + index] = chunks[index] ?? NO_CHUNK
      }
    }
  }

  #copyIn(from: Chunk, word: number): void {
    this.#place(from[word] as number, from[word + 1] as number) // within the chunk, as is all of the slot
    for (let offset = 2; offset < SLOT_WORDS; offset += 1) {
      this.#chunk[this.#word + offset] = from[word + offset] as number
    }
  }

  #newSegment(chunkCount: number, { bits, sweepAfterUs }: Segment, newBits: number = bits): Segment {
    const chunks = Array.from({ length: chunkCount }, () => this.#pool.pop() ?? newChunk())
    return Object.assign(new Segment(chunks, newBits), { sweepAfterUs })
  }
}

/** Room for `count` buckets and for some more. */
function chunksFor(count: number): number {
  return Math.min(SEGMENT_CHUNKS_MAX, Math.floor(count / (CHUNK_SLOTS * LOAD_MAX)) + 1)
}

function newChunk(): Chunk {
  return new Int32Array(SLOT_WORDS * CHUNK_SLOTS)
}
