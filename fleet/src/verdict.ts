// What a fleet promises, and whether it was kept.

import type { Region } from './bed.ts'
import { ALL, type Ledger } from './ledger.ts'
import { percent } from './table.ts'

/** A primary that was killed: when, and in which region. */
export type Kill = { readonly region: string; readonly atMs: number }

export type Promised = { readonly kept: boolean; readonly text: string }

export const DRIFT_MAX = 0.05
/** Of a shard that has lost its primary, until it is exact again. */
export const RECOVERY_SECONDS_MAX = 20

export function verdictOf(ledger: Ledger, regions: readonly Region[], kill: Kill | undefined): Promised[] {
  const drift = ledger.drift(ALL)
  return [
    ...promisedUnderLoad(ledger, regions),
    {
      kept: Math.abs(drift) <= DRIFT_MAX,
      text: `drift of the shared limit at most ${percent(DRIFT_MAX)}: ${percent(drift)} against one exact limiter`,
    },
    ...(kill === undefined ? [] : [recovery(ledger, kill)]),
  ]
}

/** What holds under any load and fault. */
export function promisedUnderLoad(ledger: Ledger, regions: readonly Region[]): Promised[] {
  const { violations, fullest, buckets } = ledger.intervals()
  const failed = regions.reduce((sum, { name }) => sum + ledger.counts(name).failed, 0)
  const answered = regions.reduce((sum, { name }) => {
    const { admitted, refused } = ledger.counts(name)
    return sum + admitted + refused
  }, 0)
  const most = `the fullest had ${percent(fullest)} of it`
  const died = regions.flatMap(({ nodes }) => nodes.filter((node) => node.died)).length
  return [
    {
      kept: violations === 0,
      text: `no interval above a limit, in ${buckets} buckets: ${violations} were; ${most}`,
    },
    { kept: failed === 0, text: `every request answered: ${answered} were, ${failed} were not` },
    { kept: died === 0, text: `every node alive: ${died} died` },
  ]
}

function recovery(ledger: Ledger, { region, atMs }: Kill): Promised {
  const { lastPolicyMs, byPolicy } = ledger.counts(region)
  const seconds = Math.max(0, lastPolicyMs - atMs) / 1000
  const noticed = `${byPolicy} requests of ${region} were decided by on_fail`
  return {
    kept: byPolicy > 0 && seconds <= RECOVERY_SECONDS_MAX,
    text: `a primary of ${region} killed: its shard was exact again after ${seconds.toFixed(1)} s; ${noticed}`,
  }
}

export function verdictText(promises: readonly Promised[]): string {
  const lines = promises.map(({ kept, text }) => `  ${kept ? 'kept  ' : 'BROKEN'}  ${text}`)
  return `\n${lines.join('\n')}\n${promises.every(({ kept }) => kept) ? 'all promises kept' : 'a promise broke'}\n`
}
