import { describe, expect, test } from 'vitest'
import { distinctKeys, HASH_RANGE, mergedSketch, SketchBuilder } from './distinct-keys.ts'
import { GUARD_DEFAULTS, type GuardSettings } from './guard-settings.ts'
import { type Evidence, judge, type WatchedRule } from './judge.ts'
import { keyHash, PairStatistics } from './pair-statistics.ts'
import {
  mergedNodes,
  mergedPairs,
  type NodeWindow,
  offsetDenials,
  type PairWindow,
  type StepTimes,
  TIME_BOUNDS_MS,
} from './windows.ts'

const W = GUARD_DEFAULTS.windowMs
/** Two seconds and more after the end of window 10, the newest complete one. */
const NOW = 11 * W + 3000
const STEP_AT = 0

type Spec = { readonly pairs: number; readonly percent?: number; readonly keys?: number }

function pairWindow(index: number, { pairs, percent = 0, keys = 30 }: Spec): PairWindow {
  const newlyDenied = (pairs * percent) / 100
  const sketch = new SketchBuilder()
  for (let key = 0; newlyDenied > 0 && key < keys; key += 1) sketch.add(keyHash('salt', 'a', `key ${key}`))
  const raw = { rawPairs: pairs, rawNewlyDenied: newlyDenied, newlyAllowed: 0, bothDenied: 0, offset: 0 }
  return { startMs: index * W, checks: 0, pairs, newlyDenied, ...raw, sample: [], keys: sketch.sketch }
}

function evidenceOf(
  windows: readonly PairWindow[],
  more: Partial<Evidence> = {},
  rule: Partial<WatchedRule> = {},
): Evidence {
  const rules = [{ ruleId: 'a', alertOnly: false, phase: false, windows, ...rule }]
  return { settings: GUARD_DEFAULTS, rules, nodes: [], nowMs: NOW, stepAtMs: STEP_AT, forMs: 600_000, ...more }
}

/** Windows 8, 9 and 10 are complete; 11 is running. */
const at = (...specs: readonly (Spec | undefined)[]) =>
  specs.flatMap((spec, index) => (spec === undefined ? [] : [pairWindow(8 + index, spec)]))

describe('the formula of the guard', () => {
  test.each<[string, readonly PairWindow[], string]>([
    [
      '2 of 3 windows with 5 points',
      at({ pairs: 200, percent: 5 }, { pairs: 200 }, { pairs: 200, percent: 5 }),
      'fail',
    ],
    [
      '2 of 3 windows, the running one ignored',
      at(undefined, { pairs: 200, percent: 5 }, { pairs: 200 }, { pairs: 200, percent: 5 }),
      'hold',
    ],
    ['1 of 3 windows with 5 points', at({ pairs: 400 }, { pairs: 400 }, { pairs: 400, percent: 6 }), 'hold'],
    [
      '1 old window with 5 points',
      [pairWindow(5, { pairs: 400, percent: 10 }), ...at({ pairs: 900 }, { pairs: 900 }, { pairs: 900 })],
      'pass',
    ],
    ['4.9 points in all windows', at(...Array(3).fill({ pairs: 1000, percent: 4.9 })), 'pass'],
    ['199 pairs per window', at(...Array(3).fill({ pairs: 199, percent: 5 })), 'hold'],
    ['19 distinct keys', at(...Array(3).fill({ pairs: 500, percent: 20, keys: 19 })), 'hold'],
    ['20 distinct keys', at(...Array(3).fill({ pairs: 500, percent: 20, keys: 20 })), 'fail'],
    [
      'half of 100 pairs in the running window',
      at(undefined, undefined, undefined, { pairs: 100, percent: 50 }),
      'fail',
    ],
    ['half of 99 pairs in the running window', at(undefined, undefined, undefined, { pairs: 99, percent: 50 }), 'hold'],
    [
      '49 % of 1000 pairs in the running window',
      at(undefined, undefined, undefined, { pairs: 1000, percent: 49 }),
      'hold',
    ],
    [
      'half of 100 pairs of 19 keys',
      at(undefined, undefined, undefined, { pairs: 100, percent: 50, keys: 19 }),
      'hold',
    ],
    ['all pairs equal', at(...Array(3).fill({ pairs: 100 })), 'pass'],
    ['no traffic at all', [], 'hold'],
    ['traffic that stopped a minute ago', [pairWindow(1, { pairs: 5000 }), pairWindow(2, { pairs: 5000 })], 'hold'],
  ])('%s', (_, windows, outcome) => {
    expect(judge(evidenceOf(windows)).outcome).toBe(outcome)
  })

  test('names the rule, the numbers and the threshold', () => {
    const windows = at({ pairs: 240, percent: 62 }, { pairs: 240, percent: 62 })
    expect(judge(evidenceOf(windows))).toMatchObject({
      ...{ outcome: 'fail', metric: 'newly_denied', action: 'revert' },
      reason: 'rule a: 62 % of 240 paired requests newly denied (threshold 50 %), 30 keys',
    })
    const once = at({ pairs: 400 }, { pairs: 400 }, { pairs: 400, percent: 6 })
    expect(judge(evidenceOf(once)).reason).toMatch(/\(threshold 5 %\), above it in 1 of 3 windows; reverts at 2$/)
    expect(judge(evidenceOf(at({ pairs: 34 })))).toMatchObject({ outcome: 'hold', reason: 'rule a: 34 of 200 pairs' })
    expect(judge(evidenceOf([], {}, { unpairable: 'algorithm concurrency' })).reason).toBe(
      'rule a: no pairs: algorithm concurrency; promote it by hand',
    )
  })

  test('a tightening of an abuse rule alerts, and never reverts', () => {
    const windows = at(...Array(3).fill({ pairs: 500, percent: 90 }))
    expect(judge(evidenceOf(windows, {}, { alertOnly: true }))).toMatchObject({ outcome: 'fail', action: 'alert' })
  })

  test('each metric says revert or pause; a revert outranks a pause', () => {
    const settings: GuardSettings = { ...GUARD_DEFAULTS, newlyDenied: { ...GUARD_DEFAULTS.newlyDenied, on: 'pause' } }
    const windows = at(...Array(3).fill({ pairs: 500, percent: 90 }))
    expect(judge(evidenceOf(windows, { settings }))).toMatchObject({ outcome: 'fail', action: 'pause' })
    const nodes = [8, 9, 10].map((index) => nodeWindow(index, { failed: 100 }))
    const reverting = { ...settings, errors: { ...settings.errors, on: 'revert' as const } }
    expect(judge(evidenceOf(windows, { settings: reverting, nodes }))).toMatchObject({
      metric: 'errors',
      action: 'revert',
    })
  })

  type Times = Partial<Record<keyof StepTimes, Readonly<Record<number, number>>>>
  type Given = { failed?: number; decided?: number; times?: Times; errors?: string[] }
  /** `times`: number of decisions by time in ms. */
  const nodeWindow = (index: number, { failed = 0, decided = 1000, times = {}, errors = [] }: Given): NodeWindow => {
    const bucketed = (counts: Readonly<Record<number, number>> = {}) => {
      const buckets: number[] = Array(TIME_BOUNDS_MS.length + 1).fill(0)
      for (const [ms, count] of Object.entries(counts)) {
        const found = TIME_BOUNDS_MS.findIndex((bound) => Number(ms) <= bound)
        buckets[found < 0 ? TIME_BOUNDS_MS.length : found] = count
      }
      return buckets
    }
    const { current, candidate, currentPaired, candidatePaired } = times
    const all = {
      ...{ current: bucketed(current), candidate: bucketed(candidate) },
      ...{ currentPaired: bucketed(currentPaired), candidatePaired: bucketed(candidatePaired) },
    }
    return { startMs: index * W, decided, failed, times: all, errors }
  }
  const enough = at(...Array(3).fill({ pairs: 500 }))

  const FAST = { 5: 1000 }
  /** Per cent of 1000 decisions that take this long. */
  const slow = (ms: number, share: number) => ({ 5: 1000 - 10 * share, [ms]: 10 * share })

  test.each<[string, Times, 'fail' | 'pass', number?]>([
    ['a candidate that is slower', { candidate: slow(400, 2), current: FAST }, 'fail'],
    ['one whose pairs are slower', { candidatePaired: slow(400, 2), currentPaired: FAST }, 'fail'],
    ['one that takes seconds, on a slow machine', { candidate: slow(9000, 2), current: slow(2000, 2) }, 'fail'],
    ['a slow machine', { candidate: slow(3000, 5), current: slow(3000, 5) }, 'pass'],
    ['a slow machine, a little slower', { candidate: slow(3000, 5), current: slow(2000, 5) }, 'pass'],
    ['a slow machine, the candidate faster', { candidate: FAST, current: slow(3000, 5) }, 'pass'],
    ['half a per cent of slow checks', { candidate: slow(3000, 0.5), current: FAST }, 'pass'],
    ['a difference below the threshold', { candidate: slow(200, 5), current: FAST }, 'pass'],
    ['pairs that are slower than other requests', { candidatePaired: slow(3000, 5), current: FAST }, 'pass'],
    ['few checks under the candidate', { candidate: { 3000: 199 }, current: FAST }, 'pass'],
    ['few checks under the current version', { candidate: slow(3000, 5), current: { 5: 199 } }, 'pass'],
    ['a slow step without canary, such as shadow', { current: slow(3000, 5) }, 'pass'],
    ['a threshold above a second, exceeded', { candidate: slow(60_000, 2), current: FAST }, 'fail', 30_000],
    ['a threshold above a second, not exceeded', { candidate: slow(20_000, 2), current: FAST }, 'pass', 30_000],
    ['the largest threshold, exceeded', { candidate: slow(99_000, 2), current: FAST }, 'fail', 60_000],
  ])('p99: %s', (_, times, outcome, ms = 250) => {
    const settings = { ...GUARD_DEFAULTS, p99: { ...GUARD_DEFAULTS.p99, ms } }
    const nodes = [9, 10].map((index) => nodeWindow(index, { times }))
    const verdict = judge(evidenceOf(enough, { nodes, settings }))
    expect(verdict).toMatchObject(outcome === 'fail' ? { outcome, metric: 'p99', action: 'pause' } : { outcome })
    if (outcome === 'fail')
      expect(verdict.reason).toMatch(
        /^p99 of checks is at least [\d.]+ ms under the candidate, at most [\d.]+ ms under/,
      )
  })

  test('p99: one such window is not enough', () => {
    const times = { candidate: slow(400, 2), current: FAST }
    const nodes = [nodeWindow(10, { times })]
    expect(judge(evidenceOf(enough, { nodes }))).toMatchObject({ outcome: 'pass' })
  })

  test.each<[string, readonly NodeWindow[], object]>([
    [
      '5 % of checks decided by on_fail',
      [9, 10].map((i) => nodeWindow(i, { failed: 50 })),
      { outcome: 'fail', metric: 'errors', action: 'pause' },
    ],
    ['one such window', [nodeWindow(10, { failed: 500 })], { outcome: 'pass' }],
    [
      'one error among few checks',
      [8, 9, 10].map((i) => nodeWindow(i, { failed: 1, decided: 5 })),
      { outcome: 'pass' },
    ],
    ['a node that cannot apply the rollout', [nodeWindow(10, { errors: ['RULE_INVALID'] })], { outcome: 'error' }],
  ])('%s', (_, nodes, verdict) => {
    expect(judge(evidenceOf(enough, { nodes }))).toMatchObject(verdict)
  })

  test('no figure is ever "not a number"', () => {
    for (const windows of [[], at({ pairs: 0 }), at({ pairs: 1, percent: 100, keys: 1 })]) {
      const { rules } = judge(evidenceOf(windows))
      for (const value of Object.values(rules[0] ?? {})) if (typeof value === 'number') expect(value).not.toBeNaN()
    }
    expect(judge(evidenceOf([])).rules[0]?.newly_denied_percent).toBeNull()
  })
})

describe('one key', () => {
  const pair = (owner: string, candidateDenied: boolean) => ({
    ...{ ruleId: 'a', owner, enforced: 'candidate' as const, currentDenied: false, candidateDenied },
  })
  /** Figures of `nodes` processes, from pairs spread over them. */
  const spread = (pairs: readonly ReturnType<typeof pair>[], nodes: number) => {
    const all = Array.from({ length: nodes }, () => new PairStatistics('salt', W))
    pairs.forEach((one, index) => {
      all[index % nodes]?.add(one, 1000)
    })
    return all.flatMap((one) => one.changed().map(({ figures }) => figures))
  }

  test.each([1, 4])('that floods counts for at most 5 % of the pairs, on %i nodes', (nodes) => {
    const flood = Array.from({ length: 9000 }, () => pair('flood', true))
    const others = Array.from({ length: 1000 }, (_, index) => pair(`key ${index % 100}`, false))
    const window = mergedPairs(0, spread([...flood, ...others], nodes), 5)
    expect(window).toMatchObject({ rawPairs: 10_000, rawNewlyDenied: 9000 })
    expect((100 * window.newlyDenied) / window.pairs).toBeCloseTo(5, 1)
    expect(window.pairs).toBeCloseTo(1052.6, 0)
    expect(distinctKeys(window.keys)).toBe(1)
  })

  test('that does not flood counts fully', () => {
    const pairs = Array.from({ length: 1000 }, (_, index) => pair(`key ${index % 50}`, index % 50 < 10))
    expect(mergedPairs(0, spread(pairs, 3), 5)).toMatchObject({ pairs: 1000, newlyDenied: 200 })
  })

  test('is counted once, whichever nodes see it', () => {
    const pairs = Array.from({ length: 400 }, (_, index) => pair(`key ${index % 40}`, true))
    expect(distinctKeys(mergedPairs(0, spread(pairs, 7), 5).keys)).toBe(40)
  })
})

describe('newly allowed requests', () => {
  type Counts = readonly [owner: string, newlyDenied: number, newlyAllowed: number, same: number]
  /** One window per list, its pairs spread over three nodes. */
  const windowsOf = (...lists: readonly (readonly Counts[])[]) =>
    lists.map((list, index) => {
      const nodes = [0, 1, 2].map(() => new PairStatistics('salt', W))
      let sent = 0
      const add = (owner: string, count: number, currentDenied: boolean, candidateDenied: boolean) => {
        const pair = { ruleId: 'a', owner, enforced: 'candidate' as const, currentDenied, candidateDenied }
        for (let left = count; left > 0; left -= 1) nodes[sent++ % 3]?.add(pair, index * W)
      }
      for (const [owner, denied, allowed, same] of list) {
        add(owner, denied, false, true)
        add(owner, allowed, true, false)
        add(owner, same, true, true)
      }
      return mergedPairs(
        index * W,
        nodes.flatMap((node) => node.changed().map(({ figures }) => figures)),
        100,
      )
    })
  const left = (windows: readonly PairWindow[], phase = false) =>
    offsetDenials(windows, phase).map(({ newlyDenied }) => newlyDenied)
  const keys = (count: number, each: (index: number) => Counts) => Array.from({ length: count }, (_, i) => each(i))

  test('offset newly denied ones of the same key, on whichever nodes', () => {
    expect(left(windowsOf(keys(40, (i) => [`key ${i}`, 12, 12, 26])))).toEqual([0])
    expect(left(windowsOf(keys(40, (i) => [`key ${i}`, 12, 9, 29])))).toEqual([120])
    expect(left(windowsOf(keys(40, (i) => [`key ${i}`, 12, 9, 29])), true)).toEqual([80]) // 12 − 9, and one once
    expect(left(windowsOf(keys(40, (i) => [`key ${i}`, 10, 15, 25])))).toEqual([0])
  })

  test('never offset those of another key', () => {
    const halves = (i: number): Counts => [`key ${i}`, i % 2 === 0 ? 20 : 0, i % 2 === 0 ? 0 : 20, 0]
    expect(left(windowsOf(keys(40, halves)))).toEqual([400])
    const [many = 0] = left(windowsOf(keys(1000, halves))) // more keys than the sample
    expect(many).toBe(10_000)
  })

  test('offset refusals of the next window, two at most', () => {
    const [first, second] = [
      keys(30, (i) => [`key ${i}`, 0, 9, 1] as const),
      keys(30, (i) => [`key ${i}`, 9, 0, 1] as const),
    ]
    expect(left(windowsOf(first, second))).toEqual([0, 30 * 7])
    expect(left(windowsOf(second, first))).toEqual([270, 0])
  })

  test('are not needed to forgive a key that both versions refuse one request, once', () => {
    const flood = keys(30, (i) => [`key ${i}`, 1, 0, 9])
    expect(left(windowsOf(flood, flood, flood), true)).toEqual([0, 30, 30])
    expect(left(windowsOf(flood))).toEqual([30])
    expect(left(windowsOf(keys(30, (i) => [`key ${i}`, 1, 0, 0])), true)).toEqual([30])
  })

  test('of a window with many keys do not thin out the sample of another window', () => {
    const flood = keys(5000, (i) => [`bot ${i}`, 1, 1, 1])
    const harmed = keys(40, (i) => [`key ${i}`, i % 2 === 0 ? 10 : 1, i % 2 === 0 ? 0 : 1, 1])
    expect(left(windowsOf(flood, harmed, harmed)).slice(1)).toEqual([200, 200])
  })

  test('of a sample stand for all keys', () => {
    const [some = 0] = left(windowsOf(keys(2000, (i) => [`key ${i}`, 2, i % 4 === 0 ? 2 : 0, 1])))
    expect(some / 4000).toBeGreaterThan(0.6)
    expect(some / 4000).toBeLessThan(0.9)
  })
})

describe('the sketch of distinct keys', () => {
  test.each([0, 1, 20, 63, 200, 5000])('counts %i keys within a third, and exactly below 64', (count) => {
    const sketches = [0, 1, 2].map((node) => {
      const builder = new SketchBuilder()
      for (let key = 0; key < count; key += 1)
        if (key % 3 === node || key % 5 === 0) builder.add(keyHash('s', 'r', `${key}`))
      return builder.sketch
    })
    const found = distinctKeys(mergedSketch(sketches))
    if (count < 64) expect(found).toBe(count)
    else expect(Math.abs(found - count)).toBeLessThan(count / 3)
  })

  test('uses values below its range', () => {
    expect(keyHash('salt', 'rule', 'owner')).toBeLessThan(HASH_RANGE)
    expect(keyHash('salt', 'rule', 'owner')).not.toBe(keyHash('other', 'rule', 'owner'))
  })
})

test('figures of nodes add up', () => {
  const times = { current: [1, 9], candidate: [], currentPaired: [], candidatePaired: [2] }
  const one = { decided: 10, failed: 1, times }
  const old = { decided: 10, failed: 1, latency: [1, 9] } // of a node of an earlier version
  const merged = mergedNodes(7, [one, { ...one, error: 'x' }, { ...old, error: 'x' }])
  expect(merged).toMatchObject({ ...{ startMs: 7, decided: 30, failed: 3, errors: ['x'] } })
  expect(merged.times.current.slice(0, 3)).toEqual([2, 18, 0])
  expect(merged.times.candidatePaired.slice(0, 3)).toEqual([4, 0, 0])
})
