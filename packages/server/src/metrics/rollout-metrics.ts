// Metrics of rollouts, as this node sees them.

import type { Registry } from 'prom-client'
import { type CounterDefinition, type GaugeDefinition, registerCounters, registerGauges } from './registration.ts'

export type RolloutFacts = {
  readonly rules: readonly {
    readonly ruleId: string
    readonly share: number
    readonly pairShare: number
    readonly paused: boolean
  }[]
  /** Pairs by `result rule`. */
  readonly pairs: ReadonlyMap<string, number>
  /** Proposals that this process moved, by their new state. */
  readonly moved: ReadonlyMap<string, number>
  readonly dropped: number
  readonly failures: number
  readonly isEvaluator: boolean
  readonly unconfirmed: boolean
  readonly confirmedSeconds: number
}

const STATES = ['draft', 'approved', 'rolling_out', 'done', 'rejected', 'cancelled', 'rolled_back'] as const

export const NO_ROLLOUTS: RolloutFacts = {
  rules: [],
  pairs: new Map(),
  moved: new Map(),
  dropped: 0,
  failures: 0,
  isEvaluator: false,
  unconfirmed: false,
  confirmedSeconds: 0,
}

export function registerRollouts(registry: Registry, facts: () => RolloutFacts): void {
  registerCounters(registry, facts, COUNTERS)
  registerGauges(registry, facts, GAUGES)
}

const COUNTERS: readonly CounterDefinition<RolloutFacts>[] = [
  {
    name: 'sluice_rollout_pairs_total',
    help: 'Requests that both versions of a rule decided, by result: same, newly_denied or newly_allowed.',
    labels: ['rule', 'result'],
    read: ({ pairs }) =>
      [...pairs].map(([name, count]) => {
        const [result = '', rule = ''] = name.split(' ')
        return [{ rule, result }, count] as const
      }),
  },
  {
    name: 'sluice_rollout_transitions_total',
    help: 'Proposals that this node moved to a state.',
    labels: ['state'],
    // All states from the start: Prometheus does not see the first count of a new series as an increase.
    read: ({ moved }) => STATES.map((state) => [{ state }, moved.get(state) ?? 0] as const),
  },
  {
    name: 'sluice_rollout_pairs_dropped_total',
    help: 'Pairs that the guard could not count per key, and windows that were not stored.',
    read: ({ dropped }) => dropped,
  },
  {
    name: 'sluice_rollout_evaluation_failures_total',
    help: 'Evaluations of the guard that failed.',
    read: ({ failures }) => failures,
  },
]

const GAUGES: readonly GaugeDefinition<RolloutFacts>[] = [
  {
    name: 'sluice_rollout_share',
    help: 'Share of keys under the new version of a rule that rolls out; 1 for a direct edit under guard.',
    labels: ['rule'],
    aggregator: 'max',
    read: ({ rules }) => rules.map(({ ruleId, share }) => [{ rule: ruleId }, share] as const),
  },
  {
    name: 'sluice_rollout_pair_share',
    help: 'Share of keys that both versions of a rule decide.',
    labels: ['rule'],
    aggregator: 'max',
    read: ({ rules }) => rules.map(({ ruleId, pairShare }) => [{ rule: ruleId }, pairShare] as const),
  },
  {
    name: 'sluice_rollout_paused',
    help: 'Rules whose rollout is paused.',
    aggregator: 'max',
    read: ({ rules }) => rules.filter(({ paused }) => paused).length,
  },
  {
    name: 'sluice_rollout_unconfirmed',
    help: '1 while the database has not confirmed the rollouts and the current rules apply to all keys.',
    aggregator: 'max',
    read: ({ unconfirmed }) => (unconfirmed ? 1 : 0),
  },
  {
    name: 'sluice_rollout_confirmed_age_seconds',
    help: 'Time since the database last confirmed the rollouts.',
    aggregator: 'max',
    read: ({ confirmedSeconds }) => confirmedSeconds,
  },
  {
    name: 'sluice_rollout_evaluator',
    help: '1 if this node evaluates the guard of all rollouts.',
    aggregator: 'max',
    read: ({ isEvaluator }) => (isEvaluator ? 1 : 0),
  },
]
