// Report of a scenario, and the targets of its ratios.

import type { Machine } from './machine.ts'

export type Result = {
  readonly contender: string
  readonly median: number
  readonly min: number
  readonly max: number
  readonly unit: string
}

export type Outcome = {
  readonly results: readonly Result[]
  readonly ratios: Readonly<Record<string, number>>
  /** Reasons for comparisons that this machine cannot run. */
  readonly skipped?: readonly string[]
}

/** The last line that `--json` prints. */
export type Report = Outcome & { readonly scenario: string; readonly machine: Machine }

export type Target = { readonly atLeast: number } | { readonly atMost: number }

export type Scenario = {
  /** One line for the table of docs/benchmarks.md. */
  readonly what: string
  /** Target of each ratio; a ratio without a target is only reported. */
  readonly targets: Readonly<Record<string, Target>>
  /** Whether `--assert` fails below the targets; default true. */
  readonly isGate?: false
  run(options: { readonly rounds: number | undefined }): Promise<Outcome>
}

export function meetsTarget(value: number, target: Target | undefined): boolean {
  if (target === undefined) return true
  return 'atLeast' in target ? value >= target.atLeast : value <= target.atMost
}

export function targetText(target: Target | undefined): string {
  if (target === undefined) return ''
  return 'atLeast' in target ? `≥ ${target.atLeast}` : `≤ ${target.atMost}`
}
