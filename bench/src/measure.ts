// Measurement method: contenders run in alternating rounds (A B C A B C …), warm-up rounds are discarded, and results
// are medians with their range. A ratio is the median of the ratios per round: both sides are measured moments apart,
// so that other load on the machine cancels out.

import type { Result } from './report.ts'

/** Numbers measured in one round of one contender. */
export type Sample = Readonly<Record<string, number>>

export type Contender = {
  round(): Sample | Promise<Sample>
  close?(): void | Promise<void>
}

export type Rounds = { readonly rounds: number; readonly warmups: number }

/** Samples by contender, one per round, in the order of the rounds. */
export type Samples<Name extends string> = Readonly<Record<Name, readonly Sample[]>>

export async function alternate<Name extends string>(
  contenders: Readonly<Record<Name, Contender>>,
  { rounds, warmups }: Rounds,
): Promise<Samples<Name>> {
  const names = Object.keys(contenders) as Name[]
  const samples = Object.fromEntries(names.map((name) => [name, [] as Sample[]])) as Record<Name, Sample[]>
  for (let round = -warmups; round < rounds; round++) {
    const shown: string[] = []
    for (const name of names) {
      const sample = await contenders[name].round()
      if (round >= 0) samples[name].push(sample)
      shown.push(`${name} ${Object.entries(sample).map(([field, value]) => `${figure(value)} ${field}`)}`)
    }
    progress(`${round < 0 ? 'warm-up' : `round ${round + 1}/${rounds}`}: ${shown.join(' | ')}`)
  }
  return samples
}

export function resultOf(contender: string, values: readonly number[], unit: string): Result {
  return { contender, median: median(values), min: Math.min(...values), max: Math.max(...values), unit }
}

/** One result per contender for one number of its samples. */
export function resultsOf<Name extends string>(samples: Samples<Name>, field: string, unit: string): Result[] {
  const names = Object.keys(samples) as Name[]
  return names.map((name) => resultOf(name, valuesOf(samples[name], field), unit))
}

/** Median of `numerator / denominator` per round. */
export function pairedRatio(numerator: readonly Sample[], denominator: readonly Sample[], field: string): number {
  const divisors = valuesOf(denominator, field)
  return median(valuesOf(numerator, field).map((value, round) => value / (divisors[round] ?? Number.NaN)))
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length / 2
  const upper = sorted[Math.floor(middle)] ?? Number.NaN
  return Number.isInteger(middle) ? ((sorted[middle - 1] ?? Number.NaN) + upper) / 2 : upper
}

/** Three significant digits; thousands separators in large numbers. */
export function figure(value: number): string {
  if (!Number.isFinite(value)) return String(value)
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value) || 1)))
  return value.toLocaleString('en-US', { maximumFractionDigits: Math.min(digits, 3), useGrouping: true })
}

/** Prints to standard error, because standard output is for results. */
export function progress(text: string): void {
  process.stderr.write(`${text}\n`)
}

function valuesOf(samples: readonly Sample[], field: string): number[] {
  return samples.map((sample) => sample[field] ?? Number.NaN)
}
