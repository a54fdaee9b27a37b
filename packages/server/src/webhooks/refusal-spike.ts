// Detects start and end of a sudden rise in the share of checks that a node refuses.

import type { Increase } from './check-samples.ts'
import type { WebhookEvent } from './webhooks.ts'

export const SPIKE = {
  windowMs: 60_000,
  baselineMs: 600_000,
  /** A node that has just started has no baseline. */
  baselineMsMin: 60_000,
  /** Both must hold: the factor over the baseline share, and the difference from it. */
  factor: 5,
  points: 0.1,
  refusedMin: 100,
  /** After this time the new share counts as normal. */
  lastsMsMax: 3_600_000,
} as const

/** Refused checks of a rule within the last minute. */
export type RuleRefusals = { readonly rule_id: string; readonly refused: number }

export type SpikeState =
  | { readonly kind: 'normal' }
  /** The baseline is that from before the spike: a long spike becomes part of the current one. */
  | { readonly kind: 'spike'; readonly sinceMs: number; readonly baselineShare: number }

export type SpikeInput = {
  readonly minute: Increase
  /** The ten minutes before that. */
  readonly baseline: Increase
  readonly topRules: readonly RuleRefusals[]
  readonly nowMs: number
}

export type SpikeStep = { readonly state: SpikeState; readonly event?: WebhookEvent }

export function nextSpikeState(state: SpikeState, input: SpikeInput): SpikeStep {
  return state.kind === 'normal' ? fromNormal(state, input) : fromSpike(state, input)
}

function fromNormal(state: SpikeState, { minute, baseline, topRules, nowMs }: SpikeInput): SpikeStep {
  const [share, baselineShare] = [shareOf(minute), shareOf(baseline)]
  if (baseline.spanMs < SPIKE.baselineMsMin || minute.refused < SPIKE.refusedMin) return { state }
  if (share < thresholdOver(baselineShare)) return { state }
  const data = {
    refused_share: rounded(share),
    baseline_share: rounded(baselineShare),
    refused: minute.refused,
    checks: minute.decided,
    top_rules: topRules,
  }
  return { state: { kind: 'spike', sinceMs: nowMs, baselineShare }, event: { type: 'refusals.spike', data } }
}

/** Ends half-way between baseline and threshold, so that a share near the threshold sends one event. */
function fromSpike(state: SpikeState & { kind: 'spike' }, { minute, nowMs }: SpikeInput): SpikeStep {
  const { baselineShare, sinceMs } = state
  const share = shareOf(minute)
  const endsBelow = (baselineShare + thresholdOver(baselineShare)) / 2
  const goesOn = share >= endsBelow && minute.refused >= SPIKE.refusedMin / 2
  if (goesOn && nowMs - sinceMs < SPIKE.lastsMsMax) return { state }
  const data = {
    refused_share: rounded(share),
    baseline_share: rounded(baselineShare),
    seconds: Math.round((nowMs - sinceMs) / 1000),
  }
  return { state: { kind: 'normal' }, event: { type: 'refusals.normal', data } }
}

function thresholdOver(baselineShare: number): number {
  return Math.max(baselineShare * SPIKE.factor, baselineShare + SPIKE.points)
}

function shareOf({ refused, decided }: Increase): number {
  return decided === 0 ? 0 : refused / decided
}

function rounded(share: number): number {
  return Number(share.toFixed(3))
}
