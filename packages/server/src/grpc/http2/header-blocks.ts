// Header blocks of one connection: HEADERS and CONTINUATION frames → a decoded list → a request. Every block is
// decoded, also those of refused streams, because each may change the decoder's table.

import type { Method, Peer } from '../method.ts'
import { BlockCache } from './block-cache.ts'
import { CODE, ConnectionError, FLAG, readUint31 } from './frames.ts'
import { HpackDecoder } from './hpack.ts'
import { areTrailersValid, parseRequest, type Request } from './request.ts'

export const HEADER_LIST_BYTES_MAX: number = 16 * 1024
/** Encoded blocks; one above this size ends the connection, because its rest would have to be decoded too. */
const HEADER_BLOCK_BYTES_MAX = 20 * 1024
const CONTINUATIONS_MAX = 16
const NO_BYTES: Buffer = Buffer.alloc(0)

export class HeaderBlocks {
  /** Stream of the block that waits for CONTINUATION; 0 without one. */
  openId = 0
  // The current block.
  id = 0
  isEnd = false
  isSelfDependent = false
  #bytes: Buffer = NO_BYTES
  #start = 0
  #end = 0
  readonly #decoder = new HpackDecoder(HEADER_LIST_BYTES_MAX)
  readonly #requests = new BlockCache<Request>()
  readonly #peer: Peer
  readonly #methods: ReadonlyMap<string, Method>
  #parts: Buffer[] = []
  #partBytes = 0

  constructor(peer: Peer, methods: ReadonlyMap<string, Method>) {
    this.#peer = peer
    this.#methods = methods
  }

  /** Takes a HEADERS frame; returns whether its block is complete. */
  begin(flags: number, id: number, bytes: Buffer, start: number, end: number): boolean {
    if (id % 2 === 0) throw new ConnectionError(CODE.protocol, 'HEADERS on an invalid stream id')
    let from = start
    let to = end
    if ((flags & FLAG.padded) !== 0) {
      to -= start < end ? (bytes[start] as number) : 0
      from += 1
    }
    this.isSelfDependent = false
    if ((flags & FLAG.priority) !== 0) {
      this.isSelfDependent = from + 5 <= to && readUint31(bytes, from) === id
      from += 5
    }
    if (from > to) throw new ConnectionError(CODE.protocol, 'padding or priority exceeds the frame')
    this.id = id
    this.isEnd = (flags & FLAG.endStream) !== 0
    if ((flags & FLAG.endHeaders) !== 0) {
      this.#bytes = bytes
      this.#start = from
      this.#end = to
      return true
    }
    this.openId = id
    this.#parts = [Buffer.from(bytes.subarray(from, to))]
    this.#partBytes = to - from
    return false
  }

  /** Takes a CONTINUATION frame; returns whether the block is complete. */
  append(flags: number, bytes: Buffer, start: number, end: number): boolean {
    if (this.openId === 0) throw new ConnectionError(CODE.protocol, 'CONTINUATION without HEADERS')
    this.#parts.push(Buffer.from(bytes.subarray(start, end)))
    this.#partBytes += end - start
    if (this.#partBytes > HEADER_BLOCK_BYTES_MAX || this.#parts.length > CONTINUATIONS_MAX) {
      throw new ConnectionError(CODE.calm, 'header block too large')
    }
    if ((flags & FLAG.endHeaders) === 0) return false
    this.#bytes = Buffer.concat(this.#parts)
    this.#start = 0
    this.#end = this.#bytes.length
    this.#parts = []
    this.openId = 0
    return true
  }

  /** Drops the view of the last read. */
  release(): void {
    this.#bytes = NO_BYTES
  }

  /** Request of the current block. Undefined: malformed. */
  request(): Request | 'too-large' | undefined {
    const decoder = this.#decoder
    const { generation } = decoder
    const known = this.#requests.find(this.#bytes, this.#start, this.#end, generation)
    if (known !== undefined) return known
    const list = decoder.decode(this.#bytes, this.#start, this.#end)
    if (decoder.isTooLarge) return 'too-large'
    const request = parseRequest(list, this.#peer, this.#methods)
    // Only blocks that leave the table unchanged decode to the same list again.
    if (request !== undefined && decoder.generation === generation) {
      this.#requests.store(this.#bytes, this.#start, this.#end, generation, request)
    }
    return request
  }

  /** Decodes the current block as trailers; returns whether they are valid. */
  trailers(): boolean {
    const list = this.#decoder.decode(this.#bytes, this.#start, this.#end)
    return this.isEnd && !this.isSelfDependent && areTrailersValid(list)
  }
}
