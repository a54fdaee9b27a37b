// Rules that refused the most checks of this process within the last minute.

import { DEMO_RULE_IDS } from '../demo/demo-requests.ts'
import type { RuleRefusals } from './refusal-spike.ts'

/** Each process reports more, so that the sums of the node are right. */
const TOP_MAX = { process: 20, node: 5 } as const

export class RecentRefusals {
  readonly #keptMax: number
  /** Refused checks by rule since the start of the process, oldest first. */
  readonly #counts: ReadonlyMap<string, number>[] = []

  /** `samples` per minute. */
  constructor(samples: number) {
    this.#keptMax = samples + 1
  }

  add(refusedByRule: ReadonlyMap<string, number>): void {
    this.#counts.push(refusedByRule)
    if (this.#counts.length > this.#keptMax) this.#counts.shift()
  }

  /** Since the oldest kept sample; `refusedByRule` are the current counts. */
  top(refusedByRule: ReadonlyMap<string, number>): RuleRefusals[] {
    const before = this.#counts[0] ?? refusedByRule
    const increases = [...refusedByRule].map(([rule, refused]) => [rule, refused - (before.get(rule) ?? 0)] as const)
    return topRules(increases, TOP_MAX.process)
  }
}

/** Adds up the answers of several processes. */
export function mergedTopRules(ofProcesses: readonly (readonly RuleRefusals[])[]): RuleRefusals[] {
  const sums = new Map<string, number>()
  for (const { rule_id, refused } of ofProcesses.flat()) sums.set(rule_id, refused + (sums.get(rule_id) ?? 0))
  return topRules([...sums], TOP_MAX.node)
}

/** Demo traffic is refused on purpose: its refusals raise no alert. Counts since the start of the process. */
export function withoutDemo<Totals extends { readonly refused: number }>(
  totals: Totals,
  refusedByRule: ReadonlyMap<string, number>,
): { readonly totals: Totals; readonly refusedByRule: ReadonlyMap<string, number> } {
  const ofDemo = DEMO_RULE_IDS.reduce((sum, id) => sum + (refusedByRule.get(id) ?? 0), 0)
  const others = [...refusedByRule].filter(([id]) => !DEMO_RULE_IDS.includes(id))
  return { totals: { ...totals, refused: totals.refused - ofDemo }, refusedByRule: new Map(others) }
}

function topRules(counts: readonly (readonly [rule: string, refused: number])[], max: number): RuleRefusals[] {
  return counts
    .filter(([, refused]) => refused > 0)
    .sort(([, one], [, other]) => other - one)
    .slice(0, max)
    .map(([rule_id, refused]) => ({ rule_id, refused }))
}
