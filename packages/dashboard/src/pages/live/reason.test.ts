import { describe, expect, it } from 'vitest'
import type { DecisionEvent } from './event.ts'
import { bucketText, resultOf } from './event.ts'
import { sentenceOf } from './reason.ts'

const EVENT = {
  operation: 'check',
  ...{ allowed: false, rule_id: 'demo', limit_name: 'default', limit_count: 5, remaining: 0, cost: 1 },
  ...{ retry_after_ms: 1500, shadow_refused_by: null },
} as DecisionEvent
const BAN = { kind: 'override', override_id: 'ovr_1', rule_id: 'demo', ban: { status: 429 } }

describe('the reason of a decision', () => {
  it.each([
    [{}, [], 'The request needed 1 unit; of 5 units of demo, 0 were left. Enough units after 1.5 s.'],
    [{ allowed: true, remaining: 4 }, [], 'Of 5 units of demo, 4 were left after this request.'],
    [{ allowed: true, rule_id: null, limit_count: null }, [], 'No enforced rule matched this request'],
    [{ rule_id: null, limit_count: null }, [], 'The client is banned by an override. Every request of it is refused'],
    [{ retry_after_ms: null }, [BAN], 'The client is banned by an override. Rule: demo.'],
    [{ rule_id: null, shadow_refused_by: 'strict' }, [], 'In shadow mode, strict would have refused it.'],
  ])('%j %j', (event, exceptions, text) => {
    expect(sentenceOf({ ...EVENT, ...event }, exceptions)).toContain(text)
  })

  it.each([
    [{ operation: 'refund', request_cost: null }, 'refund', 'gave back all of its units'],
    [{ operation: 'refund', request_cost: 3 }, 'refund', 'gave back 3 units of each limit'],
    [{ operation: 'reset' }, 'reset', 'The buckets of this key for demo started again, full.'],
  ] as const)('is never "allowed" for %j', (fields, text, sentence) => {
    const event: DecisionEvent = { ...EVENT, allowed: true, ...fields }
    expect(resultOf(event).text).toBe(text)
    expect(sentenceOf(event)).toContain(sentence)
  })
})

it('names the bucket that decided, and none for a ban from all rules', () => {
  expect(bucketText({ bucket_key: ':::' })).toBeUndefined()
  expect(bucketText({ bucket_key: 'demo:default::' })).toBe('demo:default::')
})
