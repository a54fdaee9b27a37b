// Turns the figures of a node, sampled every 10 seconds, into events: refusal spikes, new hot keys, failing sinks and
// burning error budgets. Time is an argument.

import { type ApiHotKey, mergeHotKeys } from '../fleet/api-hot-key.ts'
import { BadTime } from './bad-time.ts'
import { CheckSamples, NodeTotals, type ProcessTotals } from './check-samples.ts'
import { NewHotKeys } from './new-hot-keys.ts'
import { mergedTopRules } from './recent-refusals.ts'
import { nextSpikeState, type RuleRefusals, SPIKE, type SpikeState } from './refusal-spike.ts'
import { SinkOutages, type SinkState } from './sink-outages.ts'
import {
  BURN,
  type BurnState,
  badDecisions,
  isDrifting,
  isStale,
  nextBurnState,
  type Share,
  SLOS,
  type SloName,
} from './slo-burn.ts'
import type { WebhookEvent } from './webhooks.ts'

export const SAMPLE_MS = 10_000
const DRIFT_MS = 60_000

/** Figures of one process of the node. */
export type ProcessFigures = ProcessTotals & {
  /** Counts of the last minute. */
  readonly topRules: readonly RuleRefusals[]
  /** Hottest first. */
  readonly hotKeys: readonly ApiHotKey[]
  readonly sinks: readonly SinkState[]
  /** Time since the rule source last confirmed the active rules. */
  readonly rulesAgeSeconds: number
}

export type OpenNodeAlert = {
  readonly type: 'refusals.spike' | 'slo.burn' | 'sink.down'
  readonly for_seconds: number
  readonly data: Readonly<Record<string, unknown>>
}

export class NodeAlerts {
  readonly #totals = new NodeTotals()
  readonly #samples = new CheckSamples(BURN.longMs)
  readonly #newHotKeys = new NewHotKeys()
  readonly #sinkOutages = new SinkOutages()
  readonly #badTime = {
    propagation: new BadTime(SAMPLE_MS, BURN.longMs),
    drift: new BadTime(SAMPLE_MS, BURN.longMs),
  } as const
  readonly #burns = new Map<SloName, BurnState>()
  #spike: SpikeState = { kind: 'normal' }

  /** `figures`: of all processes that answered. */
  next(figures: readonly ProcessFigures[], nowMs: number): WebhookEvent[] {
    this.#samples.add(this.#totals.add(figures), nowMs)
    this.#badTime.propagation.add(
      figures.some(({ rulesAgeSeconds }) => isStale(rulesAgeSeconds)),
      nowMs,
    )
    this.#badTime.drift.add(isDrifting(this.#samples.increase(nowMs - DRIFT_MS, nowMs)), nowMs)
    return [
      ...this.#nextSpike(mergedTopRules(figures.map(({ topRules }) => topRules)), nowMs),
      ...this.#newHotKeys.next(mergeHotKeys(figures.map(({ hotKeys }) => hotKeys)), nowMs),
      ...this.#sinkOutages.next(
        figures.flatMap(({ sinks }) => sinks),
        nowMs,
      ),
      ...(Object.keys(SLOS) as SloName[]).flatMap((slo) => this.#nextBurn(slo, nowMs)),
    ]
  }

  /** Alerts that are open, with the time since they began. */
  open(nowMs: number): OpenNodeAlert[] {
    const burns = [...this.#burns].flatMap(([slo, { sinceMs }]) =>
      sinceMs === undefined ? [] : [{ type: 'slo.burn' as const, sinceMs, data: { slo } }],
    )
    const spike = this.#spike.kind === 'spike' ? [{ type: 'refusals.spike' as const, ...this.#spike, data: {} }] : []
    const sinks = this.#sinkOutages
      .open()
      .map(({ sink, sinceMs }) => ({ type: 'sink.down' as const, sinceMs, data: { sink } }))
    return [...spike, ...burns, ...sinks].map(({ type, sinceMs, data }) => {
      return { type, for_seconds: Math.round((nowMs - sinceMs) / 1000), data }
    })
  }

  #nextSpike(topRules: readonly RuleRefusals[], nowMs: number): WebhookEvent[] {
    const startMs = nowMs - SPIKE.windowMs
    const minute = this.#samples.increase(startMs, nowMs)
    const baseline = this.#samples.increase(startMs - SPIKE.baselineMs, startMs)
    const { state, event } = nextSpikeState(this.#spike, { minute, baseline, topRules, nowMs })
    this.#spike = state
    return event === undefined ? [] : [event]
  }

  #nextBurn(slo: SloName, nowMs: number): WebhookEvent[] {
    const [hour, fiveMinutes] = [this.#share(slo, BURN.longMs, nowMs), this.#share(slo, BURN.shortMs, nowMs)]
    const before = this.#burns.get(slo) ?? { sinceMs: undefined }
    const { state, event } = nextBurnState(slo, before, { hour, fiveMinutes, nowMs })
    this.#burns.set(slo, state)
    return event === undefined ? [] : [event]
  }

  #share(slo: SloName, windowMs: number, nowMs: number): Share {
    return slo === 'availability' || slo === 'latency'
      ? badDecisions(slo, this.#samples.increase(nowMs - windowMs, nowMs))
      : this.#badTime[slo].share(windowMs, nowMs)
  }
}
