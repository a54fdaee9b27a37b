import { seededRandom } from 'sluice/testing'
import { describe, expect, test } from 'vitest'
import { FIELDS_MAX } from '../../../sluice/src/remote/protobuf.ts'
import { ProtobufError, ProtobufReader, ProtobufWriter } from './protobuf.ts'

/** A reader at the first field. */
function first(bytes: Uint8Array | readonly number[]): ProtobufReader {
  const reader = new ProtobufReader(Uint8Array.from(bytes))
  reader.next()
  return reader
}

const write = () => new ProtobufWriter()

describe('what is written is read again', () => {
  test.each([0, 1, 127, 128, 16_383, 16_384, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1])('uint %d', (value) => {
    const bytes = write().uint(1, value, true).finish()
    expect([first(bytes).uint(), first(bytes).uint64(), first(bytes).int()]).toEqual([value, value, value])
    expect(first(bytes).uint32()).toBe(value % 2 ** 32)
  })

  test.each([-1, -128, -(2 ** 31), -(2 ** 53) + 1, 5])('int %d', (value) => {
    expect(first(write().int(1, value).finish()).int()).toBe(value)
  })

  test.each([0n, 2n ** 53n, 2n ** 53n + 1n, 2n ** 64n - 1n])('uint64 %d', (value) => {
    const read = first(write().uint64(1, value).finish()).uint64()
    expect(BigInt(read)).toBe(value)
  })

  test.each([0, -0.5, Number.MAX_VALUE, Number.POSITIVE_INFINITY])('double %d', (value) => {
    expect(first(write().double(1, value, true).finish()).double()).toBe(value)
  })

  test.each(['', 'a', 'ü', '😀', '\ufffd', 'x'.repeat(100_000)])('string %#', (value) => {
    expect(first(write().string(1, value, true).finish()).string()).toBe(value)
  })

  test.each([0, 1, 127, 128, 16_383, 16_384, 3_000_000])('a nested message of %d bytes', (length) => {
    const bytes = write()
      .message(3, (outer) => outer.message(1, (inner) => inner.bytes(2, Buffer.alloc(length, 7), true)).uint(9, 1))
      .string(4, 'after')
      .finish()
    const reader = new ProtobufReader(bytes)
    expect(reader.next()).toBe(3)
    const outer = reader.message()
    expect(outer.next()).toBe(1)
    const inner = outer.message()
    expect([inner.next(), inner.bytes().equals(Buffer.alloc(length, 7)), inner.next()]).toEqual([2, true, 0])
    expect([outer.next(), outer.uint(), outer.next()]).toEqual([9, 1, 0])
    expect([reader.next(), reader.string(), reader.next()]).toEqual([4, 'after', 0])
  })

  test('field numbers up to the largest one', () => {
    const reader = new ProtobufReader(write().bool(536_870_911, true).finish())
    expect([reader.next(), reader.bool()]).toEqual([536_870_911, true])
  })

  test('defaults are omitted, unless they are forced', () => {
    expect(write().uint(1, 0).string(2, '').bool(3, false).double(4, 0).bytes(5, Buffer.alloc(0)).finish().length).toBe(
      0,
    )
    expect([...write().uint(1, 0, true).bool(3, false, true).finish()]).toEqual([8, 0, 24, 0])
  })

  test('truncate discards what was written since', () => {
    const writer = write().uint(1, 5)
    const { length } = writer
    writer.string(2, 'half')
    writer.truncate(length)
    expect([...writer.finish()]).toEqual([8, 5])
  })
})

describe('hostile input', () => {
  test.each<[string, readonly number[], (reader: ProtobufReader) => unknown, string]>([
    ['a varint without end', [0x08, ...Array.from({ length: 11 }, () => 0xff)], (reader) => reader.uint(), '10 bytes'],
    ['a truncated varint', [0x08, 0x80], (reader) => reader.uint(), 'ends inside a field'],
    ['a length beyond the end', [0x0a, 0x05, 0x61], (reader) => reader.string(), 'ends after its message'],
    [
      'a length of 2^63',
      [0x0a, ...Array.from({ length: 8 }, () => 0xff), 0x7f],
      (reader) => reader.bytes(),
      'ends after',
    ],
    ['invalid UTF-8', [0x0a, 0x02, 0xc3, 0x28], (reader) => reader.string(), 'UTF-8'],
    ['an overlong encoding', [0x0a, 0x02, 0xc0, 0x80], (reader) => reader.string(), 'UTF-8'],
    ['a surrogate', [0x0a, 0x03, 0xed, 0xa0, 0x80], (reader) => reader.string(), 'UTF-8'],
    ['a truncated double', [0x09, 1, 2, 3], (reader) => reader.double(), 'ends after'],
    ['another wire type', [0x08, 0x01], (reader) => reader.string(), 'wire type 0 instead of 2'],
    ['a group', [0x0b, 0x0c], (reader) => reader.skip(), 'unsupported wire type 3'],
    ['an unknown wire type', [0x0f], (reader) => reader.skip(), 'unsupported wire type 7'],
    ['a skipped length beyond the end', [0x0a, 0x05], (reader) => reader.skip(), 'ends after'],
  ])('%s is an error', (_name, bytes, read, text) => {
    const reader = first(bytes)
    expect(() => read(reader)).toThrow(ProtobufError)
    expect(() => read(first(bytes))).toThrow(text)
  })

  test('a field number of 0 or above the largest one is an error', () => {
    for (const bytes of [[0x00], [0x02], [0x80, 0x80, 0x80, 0x80, 0x10], [0xff, 0xff, 0xff, 0xff, 0xff, 0x01]])
      expect(() => new ProtobufReader(Uint8Array.from(bytes)).next()).toThrow('invalid field number')
  })

  test('fields of nested messages count as those of the message; each item of a list has its own count', () => {
    const nested = Buffer.concat(Array.from({ length: FIELDS_MAX / 2 }, () => Buffer.of(0x08, 1)))
    const message = write().bytes(1, nested).bytes(1, nested).finish()
    const read = (open: (reader: ProtobufReader) => ProtobufReader) => {
      let fields = 0
      const reader = new ProtobufReader(message)
      while (reader.next() !== 0) {
        const inner = open(reader)
        for (; inner.next() !== 0; fields += 1) inner.skip()
      }
      return fields
    }
    expect(read((reader) => reader.item())).toBe(FIELDS_MAX)
    expect(() => read((reader) => reader.message())).toThrow('send at most 120000 fields in one message')
  })

  test('a nested message cannot be read beyond its end', () => {
    const nested = first([0x0a, 0x02, 0x0a, 0x05, 1, 2, 3, 4, 5]).message()
    nested.next()
    expect(() => nested.bytes()).toThrow('ends after its message')
  })

  test('a number that is no unsigned integer is not written', () => {
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY, 1.5, -1, 2 ** 53])
      expect(() => write().uint(1, value)).toThrow(RangeError)
  })

  test('random bytes are read to their end or rejected, and nothing else', () => {
    const random = seededRandom(7)
    let rejected = 0
    for (let round = 0; round < 5000; round += 1) {
      const bytes = Uint8Array.from({ length: random.between(0, 40) }, () => random.between(0, 255))
      try {
        const reader = new ProtobufReader(bytes)
        for (let field = reader.next(), count = 0; field !== 0; field = reader.next(), count += 1) {
          expect(count).toBeLessThan(bytes.length)
          reader.skip()
        }
      } catch (error) {
        expect(error).toBeInstanceOf(ProtobufError)
        rejected += 1
      }
    }
    expect(rejected).toBeGreaterThan(1000)
  })
})
