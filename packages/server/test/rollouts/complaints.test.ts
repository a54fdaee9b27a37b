// Complaints of users of other rollout tools, one test each. The numbers are issues of their repositories.

import { createLimiter } from 'sluice'
import { describe, expect, test } from 'vitest'
import { GUARD_DEFAULTS, parseGuard } from '../../src/rollouts/guard-settings.ts'
import { guardStep } from '../../src/rollouts/guard-step.ts'
import { type Evidence, judge } from '../../src/rollouts/judge.ts'
import { PairStatistics } from '../../src/rollouts/pair-statistics.ts'
import { type State, transition } from '../../src/rollouts/state.ts'
import { parseSteps, type Step } from '../../src/rollouts/step.ts'
import { mergedNodes, mergedPairs, type PairWindow } from '../../src/rollouts/windows.ts'

const W = GUARD_DEFAULTS.windowMs
const FOR_MS = 60_000
const STEP: Step = { kind: 'canary', share: 0.1, forMs: FOR_MS, maxMs: 4 * FOR_MS }
const START = 1_000_000_000

/** A window with `pairs` requests of 50 keys, the given share of them newly denied. */
function windowAt(startMs: number, pairs: number, deniedShare = 0): PairWindow {
  const statistics = new PairStatistics('salt', W)
  for (let index = 0; index < pairs; index += 1) {
    const candidateDenied = index < pairs * deniedShare
    const pair = { ruleId: 'r', owner: `k${index % 50}`, enforced: 'candidate' as const, currentDenied: false }
    statistics.add({ ...pair, candidateDenied }, startMs)
  }
  const figures = statistics.changed().map((window) => window.figures)
  return mergedPairs(startMs, figures, 5)
}

function eventAfter(elapsedMs: number, windows: readonly PairWindow[], more: Partial<Evidence> = {}, paused?: string) {
  const nowMs = START + elapsedMs
  const rules = [{ ruleId: 'r', alertOnly: false, phase: false, windows }]
  const evidence = { settings: GUARD_DEFAULTS, rules, nodes: [], nowMs, stepAtMs: START, forMs: FOR_MS, ...more }
  const verdict = judge(evidence)
  const state: State = { name: 'rolling_out', step: 0, paused }
  const proposal = { kind: 'change' as const, state, steps: [STEP, STEP], stepAt: new Date(START) }
  const { event } = guardStep(proposal, verdict, { errors: 0, alerted: false }, nowMs)
  return { outcome: verdict.outcome, event: event?.type, verdict }
}

const busy = (from: number, to: number, deniedShare = 0) => {
  const count = Math.floor((to - from) / W)
  return Array.from({ length: count }, (_, index) => windowAt(START + from + index * W, 300, deniedShare))
}

describe('complaints about other tools', () => {
  test('1. no traffic counts as failure (flagger #1035, #1098, #1689, #1330): it holds, then pauses', () => {
    for (const elapsedMs of [0, FOR_MS, 2 * FOR_MS]) {
      expect(eventAfter(elapsedMs, [])).toMatchObject({ outcome: 'hold', event: undefined })
    }
    expect(eventAfter(4 * FOR_MS, [])).toMatchObject({ outcome: 'hold', event: 'pause' })
  })

  test('1. an empty result crashes the check (argo #1466): every figure of no traffic is defined', () => {
    const [figures] = eventAfter(FOR_MS, []).verdict.rules
    expect(figures).toEqual({
      ...{ rule_id: 'r', pairs: 0, newly_denied: 0, offset: 0, newly_allowed: 0, both_denied: 0, keys: 0 },
      newly_denied_percent: null,
    })
  })

  test('2. one error among few requests aborts (suna #3403): floors of pairs, keys and decisions', () => {
    expect(eventAfter(20_000, [windowAt(START, 3, 0.4)]).event).toBeUndefined()
    const nodes = [0, 1, 2].map((index) => mergedNodes(START + index * W, [{ decided: 4, failed: 1 }]))
    expect(eventAfter(FOR_MS, busy(0, FOR_MS), { nodes })).toMatchObject({ outcome: 'pass', event: 'advance' })
  })

  test('2. services with bursts need counters of their own (flagger #1501): a window judges a burst', () => {
    const burst = (deniedShare: number) => {
      const quiet = [4, 5].map((index) => windowAt(START + index * W, 3, 0.4))
      return [...quiet, windowAt(START + 3 * W, 500, deniedShare)].sort((one, other) => one.startMs - other.startMs)
    }
    expect(eventAfter(FOR_MS, burst(0))).toMatchObject({ outcome: 'pass', event: 'advance' })
    expect(eventAfter(FOR_MS, burst(0.3))).toMatchObject({ outcome: 'hold', event: undefined })
    expect(eventAfter(FOR_MS, burst(0.6))).toMatchObject({ outcome: 'fail', event: 'revert' })
  })

  test('3. later silence still advances (flagger #1011): old pairs are no evidence', () => {
    expect(eventAfter(FOR_MS + W, busy(0, 20_000))).toMatchObject({ outcome: 'hold', event: undefined })
    expect(eventAfter(FOR_MS, busy(0, FOR_MS))).toMatchObject({ outcome: 'pass', event: 'advance' })
  })

  test('4. the guard sleeps while a person is waited for (flagger #1801): it reverts a paused rollout', () => {
    const bad = busy(0, FOR_MS, 0.6)
    expect(eventAfter(FOR_MS, bad, {}, 'waits for Ann')).toMatchObject({ outcome: 'fail', event: 'revert' })
    expect(eventAfter(FOR_MS, bad, { forMs: undefined })).toMatchObject({ outcome: 'fail', event: 'revert' })
    expect(eventAfter(FOR_MS, busy(0, FOR_MS), {}, 'waits for Ann').event).toBeUndefined()
  })

  test('5. shares that do not add up count as promoted (flagger #189): the last step promotes to all keys', () => {
    const steps = parseSteps([{ canary: '30%' }, { canary: '60%' }, { canary: '90%' }]) as readonly Step[]
    let state: State = { name: 'rolling_out', step: 0, paused: undefined }
    const seen: State['name'][] = []
    for (const _ of steps) {
      const next = transition(state, { type: 'promote' }, { kind: 'change', steps: steps.length })
      if ('refused' in next) throw new Error(next.refused)
      state = next.state
      seen.push(state.name)
    }
    expect(seen).toEqual(['rolling_out', 'rolling_out', 'done'])
  })

  test('5. an unknown metric passes for ever (flagger #1581): it is refused', () => {
    expect(parseGuard({ error_rate: { percent: 1 } })).toMatchObject({ mistakes: [{ field: 'guard.error_rate' }] })
    expect(parseGuard({ newly_denied: { treshold: 1 } })).toMatchObject({
      mistakes: [{ field: 'guard.newly_denied.treshold' }],
    })
  })

  test('6. a failed analysis does not stop the rollout (argo #1411): it reverts at every step', () => {
    for (const elapsedMs of [40_000, FOR_MS, 4 * FOR_MS]) {
      expect(eventAfter(elapsedMs, busy(elapsedMs - 40_000, elapsedMs, 0.3))).toMatchObject({ event: 'revert' })
    }
  })

  test('6. an aborted canary cannot be retried (argo #3120): start tries it again', () => {
    const retry = (required: number) =>
      transition({ name: 'rolled_back' }, { type: 'start', enough: true, required }, { kind: 'change', steps: 2 })
    expect(retry(0)).toMatchObject({ state: { name: 'rolling_out', step: 0 } })
    expect(retry(1)).toMatchObject({ state: { name: 'draft' } })
  })

  test('6. "not a number" breaks the page (argo #4203): JSON of every verdict has numbers or null', () => {
    for (const windows of [[], [windowAt(START, 0)], busy(0, FOR_MS, 1)]) {
      expect(JSON.stringify(eventAfter(FOR_MS, windows).verdict)).not.toMatch(/NaN|undefined/)
    }
  })

  test('a restart picks other keys (LaunchDarkly): the choice depends on the salt alone', async () => {
    const rule = { rule_id: 'r', scope: 'per_user', limit: 100, window: '1d' } as const
    const users = Array.from({ length: 500 }, (_, index) => `user ${index}`)
    /** Keys under the candidate on a node that has just started. */
    const chosen = async (salt: string, attempt: number, share: number) => {
      const limiter = createLimiter({ rules: [rule] })
      await limiter.setRollouts([
        { ruleId: 'r', salt, attempt, share, pairShare: 0, candidate: { ...rule, limit: 50 } },
      ])
      const found = users.filter((user) => limiter.checkSync({ user })?.limit === 50)
      await limiter.close()
      return found
    }
    const first = await chosen('5a17', 1, 0.1)
    expect(first.length).toBeGreaterThan(20)
    expect(await chosen('5a17', 1, 0.1)).toEqual(first)
    expect(await chosen('5a17', 2, 0.1)).toEqual(first) // a retry
    expect(await chosen('5a17', 2, 0.5)).toEqual(expect.arrayContaining(first)) // a later step
    expect(await chosen('5a18', 1, 0.1)).not.toEqual(first)
  })

  test('a side map turns "pause" into "revert" (LaunchDarkly): each metric carries its own action', () => {
    const guard = parseGuard({ newly_denied: { on: 'pause' }, errors: { on: 'revert' } })
    expect(guard).toMatchObject({ newlyDenied: { on: 'pause' }, errors: { on: 'revert' }, p99: { on: 'pause' } })
    const settings = guard as typeof GUARD_DEFAULTS
    expect(eventAfter(FOR_MS, busy(0, FOR_MS, 0.6), { settings })).toMatchObject({ outcome: 'fail', event: 'pause' })
  })

  test('more errors in a row than four pause the rollout', () => {
    const state: State = { name: 'rolling_out', step: 0, paused: undefined }
    const proposal = { kind: 'change' as const, state, steps: [STEP], stepAt: new Date(START) }
    const verdict = { outcome: 'error' as const, action: null, reason: 'x' }
    const events = [1, 2, 3, 4].map(
      (errors) => guardStep(proposal, verdict, { errors, alerted: false }, START).event?.type,
    )
    expect(events).toEqual([undefined, undefined, undefined, 'pause'])
  })
})
