// Rows of the result, one per rule: those of the new rules, and those that only the compared rules have.

import type { Rule } from '../rules/rule.ts'
import { timeText } from './client-tally.ts'
import { coverageOf, type SeenFacts } from './coverage.ts'
import type { Engine } from './engine.ts'
import type { RuleResult } from './result.ts'

/** Rules beyond this number are left out: those with the fewest refusals. */
const RULES_MAX = 1000

type Input = {
  readonly rules: readonly Rule[]
  readonly nowRules: readonly Rule[]
  readonly new: Engine
  readonly now: Engine | undefined
  readonly hasNow: boolean
  readonly recorded: ReadonlyMap<string, number>
  /** Refused clients by rule. */
  readonly clients: ReadonlyMap<string, number>
  readonly seen: SeenFacts
  readonly sampleSeen: SeenFacts | undefined
  readonly rate: number
  readonly scaled: (count: number) => number
}

export function ruleResults(input: Input): RuleResult[] {
  const { rules, nowRules, scaled } = input
  const added = new Set(rules.map(({ rule_id: id }) => id))
  const removed = nowRules.filter(({ rule_id: id }) => !added.has(id))
  const rows = [...rules, ...removed].filter(({ enabled }) => enabled).map((rule) => rowOf(rule, input))
  const only = [...input.recorded].filter(([id]) => !added.has(id)) // refused by rules that are gone
  const gone = only.map(([id, count]) => ({ ...NO_RULE, rule_id: id, now_refused: scaled(count) }))
  return [...rows, ...gone].sort(byRefusals).slice(0, RULES_MAX)
}

const NO_RULE = {
  mode: 'enforce',
  coverage: 'exact',
  refused: 0,
  clients_refused: 0,
  first_refused_at: null,
  last_refused_at: null,
} as const

function rowOf(rule: Rule, input: Input): RuleResult {
  const { rule_id: id, mode } = rule
  const { scaled, seen, sampleSeen, rate, hasNow, now, recorded, clients } = input
  const covered = coverageOf(rule, sampleSeen ?? seen, rate)
  const isLeftOut = covered.coverage === 'needs_full_sample'
  const counts = input.new.of(id)
  const before = now === undefined ? recorded.get(id) : now.of(id)?.refused
  return {
    rule_id: id,
    mode,
    ...covered,
    refused: isLeftOut ? null : scaled(counts?.refused ?? 0),
    now_refused: !hasNow || (isLeftOut && now !== undefined) ? null : scaled(before ?? 0),
    clients_refused: isLeftOut || mode === 'shadow' ? null : scaled(clients.get(id) ?? 0),
    first_refused_at: timeText(counts?.firstUs ?? 0),
    last_refused_at: timeText(counts?.lastUs ?? 0),
  }
}

function byRefusals(a: RuleResult, b: RuleResult): number {
  const [most, other] = [a, b].map(({ refused, now_refused: now }) => Math.max(refused ?? 0, now ?? 0)) as [
    number,
    number,
  ]
  return other - most || (a.rule_id < b.rule_id ? -1 : 1)
}
