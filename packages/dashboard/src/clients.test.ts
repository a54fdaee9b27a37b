import { describe, expect, it } from 'vitest'
import { clientFrom, eventsQuery } from './clients.ts'
import { urlOf } from './location.ts'

describe('a client that the user typed', () => {
  it.each([
    ['alice', 'user', 'user', 'alice'],
    [' tenant:acme ', 'user', 'tenant', 'acme'],
    ['api_key:k:9', 'user', 'api_key', 'k:9'],
    ['user:203.0.113.9', 'ip', 'user', '203.0.113.9'],
    ['203.0.113.9', 'user', 'ip', '203.0.113.9'],
    ['2001:DB8:0:0::1', 'user', 'ip', '2001:db8::1'],
    ['::1', 'user', 'ip', '::1'],
    ['ip:2001:db8::1', 'user', 'ip', '2001:db8::1'],
    ['1:2:3', 'user', 'user', '1:2:3'],
    ['cafe:1', 'user', 'user', 'cafe:1'],
    ['2001:db8::1', 'api_key', 'api_key', '2001:db8::1'],
    ['203.0.113.9', 'tenant', 'tenant', '203.0.113.9'],
  ] as const)('%s as %s is %s %s', (text, kind, expectedKind, id) => {
    expect(clientFrom(text, kind)).toEqual({ kind: expectedKind, id })
  })
})

it.each([
  ['user', '/live?client=a'],
  ['api_key', '/live?client=a&kind=api_key'],
  ['ip', '/live?client=a&kind=ip'],
] as const)('the live tail of a client of kind %s is %s', (kind, url) => {
  expect(urlOf('/live', eventsQuery({ kind, id: 'a' }))).toBe(url)
})
