import { describe, expect, it } from 'vitest'
import { BlockCache } from './block-cache.ts'
import { HpackDecoder } from './hpack.ts'

function decode(decoder: HpackDecoder, hex: string): string[] {
  const bytes = Buffer.from(hex.replaceAll(' ', ''), 'hex')
  return decoder.decode(bytes, 0, bytes.length)
}

const LIST_BYTES_MAX = 16 * 1024
const GET = [':method', 'GET', ':scheme', 'http', ':path', '/', ':authority', 'www.example.com']

describe('the examples of RFC 7541 decode as printed there', () => {
  it('C.3: requests without Huffman coding', () => {
    const decoder = new HpackDecoder(LIST_BYTES_MAX)
    expect(decode(decoder, '8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d')).toEqual(GET)
    expect(decode(decoder, '8286 84be 5808 6e6f 2d63 6163 6865')).toEqual([...GET, 'cache-control', 'no-cache'])
  })

  it('C.4: requests with Huffman coding', () => {
    const decoder = new HpackDecoder(LIST_BYTES_MAX)
    expect(decode(decoder, '8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff')).toEqual(GET)
    expect(decode(decoder, '8286 84be 5886 a8eb 1064 9cbf')).toEqual([...GET, 'cache-control', 'no-cache'])
    expect(decode(decoder, '8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf')).toEqual(
      [
        [':method', 'GET', ':scheme', 'https', ':path', '/index.html', ':authority', 'www.example.com'],
        ['custom-key', 'custom-value'],
      ].flat(),
    )
  })

  it('C.6: responses with Huffman coding and a table of 256 bytes, which evicts', () => {
    const decoder = new HpackDecoder(LIST_BYTES_MAX)
    const location = ['location', 'https://www.example.com']
    const date = ['date', 'Mon, 21 Oct 2013 20:13:21 GMT']
    const first = `3fe1 01 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
      2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3`
    const cached = ['cache-control', 'private', ...date, ...location]
    expect(decode(decoder, first.replaceAll(/\s/g, ''))).toEqual([':status', '302', ...cached])
    expect(decode(decoder, '4883 640e ffc1 c0bf')).toEqual([':status', '307', ...cached])
    const third = `88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d
      d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07`
    expect(decode(decoder, third.replaceAll(/\s/g, ''))).toEqual(
      [
        [':status', '200', 'cache-control', 'private', 'date', 'Mon, 21 Oct 2013 20:13:22 GMT', ...location],
        ['content-encoding', 'gzip'],
        ['set-cookie', 'foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1'],
      ].flat(),
    )
  })
})

describe('malformed blocks end the connection', () => {
  it.each([
    ['index 0', '80'],
    ['an index behind the table', 'be'],
    ['an unknown name index', '7f 00 01 61'],
    ['an endless integer', 'ff ff ff ff ff ff ff ff'],
    ['a truncated integer', 'ff'],
    ['a truncated name', '40 05 61'],
    ['a missing value', '40 01 61'],
    ['a length beyond the block', '40 01 61 7f ff ff 7f'],
    ['EOS inside a string', '40 01 61 84 ff ff ff ff'],
    ['padding with zeros', '40 01 61 81 00'],
    ['a table size above the announced one', '3f e2 1f'],
    ['a table size update behind a header', '82 20'],
  ])('%s', (_, hex) => {
    expect(() => decode(new HpackDecoder(LIST_BYTES_MAX), hex)).toThrow(/^malformed header block/)
  })
})

describe('the tables are bounded', () => {
  it('a list above the cap is decoded to its end, but not collected', () => {
    const decoder = new HpackDecoder(200)
    const header = `40 01 61 7f 00${'62'.repeat(127)}` // 160 bytes with the overhead of an entry
    expect(decode(decoder, `${header} be be 40 01 63 01 64`)).toHaveLength(2)
    expect(decoder.isTooLarge).toBe(true)
    expect(decode(decoder, 'be')).toEqual(['c', 'd'])
    expect(decoder.isTooLarge).toBe(false)
  })

  it('an entry larger than the table empties it', () => {
    const decoder = new HpackDecoder(LIST_BYTES_MAX)
    decode(decoder, '40 01 61 01 62')
    decode(decoder, `40 01 61 7f a1 1f${'62'.repeat(127 + 4001)}`)
    expect(() => decode(decoder, 'be')).toThrow(/index 62/)
  })

  it('the oldest of more than 128 entries leave', () => {
    const decoder = new HpackDecoder(LIST_BYTES_MAX)
    for (let index = 0; index < 1000; index += 1) decode(decoder, `40 01 61 02 ${hexOf(index)}`)
    const entries = Math.floor(4096 / 35)
    const [, newest] = decode(decoder, 'be')
    const oldest = decode(decoder, indexed(61 + entries))[1]
    expect([newest, oldest]).toEqual([textOf(999), textOf(1000 - entries)])
    expect(() => decode(decoder, indexed(62 + entries))).toThrow(/index/)
  })
})

describe('the cache of header blocks', () => {
  const bytes = Buffer.from('a block of bytes')

  it('finds equal bytes at any offset, and no others', () => {
    const cache = new BlockCache<string>()
    cache.store(bytes, 2, 7, 0, 'block')
    const moved = Buffer.concat([Buffer.from('0123'), bytes.subarray(2, 7)])
    expect(cache.find(moved, 4, 9, 0)).toBe('block')
    expect(cache.find(moved, 4, 8, 0)).toBeUndefined()
    moved[8] = 0
    expect(cache.find(moved, 4, 9, 0)).toBeUndefined()
  })

  it('forgets everything when the table of the decoder changes', () => {
    const cache = new BlockCache<string>()
    cache.store(bytes, 0, 4, 1, 'old')
    expect(cache.find(bytes, 0, 4, 2)).toBeUndefined()
    cache.store(bytes, 4, 8, 2, 'new')
    expect(cache.find(bytes, 0, 4, 2)).toBeUndefined()
    expect(cache.find(bytes, 4, 8, 2)).toBe('new')
  })
})

function hexOf(index: number): string {
  return index.toString(16).padStart(4, '0')
}

function textOf(index: number): string {
  return Buffer.from(hexOf(index), 'hex').toString('latin1')
}

/** An indexed header whose index needs one more byte than its prefix. */
function indexed(index: number): string {
  const rest = index - 127
  return rest < 128 ? `ff ${rest.toString(16).padStart(2, '0')}` : `ff ${((rest & 127) | 128).toString(16)} 01`
}
