import { BlockList } from 'node:net'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { formatAddress, parseAddress } from './address.ts'
import { cidrContains, matchesAny, parseCidr } from './cidr.ts'

function contains(range: string, text: string): boolean | undefined {
  const cidr = parseCidr(range)
  const address = parseAddress(text)
  return cidr && address && cidrContains(cidr, address)
}

describe('ranges', () => {
  test.each([
    ['10.0.0.0/8', '10.255.0.1', true],
    ['10.0.0.0/8', '11.0.0.1', false],
    ['10.1.2.3/8', '10.9.9.9', true],
    ['10.0.0.0/8', '::ffff:10.1.2.3', true],
    ['::ffff:10.0.0.0/104', '10.1.2.3', true],
    ['::ffff:a00:0/104', '11.1.2.3', false],
    ['0.0.0.0/0', '203.0.113.9', true],
    ['0.0.0.0/0', '2001:db8::1', false],
    ['::/0', '2001:db8::1', true],
    ['::/0', '203.0.113.9', false],
    ['172.16.0.0/12', '172.31.255.255', true],
    ['172.16.0.0/12', '172.32.0.0', false],
    ['192.0.2.1', '192.0.2.1', true],
    ['192.0.2.1/32', '192.0.2.2', false],
    ['2001:db8::/33', '2001:db8:7fff::', true],
    ['2001:db8::/33', '2001:db8:8000::', false],
    ['fe80::/10', 'febf::1%eth0', true],
    ['::1', '::1', true],
    ['::1/128', '::2', false],
  ])('%s and %s: %s', (range, address, expected) => expect(contains(range, address)).toBe(expected))

  test.each([
    ...[
      '',
      '/',
      '/8',
      '10.0.0.0/',
      '10.0.0.0/33',
      '10.0.0.0/-1',
      '10.0.0.0/08',
      '10.0.0.0/8/8',
      '10.0.0.0/8 ',
      '10.0.0.0/1e1',
    ],
    ...[
      '10.0.0/8',
      '10.*',
      '::/129',
      '::/0x1',
      '::1/1000',
      '::ffff:10.0.0.0/8',
      '::ffff:10.0.0.0/129',
      'loopback',
      '1',
    ],
  ])('%j is not a range', (text) => expect(parseCidr(text)).toBeUndefined())

  test('an empty list of ranges contains no address', () => expect(matchesAny([], [1, 2])).toBe(false))

  test('agrees with net.BlockList of Node.js', () => {
    const groups = fc.array(fc.constantFrom(0, 1, 0x0a00, 0x8000, 0xffff), { minLength: 8, maxLength: 8 })
    fc.assert(
      fc.property(groups, groups, fc.nat(128), fc.boolean(), (network, address, bits, four) => {
        const [a, b] = four ? [network.slice(6), address.slice(6)] : [network, address]
        fc.pre(four || (a[5] !== 0xffff && b[5] !== 0xffff))
        const prefix = four ? bits % 33 : bits
        const list = new BlockList()
        list.addSubnet(formatAddress(a), prefix, four ? 'ipv4' : 'ipv6')
        const expected = list.check(formatAddress(b), four ? 'ipv4' : 'ipv6')
        expect(contains(`${formatAddress(a)}/${prefix}`, formatAddress(b))).toBe(expected)
      }),
    )
  })
})
