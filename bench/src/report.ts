// What a scenario answers, and which of its ratios fall short of what was promised.

import type { Machine } from './machine.ts'

export type Result = {
  readonly contender: string
  readonly median: number
  readonly min: number
  readonly max: number
  readonly unit: string
}

export type Outcome = { readonly results: readonly Result[]; readonly ratios: Readonly<Record<string, number>> }

/** The last line that `--json` prints. */
export type Report = Outcome & { readonly scenario: string; readonly machine: Machine }

export type Target = { readonly atLeast: number } | { readonly atMost: number }

export type Scenario = {
  /** One line for the table of the README. */
  readonly what: string
  /** What each ratio must reach; a ratio without a target is only told. */
  readonly targets: Readonly<Record<string, Target>>
  run(options: { readonly rounds: number | undefined }): Promise<Outcome>
}

export function reaches(value: number, target: Target | undefined): boolean {
  if (target === undefined) return true
  return 'atLeast' in target ? value >= target.atLeast : value <= target.atMost
}

export function targetText(target: Target | undefined): string {
  if (target === undefined) return ''
  return 'atLeast' in target ? `≥ ${target.atLeast}` : `≤ ${target.atMost}`
}
