// The guard's formula: windows in, verdict out. Pure, so that every threshold is tested with tables.
//
// fail   a metric is beyond its threshold in `failing` of the last `of` complete windows, or far beyond it in one
// pass   enough pairs of every rule during the step, also recently, and no metric fails
// hold   too few pairs: neither advances nor rolls back
// error  a node cannot apply the rollout, or the figures cannot be read

import { distinctKeys, mergedSketch } from './distinct-keys.ts'
import type { Action, GuardSettings } from './guard-settings.ts'
import { type Credits, inStep, type NodeWindow, offsetDenials, type PairWindow, p99Ms, summed } from './windows.ts'

export type Outcome = 'pass' | 'fail' | 'hold' | 'error'
export type Metric = 'newly_denied' | 'errors' | 'p99'

export type RuleFigures = {
  readonly rule_id: string
  /** Counts since the step began. */
  readonly pairs: number
  /** Without those that newly allowed requests of the same key offset. */
  readonly newly_denied: number
  readonly offset: number
  readonly newly_allowed: number
  readonly both_denied: number
  /** Share of the newest complete window, in per cent, with the cap per key; null without pairs. */
  readonly newly_denied_percent: number | null
  /** Distinct newly denied keys since the step began. */
  readonly keys: number
}

export type Verdict = {
  readonly outcome: Outcome
  /** One sentence with the numbers. */
  readonly reason: string
  /** The metric that failed, and its configured action. */
  readonly metric: Metric | null
  readonly action: Action | 'alert' | null
  readonly rules: readonly RuleFigures[]
}

export type WatchedRule = {
  readonly ruleId: string
  /** Reason why its requests are not compared; undefined if they are. */
  readonly unpairable?: string | undefined
  /** A tightening of a rule with `intent: abuse`: a flood must not undo it, so newly denied requests only alert. */
  readonly alertOnly: boolean
  /** Ignore the first newly denied request of a key that both versions refuse. */
  readonly phase: boolean
  /** Sorted by time: at least the windows that decide. */
  readonly windows: readonly PairWindow[]
  /** Credits of keys from earlier windows of the rollout. */
  readonly credits?: Credits | undefined
  /** Sum of earlier windows of the step. */
  readonly earlier?: PairWindow | undefined
}

export type Evidence = {
  readonly settings: GuardSettings
  readonly rules: readonly WatchedRule[]
  readonly nodes: readonly NodeWindow[]
  /** Database time. */
  readonly nowMs: number
  readonly stepAtMs: number
  /** Time of the step; undefined if it ends by hand. */
  readonly forMs: number | undefined
}

/** Nodes write their figures every second: a window is complete a little after its end. */
export const LATE_MS = 2000

type Failure = { readonly metric: Metric; readonly action: Action | 'alert'; readonly reason: string }

export function judge(given: Evidence): Verdict {
  const offset = given.rules.map((rule) => {
    return { ...rule, windows: offsetDenials(rule.windows, rule.phase, new Map(rule.credits)) }
  })
  const evidence = { ...given, rules: offset }
  const rules = evidence.rules.map((rule) => figuresOf(rule, evidence))
  const verdict = (outcome: Outcome, reason: string, failure?: Failure): Verdict => {
    return { outcome, reason, metric: failure?.metric ?? null, action: failure?.action ?? null, rules }
  }
  const failures = [...evidence.rules.flatMap((rule) => deniedFailure(rule, evidence)), ...nodeFailures(evidence)]
  const worst = failures.sort((one, other) => SEVERITY.indexOf(one.action) - SEVERITY.indexOf(other.action))[0]
  if (worst !== undefined) return verdict('fail', worst.reason, worst)
  const [error] = lastWindows(evidence.nodes, evidence, 1).flatMap(({ errors }) => errors)
  if (error !== undefined) return verdict('error', `a node cannot apply the rollout: ${error}`)
  const missing = evidence.rules.flatMap((rule) => missingPairs(rule, evidence) ?? [])
  return missing.length > 0 ? verdict('hold', missing.join('; ')) : verdict('pass', passed(rules))
}

const SEVERITY: readonly Failure['action'][] = ['revert', 'pause', 'alert']

function deniedFailure(rule: WatchedRule, evidence: Evidence): Failure[] {
  const { settings, nowMs } = evidence
  const { newlyDenied: limits, windowMs } = settings
  const recent = rule.windows.filter(({ startMs }) => startMs > nowMs - (settings.of + 1) * windowMs - LATE_MS)
  const keys = distinctKeys(mergedSketch(recent.map((window) => window.keys)))
  if (keys < limits.minKeys) return []
  const action = rule.alertOnly ? 'alert' : limits.on
  const fails = (window: PairWindow, points: number, minPairs: number) =>
    window.pairs >= minPairs && percent(window.newlyDenied, window.pairs) >= points
  const failure = (window: PairWindow, points: number): Failure[] => {
    const share = rounded(percent(window.newlyDenied, window.pairs))
    const numbers = `${share} % of ${Math.round(window.pairs)} paired requests newly denied`
    return [
      {
        metric: 'newly_denied',
        action,
        reason: `rule ${rule.ruleId}: ${numbers} (threshold ${points} %), ${keys} keys`,
      },
    ]
  }
  const hard = recent.find((window) => fails(window, limits.hardPoints, limits.hardMinPairs))
  if (hard !== undefined) return failure(hard, limits.hardPoints)
  const failing = lastWindows(rule.windows, evidence, settings.of).filter((window) => {
    return fails(window, limits.points, limits.minPairs)
  })
  const [newest] = failing.slice(-1)
  return newest !== undefined && failing.length >= settings.failing ? failure(newest, limits.points) : []
}

function nodeFailures(evidence: Evidence): Failure[] {
  const { settings, nodes } = evidence
  const { errors, p99 } = settings
  const windows = lastWindows(nodes, evidence, settings.of)
  const failed = windows.filter((window) => {
    return window.decided >= errors.minDecisions && percent(window.failed, window.decided) >= errors.percent
  })
  const slow = windows.flatMap((window) => slowerCandidate(window, p99) ?? [])
  const failures: Failure[] = []
  const [lastFailed, lastSlow] = [failed.at(-1), slow.at(-1)]
  if (lastFailed !== undefined && failed.length >= settings.failing) {
    const share = rounded(percent(lastFailed.failed, lastFailed.decided))
    const reason = `on_fail decided ${share} % of ${lastFailed.decided} checks (threshold ${errors.percent} %)`
    failures.push({ metric: 'errors', action: errors.on, reason })
  }
  if (lastSlow !== undefined && slow.length >= settings.failing) {
    const { candidate, current } = lastSlow
    const reason =
      `p99 of checks is at least ${rounded(candidate)} ms under the candidate, at most ${rounded(current)} ms under ` +
      `the current version in the same window (threshold ${p99.ms} ms and ${SLOWER} times slower)`
    failures.push({ metric: 'p99', action: p99.on, reason })
  }
  return failures
}

/** A machine that is slow for both versions makes no candidate look slower. */
const SLOWER = 2

/**
 * Compares the versions in one window, and requests of pairs with requests of pairs only. Errs towards undefined: with
 * the lower bound of the candidate's p99 and the upper bound of the other.
 */
function slowerCandidate(
  { times }: NodeWindow,
  { ms, minDecisions }: GuardSettings['p99'],
): { readonly candidate: number; readonly current: number } | undefined {
  const sides = [
    [times.candidate, times.current],
    [times.candidatePaired, times.currentPaired],
  ] as const
  for (const side of sides) {
    const [candidate, current] = [p99Ms(side[0]), p99Ms(side[1])]
    if (Math.min(candidate.count, current.count) < minDecisions) continue
    if (candidate.min >= current.max + ms && candidate.min >= SLOWER * current.max)
      return { candidate: candidate.min, current: current.max }
  }
  return undefined
}

/** Names what is missing; undefined if the rule has enough pairs. */
function missingPairs(rule: WatchedRule, evidence: Evidence): string | undefined {
  const { settings, nowMs, stepAtMs, forMs } = evidence
  const { ruleId, unpairable } = rule
  if (unpairable !== undefined) return `rule ${ruleId}: no pairs: ${unpairable}; promote it by hand`
  const { minPairs } = settings.newlyDenied
  const spanMs = Math.max(forMs ?? 0, settings.of * settings.windowMs)
  const fromMs = Math.max(nowMs - spanMs, stepAtMs) - settings.windowMs
  const inSpan = rule.windows.filter(({ startMs }) => startMs > fromMs)
  const pairs = total(inSpan)
  if (pairs < minPairs) return `rule ${ruleId}: ${Math.floor(pairs)} of ${minPairs} pairs`
  // Pairs must still arrive: silence after a busy start is no evidence.
  const recentMs = settings.of * settings.windowMs
  const recent = total(inSpan.filter(({ startMs }) => startMs > nowMs - recentMs - settings.windowMs))
  const needed = Math.max(1, Math.ceil((minPairs * Math.min(recentMs, spanMs)) / spanMs / 2))
  if (recent < needed)
    return `rule ${ruleId}: ${Math.floor(recent)} of ${needed} pairs in the last ${Math.round(recentMs / 1000)} s`
  return rule.alertOnly ? undefined : aboveThreshold(rule, inSpan, evidence)
}

const ACTS: Readonly<Record<Action, string>> = { revert: 'reverts', pause: 'pauses' }

/** A share above the threshold does not pass, even if keys or pairs are too few to fail. */
function aboveThreshold(rule: WatchedRule, inSpan: readonly PairWindow[], evidence: Evidence): string | undefined {
  const { settings } = evidence
  const { points, minPairs, minKeys, on } = settings.newlyDenied
  const denied = (windows: readonly PairWindow[]) => windows.reduce((sum, { newlyDenied }) => sum + newlyDenied, 0)
  const share = percent(denied(inSpan), total(inSpan))
  const recent = lastWindows(rule.windows, evidence, settings.of).filter((window) => {
    return window.pairs >= minPairs && percent(window.newlyDenied, window.pairs) >= points
  })
  if (share < points && recent.length === 0) return undefined
  const shown = rounded(Math.max(share, ...recent.map((window) => percent(window.newlyDenied, window.pairs))))
  const keys = distinctKeys(mergedSketch(inSpan.map((window) => window.keys)))
  const missing =
    keys < minKeys
      ? `only ${keys} of ${minKeys} keys`
      : `above it in ${recent.length} of ${settings.of} windows; ${ACTS[on]} at ${settings.failing}`
  return `rule ${rule.ruleId}: ${shown} % of paired requests newly denied (threshold ${points} %), ${missing}`
}

function total(windows: readonly PairWindow[]): number {
  return windows.reduce((sum, { pairs }) => sum + pairs, 0)
}

function figuresOf(rule: WatchedRule, evidence: Evidence): RuleFigures {
  const { settings, stepAtMs } = evidence
  const windows = rule.windows.filter((window) => inStep(window, stepAtMs, settings.windowMs))
  const sum = summed(rule.earlier === undefined ? windows : [rule.earlier, ...windows])
  const [newest] = lastWindows(rule.windows, evidence, 1)
  return {
    rule_id: rule.ruleId,
    pairs: sum.rawPairs,
    newly_denied: sum.rawNewlyDenied,
    offset: sum.offset,
    newly_allowed: sum.newlyAllowed,
    both_denied: sum.bothDenied,
    newly_denied_percent: newest && newest.pairs > 0 ? rounded(percent(newest.newlyDenied, newest.pairs)) : null,
    keys: distinctKeys(sum.keys),
  }
}

/** Returns those of the last `count` complete windows that have figures. A window without figures counts as passed. */
function lastWindows<W extends { readonly startMs: number }>(
  windows: readonly W[],
  { settings: { windowMs }, nowMs }: Evidence,
  count: number,
): W[] {
  const lastStartMs = Math.floor((nowMs - LATE_MS) / windowMs) * windowMs - windowMs
  return windows.filter(({ startMs }) => startMs <= lastStartMs && startMs > lastStartMs - count * windowMs)
}

function passed(rules: readonly RuleFigures[]): string {
  return rules
    .map(
      ({ rule_id, pairs, newly_denied }) =>
        `rule ${rule_id}: ${newly_denied} of ${pairs} pairs newly denied in this step`,
    )
    .join('; ')
}

/** 0 for an empty denominator: no figure is ever NaN. */
function percent(part: number, whole: number): number {
  return whole > 0 ? (100 * part) / whole : 0
}

function rounded(value: number): number {
  return Math.round(value * 10) / 10
}
