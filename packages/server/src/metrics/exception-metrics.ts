// Metrics of exceptions: overrides, bypass tokens, signals, and the tools of an incident.

import type { Registry } from 'prom-client'
import { type CounterDefinition, type GaugeDefinition, registerCounters, registerGauges } from './registration.ts'

export type ExceptionFacts = {
  readonly overrides: number
  readonly signals: number
  readonly bypassTokens: number
  readonly frozen: boolean
  /** 1: limits are unchanged. */
  readonly globalFactor: number
  /** Decisions that an exception changed, by kind. */
  readonly applied: Readonly<Record<string, number>>
  readonly bypassUses: readonly (readonly [name: string, uses: number])[]
  readonly bypassRejected: Readonly<Record<string, number>>
  readonly guessesRefused: number
}

export const NO_EXCEPTIONS: ExceptionFacts = {
  overrides: 0,
  signals: 0,
  bypassTokens: 0,
  frozen: false,
  globalFactor: 1,
  applied: {},
  bypassUses: [],
  bypassRejected: {},
  guessesRefused: 0,
}

export function registerExceptions(registry: Registry, facts: () => ExceptionFacts): void {
  registerCounters(registry, facts, COUNTERS)
  registerGauges(registry, facts, GAUGES)
}

const COUNTERS: readonly CounterDefinition<ExceptionFacts>[] = [
  {
    name: 'sluice_exceptions_applied_total',
    help: 'Decisions that an override, a signal, the global factor or a bypass token changed, by kind.',
    labels: ['kind'],
    read: ({ applied }) => Object.entries(applied).map(([kind, count]) => [{ kind }, count] as const),
  },
  {
    name: 'sluice_bypass_uses_total',
    help: 'Requests that used a bypass token, by its name.',
    labels: ['token'],
    read: ({ bypassUses }) => merged(bypassUses).map(([token, uses]) => [{ token }, uses] as const),
  },
  {
    name: 'sluice_bypass_rejected_total',
    help: 'Requests whose bypass token was ignored, by reason: unknown, expired, revoked or pending.',
    labels: ['reason'],
    read: ({ bypassRejected }) => Object.entries(bypassRejected).map(([reason, count]) => [{ reason }, count] as const),
  },
  {
    name: 'sluice_bypass_guesses_refused_total',
    help: 'Requests refused because their client sent too many unknown bypass tokens.',
    read: ({ guessesRefused }) => guessesRefused,
  },
]

const GAUGES: readonly GaugeDefinition<ExceptionFacts>[] = [
  { name: 'sluice_overrides', help: 'Overrides in force.', aggregator: 'max', read: ({ overrides }) => overrides },
  { name: 'sluice_signals', help: 'Abuse signals in force.', aggregator: 'max', read: ({ signals }) => signals },
  {
    name: 'sluice_bypass_tokens',
    help: 'Valid bypass tokens.',
    aggregator: 'max',
    read: ({ bypassTokens }) => bypassTokens,
  },
  {
    name: 'sluice_rules_frozen',
    help: '1 while rule changes are frozen.',
    aggregator: 'max',
    read: ({ frozen }) => (frozen ? 1 : 0),
  },
  {
    name: 'sluice_global_factor',
    help: 'Global factor on all limits; 1 if there is none.',
    aggregator: 'min',
    read: ({ globalFactor }) => globalFactor,
  },
]

/** Names of tokens may repeat. */
function merged(uses: ExceptionFacts['bypassUses']): (readonly [string, number])[] {
  const totals = new Map<string, number>()
  for (const [name, count] of uses) totals.set(name, (totals.get(name) ?? 0) + count)
  return [...totals]
}
