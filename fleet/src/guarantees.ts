// Guarantees of a fleet, and whether they held.

import { ALL, type Ledger } from './ledger.ts'
import { percent } from './table.ts'
import type { Region } from './testbed.ts'

export type Kill = { readonly region: string; readonly atMs: number }

export type Guarantee = { readonly held: boolean; readonly text: string }

export const DRIFT_MAX = 0.05
/** Time until Redis decides again for the slots of a killed primary. */
export const RECOVERY_SECONDS_MAX = 20

export function checkGuarantees(ledger: Ledger, regions: readonly Region[], kill: Kill | undefined): Guarantee[] {
  const drift = ledger.drift(ALL)
  return [
    ...loadGuarantees(ledger, regions),
    {
      held: Math.abs(drift) <= DRIFT_MAX,
      text: `drift of the shared limit at most ${percent(DRIFT_MAX)}: ${percent(drift)} against one exact limiter`,
    },
    ...(kill === undefined ? [] : [recovery(ledger, kill)]),
  ]
}

/** Guarantees that hold under any load and fault. */
export function loadGuarantees(ledger: Ledger, regions: readonly Region[]): Guarantee[] {
  const { violations, peakUsage, buckets } = ledger.intervals()
  const failed = regions.reduce((sum, { name }) => sum + ledger.counts(name).failed, 0)
  const answered = regions.reduce((sum, { name }) => {
    const { admitted, refused } = ledger.counts(name)
    return sum + admitted + refused
  }, 0)
  const most = `highest usage ${percent(peakUsage)} of the limit`
  const died = regions.flatMap(({ nodes }) => nodes.filter((node) => node.died)).length
  return [
    {
      held: violations === 0,
      text: `no interval above a limit, in ${buckets} buckets: ${violations} violations; ${most}`,
    },
    { held: failed === 0, text: `every request answered: ${answered} answered, ${failed} failed` },
    { held: died === 0, text: `no node crashed: ${died} crashed` },
  ]
}

function recovery(ledger: Ledger, { region, atMs }: Kill): Guarantee {
  const { lastPolicyMs, byPolicy } = ledger.counts(region)
  const seconds = Math.max(0, lastPolicyMs - atMs) / 1000
  const policy = `${byPolicy} requests of ${region} were decided by on_fail`
  return {
    held: byPolicy > 0 && seconds <= RECOVERY_SECONDS_MAX,
    text: `after a primary of ${region} was killed, its slots recovered within ${seconds.toFixed(1)} s; ${policy}`,
  }
}

export function reportText(guarantees: readonly Guarantee[]): string {
  const lines = guarantees.map(({ held, text }) => `  ${held ? 'held  ' : 'BROKEN'}  ${text}`)
  const summary = guarantees.every(({ held }) => held) ? 'all guarantees held' : 'a guarantee was broken'
  return `\n${lines.join('\n')}\n${summary}\n`
}
