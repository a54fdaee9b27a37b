// How every figure is taken: contenders run in alternating rounds (A B C A B C …), the warm-up rounds are thrown away,
// and what is told is the median with its spread. A ratio is the median of the ratios of each round: the two sides of
// such a ratio were measured moments apart, so whatever else the machine was doing weighs on both and cancels out.

import type { Result } from './report.ts'

/** What one round of one contender yields: numbers by name. */
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

/** One result per contender, of one number of its samples. */
export function resultsOf<Name extends string>(samples: Samples<Name>, field: string, unit: string): Result[] {
  const names = Object.keys(samples) as Name[]
  return names.map((name) => resultOf(name, valuesOf(samples[name], field), unit))
}

/** `above / below`, round by round; the median of that. */
export function pairedRatio(above: readonly Sample[], below: readonly Sample[], field: string): number {
  const divisors = valuesOf(below, field)
  return median(valuesOf(above, field).map((value, round) => value / (divisors[round] ?? Number.NaN)))
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length / 2
  const upper = sorted[Math.floor(middle)] ?? Number.NaN
  return Number.isInteger(middle) ? ((sorted[middle - 1] ?? Number.NaN) + upper) / 2 : upper
}

/** Three digits are all that such a measurement is worth; large numbers keep their thousands apart. */
export function figure(value: number): string {
  if (!Number.isFinite(value)) return String(value)
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value) || 1)))
  return value.toLocaleString('en-US', { maximumFractionDigits: Math.min(digits, 3), useGrouping: true })
}

/** Standard output is for results. */
export function progress(text: string): void {
  process.stderr.write(`${text}\n`)
}

function valuesOf(samples: readonly Sample[], field: string): number[] {
  return samples.map((sample) => sample[field] ?? Number.NaN)
}
