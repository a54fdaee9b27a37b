import { describe, expect, it } from 'vitest'
import type { DecisionEvent } from '../live/event.ts'
import { bucketsOf, type Explanation, type KnownBucket, refusingBeside, resetKeyOf, sharersOf } from './explanation.ts'
import { type Facts, recentRequests, withoutHashes } from './facts.ts'

const HASH = 'hmac:0123456789abcdef'
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

  it('names no bucket by the hash of its key', () => {
    expect(resetKeyOf({ scope: 'per_api_key', facts: { api_key: HASH } as Facts } as KnownBucket)).toBeUndefined()
  })
})

describe('a request of the events', () => {
  const none = { client_id: null, api_key: null, ip: null, tenant: null, plan: null, request_cost: 1, attributes: null }
  const event = { ...none, operation: 'check', method: 'GET', endpoint: '/a' } as DecisionEvent

  it('has the stored hashes, cost and attributes, on which its buckets depend', () => {
    const sent = { ...event, api_key: HASH, plan: 'pro', request_cost: 5, attributes: '{"device":"d7"}' }
    const rest = { plan: 'pro', cost: 5, attributes: { device: 'd7' }, method: 'GET', endpoint: '/a' }
    expect(recentRequests({ kind: 'api_key', id: HASH }, [sent], 6)).toEqual([{ api_key: HASH, ...rest }])
  })

  it('can do without the hash of another fact, but never without that of the client', () => {
    const facts = { client_id: 'ann', api_key: HASH }
    expect(withoutHashes({ kind: 'user', id: 'ann' }, facts)).toEqual({ client_id: 'ann' })
    expect(withoutHashes({ kind: 'api_key', id: HASH }, facts)).toBeUndefined()
    expect(withoutHashes({ kind: 'user', id: 'ann' }, { client_id: 'ann' })).toBeUndefined()
  })
})

it('an override does not help where another rule refuses', () => {
  const refusing = (rule_id: string) => ({ rule_id, limits: [{ mode: 'enforce', allowed: false }] })
  const rules = [refusing('per_user'), refusing('per_ip'), { rule_id: 'no', applies: false }]
  const own = { kind: 'override', override_id: 'ovr_1', rule_id: 'per_user', factor: 2 }
  const found = { answer: { allowed: false }, rules, exceptions: [own] } as unknown as Explanation
  expect(refusingBeside('ovr_1', found)).toEqual(['per_ip'])
  expect(refusingBeside('ovr_1', { ...found, answer: { ...found.answer, allowed: true } })).toEqual([])
  const ban = { ...found, exceptions: [{ ...own, rule_id: null }] }
  expect(refusingBeside('ovr_1', ban)).toEqual([])
})

it('the buckets of an answer by on_fail are unknown', () => {
  const bucket = { rule_id: 'r', name: 'default', scope: 'per_user', remaining: 60, limit: 60 }
  const explanation = {
    rules: [{ rule_id: 'r', applies: true, detail: '', limits: [bucket] }],
  } as unknown as Explanation
  const known = (found: Explanation) => bucketsOf([[FACTS, found]]).map(({ isKnown }) => isKnown)
  expect(known(explanation)).toEqual([true])
  expect(known({ ...explanation, policy_reason: 'timeout' })).toEqual([false])
})
