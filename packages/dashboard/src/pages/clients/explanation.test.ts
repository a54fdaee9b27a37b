import { describe, expect, it } from 'vitest'
import { type KnownBucket, resetKeyOf, sharersOf } from './explanation.ts'

const FACTS = { client_id: 'ann', tenant: 'acme', method: 'POST', endpoint: '/messages' }

describe('a reset', () => {
  it.each([
    ['global', '', 'all clients share them and start'],
    ['per_user', 'ann', 'the client starts'],
    ['per_endpoint', 'POST /messages', 'all clients share them and start'],
    ['user+endpoint', { user: 'ann', endpoint: 'POST /messages' }, 'the client starts'],
    ['per_tenant', 'acme', 'all clients of tenant acme start'],
    ['per_api_key', undefined, 'the client starts'],
    ['attributes.device', undefined, 'all clients share them and start'],
  ])('of %s names the key %j', (scope, key, sharers) => {
    const bucket = { scope, facts: FACTS } as KnownBucket
    expect(resetKeyOf(bucket)).toEqual(key)
    expect(sharersOf(bucket)).toBe(sharers)
  })

  it('names no bucket of an endpoint without the method of a request', () => {
    const { method: _method, ...facts } = FACTS
    expect(resetKeyOf({ scope: 'per_endpoint', facts } as KnownBucket)).toBeUndefined()
  })
})
