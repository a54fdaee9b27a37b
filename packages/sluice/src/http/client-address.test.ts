import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Cidr, parseCidr } from '../canonical/cidr.ts'
import { clientAddress, parseNode } from './client-address.ts'

const TRUSTED: readonly Cidr[] = ['10.0.0.0/8', '::1', '2001:db8:ff::/48'].flatMap((text) => parseCidr(text) ?? [])

describe('without a trusted proxy the peer is the client', () => {
  test.each([
    ['203.0.113.9', '1.1.1.1', []],
    ['203.0.113.9', '1.1.1.1', TRUSTED],
    ['10.0.0.1', '1.1.1.1', []],
    ['nonsense', '1.1.1.1', TRUSTED],
    [undefined, '1.1.1.1', TRUSTED],
  ] as const)('%s forwarding %s', (peer, forwardedFor, trusted) => {
    expect(clientAddress({ peer, forwardedFor }, trusted)).toBe(peer)
  })
})

describe('behind trusted proxies, X-Forwarded-For is read from the right', () => {
  test.each([
    ['10.0.0.1', '203.0.113.9', '203.0.113.9'],
    ['::ffff:10.0.0.1', '203.0.113.9', '203.0.113.9'],
    ['::1', '203.0.113.9', '203.0.113.9'],
    ['10.0.0.1', '6.6.6.6, 203.0.113.9', '203.0.113.9'],
    ['10.0.0.1', '6.6.6.6,203.0.113.9, 10.0.0.2,\t2001:db8:ff::7', '203.0.113.9'],
    ['10.0.0.1', '203.0.113.9:4711, 10.0.0.2:80', '203.0.113.9'],
    ['10.0.0.1', '[2001:DB8::1]:4711', '2001:db8::1'],
    ['10.0.0.1', '[2001:db8::1]', '2001:db8::1'],
    ['10.0.0.1', '2001:db8:0::1', '2001:db8::1'],
    ['10.0.0.1', '::ffff:203.0.113.9', '203.0.113.9'],
    ['10.0.0.1', '10.0.0.3, 10.0.0.2', '10.0.0.3'],
    ['10.0.0.1', undefined, '10.0.0.1'],
    ['10.0.0.1', '', '10.0.0.1'],
    ['10.0.0.1', ',', '10.0.0.1'],
    ['10.0.0.1', '203.0.113.9,', '10.0.0.1'],
    ['10.0.0.1', 'unknown', '10.0.0.1'],
    ['10.0.0.1', '203.0.113.9, garbage, 10.0.0.2', '10.0.0.2'],
    ['10.0.0.1', '203.0.113.9\r\nX: y', '10.0.0.1'],
  ])('peer %s, header %j: %s', (peer, forwardedFor, client) => {
    expect(clientAddress({ peer, forwardedFor }, TRUSTED)).toBe(client)
  })

  test('a client cannot change its address with any header', () => {
    fc.assert(
      fc.property(fc.string(), (sent) => {
        const peer = '10.0.0.1'
        expect(clientAddress({ peer, forwardedFor: `${sent}, 203.0.113.9` }, TRUSTED)).toBe('203.0.113.9')
        expect(clientAddress({ peer, forwarded: `${sent}, for=203.0.113.9` }, TRUSTED)).toBe('203.0.113.9')
      }),
    )
  })
})

describe('Forwarded', () => {
  test.each([
    ['for=203.0.113.9', '203.0.113.9'],
    ['For="203.0.113.9:4711"', '203.0.113.9'],
    ['for="[2001:db8:cafe::17]:4711"', '2001:db8:cafe::17'],
    ['for=6.6.6.6, by=10.0.0.1;FOR=203.0.113.9;proto=https', '203.0.113.9'],
    ['for=203.0.113.9, for=10.0.0.2; host="a.example"', '203.0.113.9'],
    ['for="6.6.6.6, for=203.0.113.9', '203.0.113.9'],
    ['for=203.0.113.9;for=6.6.6.6', '10.0.0.1'],
    ['host="x;for=6.6.6.6"', '10.0.0.1'],
    ['for="203.0.113.9', '10.0.0.1'],
    ['for="', '10.0.0.1'],
    ['for=_hidden', '10.0.0.1'],
    ['for=unknown', '10.0.0.1'],
    ['proto=https', '10.0.0.1'],
  ])('%s: %s', (forwarded, client) => {
    expect(clientAddress({ peer: '10.0.0.1', forwarded }, TRUSTED)).toBe(client)
  })

  test('is ignored if X-Forwarded-For is present', () => {
    const both = { peer: '10.0.0.1', forwardedFor: '203.0.113.9', forwarded: 'for=6.6.6.6' }
    expect(clientAddress(both, TRUSTED)).toBe('203.0.113.9')
  })
})

test.each([
  '1.2.3.4:',
  '1.2.3.4:x',
  '1.2.3.4:123456',
  '[1.2.3.4]',
  '[::1',
  '::1]',
  '[::1]80',
  '[]',
  '[::1]:',
  '"1.2.3.4"',
])('%j is not a valid element of a forwarding header', (text) => expect(parseNode(text)).toBeUndefined())
