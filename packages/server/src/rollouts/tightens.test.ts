import { describe, expect, test } from 'vitest'
import { nextPairShare } from './pair-share.ts'
import type { ProposedChange } from './proposal.ts'
import { rebase } from './rebase.ts'
import { forgivesPhase, isDefence, parsedRule, tightens, unpairableReason } from './tightens.ts'

const BASE = { rule_id: 'r', scope: 'per_user', limit: 100, window_seconds: 60 }

describe('a change tightens a rule', () => {
  test.each<[string, object | null, object | null, boolean]>([
    ['a lower limit', {}, { limit: 99 }, true],
    ['a higher limit', {}, { limit: 101 }, false],
    ['a longer window', {}, { window_seconds: 61 }, true],
    ['a shorter window', {}, { window_seconds: 59 }, false],
    ['a smaller burst', { burst: 200 }, { burst: 199 }, true],
    ['a larger burst', {}, { burst: 300 }, false],
    ['a higher limit per longer window', {}, { limit: 200, window_seconds: 600 }, true],
    ['another path', {}, { endpoint_pattern: '/x' }, true],
    ['another text', {}, { description: 'x', name: 'y', intent: 'abuse', on_fail: 'open' }, false],
    ['another signal', {}, { on_signal: { bot: { factor: 0.1 } } }, true],
    ['a limit shared by all regions', {}, { spread: 'global' }, true],
    ['leases, which may leave units unspent', { consistency: 'strict' }, { consistency: 'leased' }, true],
    ['another layer', {}, { enforce_at: 'service' }, true],
    ['shards', {}, { shards: 2 }, true],
    ['a new rule', null, {}, true],
    ['a deleted rule', {}, null, false],
    ['a rule that is switched on', { enabled: false }, {}, true],
    ['a rule that is switched off', {}, { enabled: false }, false],
    ['a shadow rule that is enforced', { mode: 'shadow' }, {}, true],
    ['a rule that becomes a shadow rule', {}, { mode: 'shadow', limit: 1 }, false],
    ['a lower limit of one plan', { by_plan: { pro: { limit: 500 } } }, { by_plan: { pro: { limit: 400 } } }, true],
    ['a plan without numbers of its own any more', { by_plan: { pro: { limit: 500 } } }, {}, true],
    ['an additional plan with more', {}, { by_plan: { pro: { limit: 500 } } }, false],
  ])('%s: %s', (_, before, after, expected) => {
    const rule = (fields: object | null) => (fields === null ? null : parsedRule({ ...BASE, ...fields }))
    expect(tightens(rule(before), rule(after))).toBe(expected)
  })

  test.each<[string, object, boolean]>([
    ['an abuse rule', { intent: 'abuse', limit: 1 }, true],
    ['a looser abuse rule', { intent: 'abuse', limit: 1000 }, false],
    ['a fairness rule', { limit: 1 }, false],
  ])('%s is a defence: %s', (_, after, expected) => {
    const base = { ...BASE, ...('intent' in after ? { intent: 'abuse' } : {}) }
    expect(isDefence({ base, rule: { ...BASE, ...after } })).toBe(expected)
  })
})

test.each<[object, string | undefined]>([
  [{}, undefined],
  [{ algorithm: 'concurrency' }, 'the algorithm concurrency cannot be charged twice'],
  [{ consistency: 'local' }, 'a local rule is not in the store'],
  [{ shards: 2 }, 'a rule with shards has several buckets per key'],
])('%j cannot be paired because: %s', (fields, reason) => {
  expect(unpairableReason({ base: BASE, rule: { ...BASE, ...fields } })).toBe(reason)
})

describe('a change whose base has moved', () => {
  const changed = (op: ProposedChange['op'], base: object | null, rule: object | null): ProposedChange => {
    const withId = (fields: object | null) => (fields === null ? null : { rule_id: 'r', ...fields })
    return { op, ruleId: 'r', base: withId(base), rule: withId(rule) }
  }
  test.each<[string, ProposedChange, object | null, readonly string[], object | null]>([
    ['nothing moved', changed('update', { a: 1 }, { a: 2 }), { a: 1 }, [], { a: 2 }],
    ['another field moved', changed('update', { a: 1, b: 1 }, { a: 2, b: 1 }), { a: 1, b: 9 }, [], { a: 2, b: 9 }],
    ['a field was added', changed('update', { a: 1 }, { a: 2 }), { a: 1, c: 3 }, [], { a: 2, c: 3 }],
    ['a field was removed', changed('update', { a: 1, b: 1 }, { a: 2, b: 1 }), { a: 1 }, [], { a: 2 }],
    ['the same change was made', changed('update', { a: 1 }, { a: 2 }), { a: 2 }, [], { a: 2 }],
    ['the same field moved', changed('update', { a: 1 }, { a: 2 }), { a: 3 }, ['a'], null],
    ['the rule is gone', changed('update', { a: 1 }, { a: 2 }), null, ['rule_id'], null],
    ['a deleted rule moved', changed('delete', { a: 1 }, null), { a: 2 }, ['a'], null],
    ['a deleted rule is gone', changed('delete', { a: 1 }, null), null, [], null],
    ['a new rule exists', changed('create', null, { a: 1 }), { a: 2 }, ['a'], null],
    ['versions do not count', changed('update', { a: 1, version: 3 }, { a: 2 }), { a: 1, version: 9 }, [], { a: 2 }],
  ])('%s', (_, change, current, fields, rule) => {
    const present = new Map(current === null ? [] : [['r', { rule_id: 'r', ...current }] as const])
    const { changes, conflicts } = rebase([change], present)
    expect(conflicts.map(({ field }) => field)).toEqual(fields)
    if (fields.length > 0) return
    expect(changes[0]?.rule ?? null).toEqual(rule === null ? null : { rule_id: 'r', ...rule })
  })
})

test.each([
  [0.01, 0, 0.04],
  [0.64, 10, 1],
  [0.2, 300, 0.2],
  [0.2, 900, 0.2],
  [0.8, 2000, 0.2],
  [1, 100, 1],
  [0.001, 1_000_000, 0.001],
])('a share of %f with %i pairs a second becomes %f', (share, rate, next) => {
  expect(nextPairShare(share, rate, 500)).toBeCloseTo(next, 6)
})

describe('one request of a key is forgiven as the phase of its bucket', () => {
  test.each<[string, object | null, boolean]>([
    ['of a limit of 20, at a threshold of 5 %', { limit: 20 }, true],
    ['of a limit of 19: it is more than 5 %', { limit: 19 }, false],
    ['with a small burst', { burst: 3 }, false],
    ['with a plan that has a small limit', { by_plan: { free: { limit: 5 } } }, false],
    ['with requests that cost 10', { cost: 10 }, false],
    ['with a cost by request', { cost: 'attributes.size' }, false],
    ['of a rule that did not exist', null, false],
  ])('%s', (_, more, expected) => {
    const base = more === null ? null : { ...BASE, ...more }
    expect(forgivesPhase({ base, rule: { ...BASE, limit: 1 } }, 5)).toBe(expected)
  })

  test('with a small burst that does not change', () => {
    const change = { base: { ...BASE, limit: 20, burst: 10 }, rule: { ...BASE, limit: 19, burst: 10 } }
    expect(forgivesPhase(change, 5)).toBe(true)
  })
})
