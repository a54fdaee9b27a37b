import { isIP, SocketAddress } from 'node:net'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { canonicalAddress, formatAddress, parseAddress } from './address.ts'

/** Canonical text → every notation of that client. Notations of two rows are two clients. */
const CLASSES: Readonly<Record<string, readonly string[]>> = {
  '1.2.3.4': [
    '1.2.3.4',
    '::ffff:1.2.3.4',
    '::FFFF:1.2.3.4',
    '::ffff:102:304',
    '::ffff:0102:0304',
    '::FfFf:102:304',
    '0:0:0:0:0:ffff:1.2.3.4',
    '0:0:0:0:0:ffff:102:304',
    '0000:0000:0000:0000:0000:ffff:0102:0304',
    '0:0::ffff:1.2.3.4',
    '::0:ffff:1.2.3.4',
    '0::ffff:102:304',
    '::ffff:1.2.3.4%eth0',
  ],
  '1.2.3.5': ['1.2.3.5', '::ffff:1.2.3.5', '::ffff:102:305'],
  '0.0.0.0': ['0.0.0.0', '::ffff:0:0', '::ffff:0.0.0.0'],
  '255.255.255.255': ['255.255.255.255', '::ffff:ffff:ffff', '::ffff:255.255.255.255'],
  '127.0.0.1': ['127.0.0.1', '::ffff:127.0.0.1', '::ffff:7f00:1'],
  '10.20.30.40': ['10.20.30.40', '::ffff:a14:1e28', '::FFFF:0A14:1E28'],
  '::/64': ['::', '::1', '0::', '::0', '0:0:0:0:0:0:0:1', '::1.2.3.4', '::fffe:1.2.3.4', '::ffff:0:1.2.3.4'],
  '2001:db8::/64': [
    '2001:db8::',
    '2001:db8::1',
    '2001:DB8::1',
    '2001:0db8::0001',
    '2001:db8:0:0:0:0:0:1',
    '2001:db8:0:0::1',
    '2001:db8::1.2.3.4',
    '2001:db8::ffff:1.2.3.4',
    '2001:db8::ffff:ffff:ffff:ffff',
    '2001:db8:0:0:1::',
    '2001:db8::1%eth0',
  ],
  '2001:db8:0:1::/64': ['2001:db8:0:1::', '2001:db8:0:1::1', '2001:db8:0:1:0:0:0:1', '2001:0DB8:0000:0001::ffff'],
  '2001:db8:1::/64': ['2001:db8:1::', '2001:db8:1:0:8000::', '2001:db8:1:0:1:2:3:4'],
  '2001:db8:1:2::/64': ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::6', '2001:db8:1:2:3:4:5::', '2001:db8:1:2:3:4:0.5.0.6'],
  '0:1::/64': ['0:1::', '0:1:0:0:1:2:3:4', '::1:0:0:1:2:3:4'],
  '64:ff9b::/64': ['64:ff9b::1.2.3.4', '64:ff9b::102:304', '0064:FF9B::'],
  'fe80::/64': ['fe80::1', 'fe80::1%eth0', 'FE80::1%en0', 'fe80::1%3', 'fe80:0:0:0:1:2:3:4', 'fe80::%lo'],
  '2002:102:304::/64': ['2002:102:304::', '2002:0102:0304::1'],
  'ffff:ffff:ffff:ffff::/64': ['ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'FFFF:FFFF:FFFF:FFFF::'],
}

const NOT_ADDRESSES = [
  ...[
    '',
    ' ',
    '1',
    '1.2.3',
    '1.2.3.4.5',
    '1.2.3.',
    '.1.2.3',
    '1..2.3',
    '1.2.3.256',
    '1.2.3.-4',
    '1.2.3.4 ',
    ' 1.2.3.4',
  ],
  ...[
    '01.2.3.4',
    '1.2.3.04',
    '00.0.0.0',
    '0x1.2.3.4',
    '1.2.3.4a',
    '1.2.3.4:80',
    '1.2.3.4/32',
    '1.2.3.4%eth0',
    '16909060',
  ],
  ...['１.2.3.4', '1。2。3。4', '999999999999999999999.1.1.1', 'localhost', 'unknown', '_hidden', 'null', 'NaN'],
  ...[':', ':::', '::1::', '1::2::3', '1:2:3:4:5:6:7', '1:2:3:4:5:6:7:8:9', ':1:2:3:4:5:6:7', '1:2:3:4:5:6:7:'],
  ...['1:2:3:4:5:6:7::8', '::1:2:3:4:5:6:7:8', '12345::', '::12345', '::g', '::1 ', '[::1]', '[::1]:80', '::1/64'],
  ...[
    '::ffff:1.2.3',
    '::ffff:1.2.3.256',
    '::ffff:01.2.3.4',
    '::1.2.3.4:5',
    '1.2.3.4::',
    '1:2:3:4:5:6:7:1.2.3.4',
    '::.1.2.3',
  ],
  ...['fe80::1%', '%eth0', '::1\0', '::1\n', '-::1', '::-1'],
]

describe('each client has one canonical text', () => {
  const rows = Object.entries(CLASSES).flatMap(([canonical, texts]) => texts.map((text) => [text, canonical] as const))

  test('the corpus holds at least 60 notations', () => expect(rows.length).toBeGreaterThanOrEqual(60))

  test.each(rows)('%s → %s', (text, canonical) => expect(canonicalAddress(text)).toBe(canonical))

  test.each(NOT_ADDRESSES)('%j is not an address', (text) => {
    expect(parseAddress(text)).toBeUndefined()
    expect(canonicalAddress(text)).toBeUndefined()
  })

  test.each([
    ['2001:db8:1:2:3:4:5:6', 128, '2001:db8:1:2:3:4:5:6'],
    ['2001:db8::ffff:1.2.3.4', 128, '2001:db8::ffff:102:304'],
    ['2001:db8:1:2:3:4:5:6', 127, '2001:db8:1:2:3:4:5:6/127'],
    ['2001:db8:1:2ff:3:4:5:6', 56, '2001:db8:1:200::/56'],
    ['2001:db8:1:2:3:4:5:6', 48, '2001:db8:1::/48'],
    ['2001:db8:ffff:2:3:4:5:6', 33, '2001:db8:8000::/33'],
    ['2001:db8:1:2:3:4:5:6', 0, '::/0'],
    ['::ffff:1.2.3.4', 48, '1.2.3.4'],
    ['1.2.3.4', 8, '1.2.3.4'],
  ] as const)('%s within /%i is %s', (text, prefix, canonical) => {
    expect(canonicalAddress(text, prefix)).toBe(canonical)
  })
})

const group = fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 0xffff }))
const ipv6 = fc.array(group, { minLength: 8, maxLength: 8 })
const ipv4 = fc
  .array(fc.integer({ min: 0, max: 255 }), { minLength: 4, maxLength: 4 })
  .map((octets) => octets.join('.'))

describe('for any text and any address', () => {
  test('accepts exactly the addresses that Node.js accepts', () => {
    const pieces = fc.constantFrom(
      '0',
      '1',
      '00',
      '12',
      '255',
      '256',
      'f',
      'ffff',
      ':',
      '::',
      '.',
      '.1.2.3',
      '1.2.3.4',
      'g',
      ' ',
    )
    const text = fc.oneof(
      fc.array(pieces, { maxLength: 12 }).map((parts) => parts.join('')),
      fc.array(fc.constantFrom('1', 'ab', '0'), { maxLength: 9 }).map((parts) => parts.join(':')),
      ipv4,
      fc.ipV6(),
    )
    fc.assert(
      fc.property(text, (input) => (parseAddress(input) !== undefined) === isIP(input) > 0),
      { numRuns: 5000 },
    )
  })

  test('formats IPv6 like Node.js', () => {
    const nodeText = (text: string) => new SocketAddress({ address: text, family: 'ipv6' }).address
    const differsByDots = (groups: number[]) => groups.slice(0, 5).every((value) => value === 0)
    fc.assert(
      fc.property(ipv6, (groups) => {
        fc.pre(!differsByDots(groups)) // Node.js writes ::1.2.3.4 for ::102:304
        const text = groups.map((value) => value.toString(16)).join(':')
        expect(formatAddress(groups)).toBe(nodeText(text))
      }),
    )
  })

  test('parses its own output', () => {
    fc.assert(
      fc.property(ipv6, (groups) => {
        const written = groups.map((value) => value.toString(16)).join(':')
        expect(parseAddress(formatAddress(groups))).toEqual(parseAddress(written))
      }),
    )
  })

  test('a canonical IPv4 address is unchanged, mapped or not', () => {
    fc.assert(
      fc.property(ipv4, (text) => {
        expect(canonicalAddress(text)).toBe(text)
        expect(canonicalAddress(`::ffff:${text}`)).toBe(text)
      }),
    )
  })

  test('two addresses share a text exactly when their first 64 bits are equal', () => {
    fc.assert(
      fc.property(ipv6, ipv6, (a, b) => {
        const sameNetwork = a.slice(0, 4).join() === b.slice(0, 4).join()
        const neighbour = [...a.slice(0, 4), ...b.slice(4)]
        fc.pre([a, b, neighbour].every((address) => parseAddress(formatAddress(address))?.length === 8)) // none is IPv4
        expect(canonicalAddress(formatAddress(a)) === canonicalAddress(formatAddress(b))).toBe(sameNetwork)
        expect(canonicalAddress(formatAddress(neighbour))).toBe(canonicalAddress(formatAddress(a)))
      }),
    )
  })
})
