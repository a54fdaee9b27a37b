import { expect, test } from 'vitest'
import { guardStep } from './guard-step.ts'
import { nextPairShare, nextSharedPairShare, type SharedLoad, tooBusyReason, wantedPairs } from './pair-share.ts'
import type { Step } from './step.ts'

const MAX_MS = 60_000
const BY_HAND: Step = { kind: 'canary', share: 0.1, forMs: undefined, maxMs: MAX_MS }
const TIMED: Step = { ...BY_HAND, forMs: 30_000 }

test.each([
  ['by hand, before its maximum', BY_HAND, 'hold', MAX_MS - 1, undefined],
  ['by hand, without pairs', BY_HAND, 'hold', MAX_MS, 'no verdict after 1m: why'],
  ['by hand, with a verdict', BY_HAND, 'pass', MAX_MS, 'not promoted after 1m: why'],
  ['by hand, without a maximum', { ...BY_HAND, maxMs: undefined }, 'hold', 10 * MAX_MS, undefined],
  ['with a time, without pairs', TIMED, 'hold', MAX_MS, 'no verdict after 1m: why'],
  ['with a time, before its maximum', TIMED, 'hold', MAX_MS - 1, undefined],
] as const)('a step %s pauses only after its maximum time', (_, step, outcome, elapsedMs, why) => {
  const state = { name: 'rolling_out', step: 0, paused: undefined } as const
  const proposal = { kind: 'change' as const, state, steps: [step], stepAt: new Date(0) }
  const verdict = { outcome, action: null, reason: 'why' }
  const { event } = guardStep(proposal, verdict, { errors: 0, alerted: false }, elapsedMs)
  expect(event).toEqual(why === undefined ? undefined : { type: 'pause', why })
})

test('the share of keys follows the pairs of the rule, in large steps', () => {
  expect([0.01, 0.3, 1].map((share) => nextPairShare(share, 10, 500))).toEqual([0.04, 1, 1])
  expect([200, 500, 1000].map((rate) => nextPairShare(0.2, rate, 500))).toEqual([0.2, 0.2, 0.2])
  expect(nextPairShare(0.2, 2000, 500)).toBe(0.05)
})

test('a rule gets few pairs for its guard and the load, and more once its change seems to harm clients', () => {
  const wanted = (checksPerSecond: number, isSuspect = false) =>
    wantedPairs({ checksPerSecond, isSuspect, neededPerSecond: 20 })
  expect([0, 500, 10_000, 100_000].map((rate) => wanted(rate))).toEqual([100, 100, 200, 500])
  expect(wanted(500, true)).toBe(500)
  expect(nextPairShare(0.02, 90, wanted(5000))).toBe(0.02)
  expect(nextPairShare(0.02, 90, wanted(5000, true), true)).toBe(0.08)
  const suspect = [200, 400, 500, 1000].map((rate) => nextPairShare(0.2, rate, 500, true))
  expect(suspect).toEqual([0.8, 0.5, 0.2, 0.2]) // few busy keys: others have to show the harm, too
})

const load = (more: Partial<SharedLoad>): SharedLoad => {
  return { perSecond: 100, pairs: 0, wasPaired: false, elapsedMs: 10_000, ...more }
}

test.each<[string, number, Partial<SharedLoad>, number]>([
  ['is not paired before it was measured', 0, { elapsedMs: 1000 }, 0],
  ['is not paired before a node has reported it', 0, { perSecond: 0 }, 0],
  ['is paired if it is quiet', 0, {}, 1],
  ['stays paired while it is quiet', 1, { pairs: 100_000, wasPaired: true }, 1],
  ['is paired for a moment if it is busy', 0, { perSecond: 5000 }, 1],
  ['stays paired until there are enough pairs', 1, { perSecond: 5000, pairs: 900, wasPaired: true }, 1],
  ['is not paired any more once it is busy', 1, { perSecond: 5000, pairs: 1000, wasPaired: true }, 0],
  ['is not paired again, since its counterfactual has missed requests', 0, { wasPaired: true }, 0],
  ['is never paired if it is very busy', 0, { perSecond: 20_000 }, 0],
])('a global bucket %s', (_, share, more, expected) => {
  expect(nextSharedPairShare(share, load(more))).toBe(expected)
})

test('a bucket that is not compared says why', () => {
  expect(tooBusyReason(1, load({ wasPaired: true }))).toBeUndefined()
  expect(tooBusyReason(0, load({}))).toBeUndefined() // it will be
  const why = 'too many requests in one bucket to compare (at most 1000 a second)'
  for (const more of [{ wasPaired: true }, { perSecond: 20_000 }]) expect(tooBusyReason(0, load(more))).toBe(why)
})
