// HPACK decoder (RFC 7541) of one connection: static table, bounded dynamic table, Huffman. Every malformed block
// throws, because the tables of both ends differ from then on. The server encodes without a table: see response.ts.

import { CODE, ConnectionError } from './frames.ts'
import { decodeHuffman } from './huffman.ts'
import { STATIC_LENGTH, STATIC_NAMES, STATIC_VALUES } from './static-table.ts'

/** Default of SETTINGS_HEADER_TABLE_SIZE; this server announces no other value. */
const TABLE_BYTES_MAX = 4096
/** RFC 7541, section 4.1: size of an entry beyond its strings. */
const ENTRY_BYTES = 32
const ENTRIES_MAX = TABLE_BYTES_MAX / ENTRY_BYTES
/** An integer of more continuation bytes exceeds every valid length and index. */
const INTEGER_SHIFT_MAX = 21
/** Encoded blocks are capped below 20 KiB, and Huffman codes have at least 5 bits. */
const scratch = Buffer.allocUnsafeSlow(32 * 1024)

export class HpackDecoder {
  /** Increases with every change of the dynamic table: a block decodes to the same list while it stays the same. */
  generation = 0
  /** Whether the last list exceeded the cap. The rest of its block was decoded, but not collected. */
  isTooLarge = false
  readonly #listBytesMax: number
  // Ring buffer: entry i (0 is the newest) is at (#next - 1 - i) mod ENTRIES_MAX.
  readonly #names: string[] = []
  readonly #values: string[] = []
  #next = 0
  #count = 0
  #bytes = 0
  #bytesMax = TABLE_BYTES_MAX
  #at = 0

  constructor(listBytesMax: number) {
    this.#listBytesMax = listBytesMax
  }

  /** Returns names and values alternately. */
  decode(bytes: Buffer, start: number, end: number): string[] {
    const list: string[] = []
    let listBytes = 0
    this.isTooLarge = false
    this.#at = start
    while (this.#at < end) {
      const first = bytes[this.#at] as number
      if ((first & 0xe0) === 0x20) {
        if (listBytes > 0) throw malformed('table size update after a header')
        this.#resize(this.#integer(bytes, end, 5))
        continue
      }
      let name: string
      let value: string
      if (first >= 0x80) {
        const index = this.#integer(bytes, end, 7)
        name = this.#nameAt(index)
        value = this.#valueAt(index)
      } else {
        const isIndexed = first >= 0x40
        const index = this.#integer(bytes, end, isIndexed ? 6 : 4)
        name = index === 0 ? this.#string(bytes, end) : this.#nameAt(index)
        value = this.#string(bytes, end)
        if (isIndexed) this.#insert(name, value)
      }
      listBytes += name.length + value.length + ENTRY_BYTES
      if (listBytes <= this.#listBytesMax) list.push(name, value)
      else this.isTooLarge = true
    }
    return list
  }

  #integer(bytes: Buffer, end: number, prefixBits: number): number {
    const mask = (1 << prefixBits) - 1
    let value = (bytes[this.#at] as number) & mask
    this.#at += 1
    if (value < mask) return value
    for (let shift = 0; shift <= INTEGER_SHIFT_MAX && this.#at < end; shift += 7) {
      const byte = bytes[this.#at] as number
      this.#at += 1
      value += (byte & 0x7f) << shift
      if (byte < 0x80) return value
    }
    throw malformed('integer')
  }

  #string(bytes: Buffer, end: number): string {
    if (this.#at >= end) throw malformed('truncated string')
    const isHuffman = (bytes[this.#at] as number) >= 0x80
    const length = this.#integer(bytes, end, 7)
    const start = this.#at
    if (length > end - start) throw malformed('truncated string')
    this.#at = start + length
    if (!isHuffman) return bytes.toString('latin1', start, this.#at)
    const text = decodeHuffman(bytes, start, this.#at, scratch)
    if (text === undefined) throw malformed('Huffman code')
    return text
  }

  #nameAt(index: number): string {
    return index <= STATIC_LENGTH && index > 0 ? (STATIC_NAMES[index] as string) : this.#dynamic(this.#names, index)
  }

  #valueAt(index: number): string {
    return index <= STATIC_LENGTH && index > 0 ? (STATIC_VALUES[index] as string) : this.#dynamic(this.#values, index)
  }

  #dynamic(column: readonly string[], index: number): string {
    const entry = index - STATIC_LENGTH - 1
    if (entry < 0 || entry >= this.#count) throw malformed(`index ${index}`)
    return column[(this.#next - 1 - entry + ENTRIES_MAX) % ENTRIES_MAX] as string
  }

  #insert(name: string, value: string): void {
    const bytes = name.length + value.length + ENTRY_BYTES
    this.generation += 1
    this.#evictTo(this.#bytesMax - bytes)
    if (bytes > this.#bytesMax) return // RFC 7541, section 4.4: empties the table, which is no error
    this.#names[this.#next] = name
    this.#values[this.#next] = value
    this.#next = (this.#next + 1) % ENTRIES_MAX
    this.#count += 1
    this.#bytes += bytes
  }

  #resize(bytesMax: number): void {
    if (bytesMax > TABLE_BYTES_MAX) throw malformed(`table size ${bytesMax}`)
    this.generation += 1
    this.#bytesMax = bytesMax
    this.#evictTo(bytesMax)
  }

  #evictTo(bytesMax: number): void {
    while (this.#bytes > bytesMax && this.#count > 0) {
      const oldest = (this.#next - this.#count + ENTRIES_MAX) % ENTRIES_MAX
      this.#bytes -= (this.#names[oldest] as string).length + (this.#values[oldest] as string).length + ENTRY_BYTES
      this.#names[oldest] = '' // lets the strings be collected
      this.#values[oldest] = ''
      this.#count -= 1
    }
  }
}

function malformed(what: string): ConnectionError {
  return new ConnectionError(CODE.compression, `malformed header block: ${what}`)
}
