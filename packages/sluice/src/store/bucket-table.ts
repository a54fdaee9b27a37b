// Hash table for millions of buckets: 24 bytes each in typed arrays, found by a keyed fingerprint. A directory points
// to segments, which are small hash tables. A full segment first reclaims vacant buckets, then grows by a chunk, then
// splits in two: no step touches more than one segment, so pauses stay short. Chunks have one size and are pooled.

const CHUNK_ENTRIES = 1024
const CHUNK_BITS = 10
const SEGMENT_CHUNKS_MAX = 8
/** Low enough that most lookups need one probe: a second one is often a cache miss. */
const LOAD_MAX = 0.7
const POOL_CHUNKS_MAX = 64
/**
 * Pause between sweeps of a segment. Without it, a flood would cause a sweep per key.
 */
const SWEEP_PAUSE_US = 200_000

/**
 * An entry is six words: a fingerprint of two, then two 52-bit numbers, each with half of the caller's tag in its spare
 * 12 bits. A fingerprint of (0, 0) marks a free entry.
 */
const ENTRY_WORDS = 6
const HIGH_BITS = 20
const HIGH_MASK = 2 ** HIGH_BITS - 1
/** Tags are below the square of this. */
const HALF_TAG = 2 ** 12

type Chunk = Int32Array

/** Placeholder where a segment has no chunk. */
const NO_CHUNK: Chunk = new Int32Array(0)

/** A segment of the table; lookups find its entries through the directory. */
class Segment {
  readonly chunks: readonly Chunk[]
  readonly entries: number
  /** Number of leading fingerprint bits that select this segment. */
  readonly bits: number
  count = 0
  sweepAfterUs = 0

  constructor(chunks: readonly Chunk[], bits: number) {
    this.chunks = chunks
    this.entries = chunks.length * CHUNK_ENTRIES
    this.bits = bits
  }

  isFull(): boolean {
    return this.count + 1 > this.entries * LOAD_MAX
  }

  /** Calls `each` with the position of each bucket. */
  visit(each: (chunk: Chunk, word: number) => void): void {
    for (const chunk of this.chunks) {
      for (let word = 0; word < chunk.length; word += ENTRY_WORDS) if (!isFree(chunk, word)) each(chunk, word)
    }
  }
}

// All indexes are within the chunk: words come from an entry number or a loop over all entries.
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

/** Callbacks of the table's owner, who knows what the numbers mean. */
export type EntryOwner = {
  /** Whether a bucket equals an unused one, so that a sweep may drop it. */
  isVacant(tag: number, first: number, second: number): boolean
  /** Called once for each dropped bucket. */
  dropped(tag: number): void
}

export class BucketTable {
  count = 0
  /** Contents of the entry that the last `find` ended at; zeros if it is free. */
  tag = 0
  first = 0
  second = 0
  readonly #owner: EntryOwner
  readonly #pool: Chunk[] = []
  /** Segment for each value of the first `#bits` bits; a segment with fewer bits fills several consecutive places. */
  #segments: Segment[] = [new Segment([newChunk()], 1), new Segment([newChunk()], 1)]
  // Flattened copy for lookups: place → number of entries, and place and entry → chunk.
  #entries = new Uint16Array(0)
  #chunks: Chunk[] = []
  #bits = 1
  #sweeping = 0
  // Position at which the last `find` ended. Fields instead of a return value: `find` allocates nothing.
  #chunk: Chunk = newChunk()
  #word = 0

  constructor(owner: EntryOwner) {
    this.#owner = owner
    this.#directAll()
  }

  /** Finds a bucket by its fingerprint, never (0, 0), and leaves its contents in `tag`, `first` and `second`. */
  find(high: number, low: number): boolean {
    const place = high >>> (32 - this.#bits)
    const entries = this.#entries[place] as number // the directory has 2^bits places
    let entry = ((low >>> 16) * entries) >>> 16
    for (;;) {
      const chunk = this.#chunks[place * SEGMENT_CHUNKS_MAX + (entry >>> CHUNK_BITS)] as Chunk
      const word = ENTRY_WORDS * (entry & (CHUNK_ENTRIES - 1))
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
      entry = entry + 1 === entries ? 0 : entry + 1
    }
  }

  /** Writes to the entry last found. Numbers are integers from 0 to 2^52 - 1. */
  write(tag: number, first: number, second: number): void {
    writeNumber(this.#chunk, this.#word + 2, first, tag & (HALF_TAG - 1))
    writeNumber(this.#chunk, this.#word + 4, second, tag >>> 12)
  }

  /** Adds a bucket that is not in the table; grows if necessary. */
  insert(high: number, low: number, tag: number, first: number, second: number, nowUs: number): void {
    if (this.#segmentOf(high).isFull() && !this.reclaim(high, nowUs)) this.#grow(this.#segmentOf(high))
    this.#place(high, low)
    this.write(tag, first, second)
    this.count += 1
  }

  /** Drops vacant buckets of the segment, at most once per SWEEP_PAUSE_US; true if that made room. */
  reclaim(high: number, nowUs: number): boolean {
    const segment = this.#segmentOf(high)
    return nowUs >= segment.sweepAfterUs && this.#sweep(segment, nowUs)
  }

  /** Reclaims the next segment in turn, so that an idle store frees memory too. */
  sweepNext(nowUs: number): void {
    this.#sweeping = (this.#sweeping + 1) % this.#segments.length
    this.#sweep(this.#segments[this.#sweeping] as Segment, nowUs)
  }

  #segmentOf(high: number): Segment {
    return this.#segments[high >>> (32 - this.#bits)] as Segment // as in `find`
  }

  /** Claims the free entry for a fingerprint. */
  #place(high: number, low: number): void {
    this.find(high, low)
    this.#chunk[this.#word] = high
    this.#chunk[this.#word + 1] = low
    this.#segmentOf(high).count += 1
  }

  /** Copies the segment without vacant buckets, if they are at least an eighth of it; returns whether it did. */
  #sweep(segment: Segment, nowUs: number): boolean {
    segment.sweepAfterUs = nowUs + SWEEP_PAUSE_US
    let vacant = 0
    segment.visit((chunk, word) => {
      if (this.#isVacant(chunk, word)) vacant += 1
    })
    if (vacant < (segment.entries * LOAD_MAX) / 8) return false
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
      this.#segments = this.#segments.flatMap((segment) => [segment, segment])
      this.#bits += 1
      this.#directAll()
    }
    const half = () => this.#newSegment(chunksFor(count / 2), segment, bits + 1)
    this.#replace(segment, [half(), half()])
  }

  /** Replaces a segment by one or two others, and moves its buckets into them. */
  #replace(segment: Segment, successors: readonly Segment[]): void {
    const first = this.#segments.indexOf(segment)
    const places = 2 ** (this.#bits - segment.bits)
    const each = places / successors.length
    successors.forEach((successor, index) => {
      this.#segments.fill(successor, first + index * each, first + (index + 1) * each)
    })
    this.#direct(first, first + places)
    segment.visit((chunk, word) => this.#copyIn(chunk, word))
    for (const chunk of segment.chunks) if (this.#pool.length < POOL_CHUNKS_MAX) this.#pool.push(chunk.fill(0))
  }

  #directAll(): void {
    this.#entries = new Uint16Array(this.#segments.length)
    this.#chunks = Array.from({ length: this.#segments.length * SEGMENT_CHUNKS_MAX }, () => NO_CHUNK)
    this.#direct(0, this.#segments.length)
  }

  /** Updates the lookup tables for some places of the directory. */
  #direct(first: number, end: number): void {
    for (let place = first; place < end; place += 1) {
      const { chunks, entries } = this.#segments[place] as Segment // within the directory
      this.#entries[place] = entries
      for (let index = 0; index < SEGMENT_CHUNKS_MAX; index += 1) {
        this.#chunks[place * SEGMENT_CHUNKS_MAX + index] = chunks[index] ?? NO_CHUNK
      }
    }
  }

  #copyIn(from: Chunk, word: number): void {
    this.#place(from[word] as number, from[word + 1] as number) // within the chunk
    for (let offset = 2; offset < ENTRY_WORDS; offset += 1) {
      this.#chunk[this.#word + offset] = from[word + offset] as number
    }
  }

  #newSegment(chunkCount: number, { bits, sweepAfterUs }: Segment, newBits: number = bits): Segment {
    const chunks = Array.from({ length: chunkCount }, () => this.#pool.pop() ?? newChunk())
    return Object.assign(new Segment(chunks, newBits), { sweepAfterUs })
  }
}

/** Chunks for `count` buckets, with spare room. */
function chunksFor(count: number): number {
  return Math.min(SEGMENT_CHUNKS_MAX, Math.floor(count / (CHUNK_ENTRIES * LOAD_MAX)) + 1)
}

function newChunk(): Chunk {
  return new Int32Array(ENTRY_WORDS * CHUNK_ENTRIES)
}
