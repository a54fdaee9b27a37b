// Finds the buckets that get the most checks, by sampling one check in 128 on average. Memory is bounded.
// Errs low: a bucket's figures are what its samples prove.

import type { Clock } from '../clock.ts'
import type { ChargeSet } from '../rules/charge-set.ts'
import type { CompiledLimit } from '../rules/compile.ts'
import type { BucketName, Charge } from '../store/store.ts'
import { TopSketch } from './top-sketch.ts'

/** A bucket that gets a large share of all checks. Its numbers are estimates. */
export type HotKey = {
  readonly ruleId: string
  /** Name of the limit within its rule, as in an outcome. */
  readonly name: string
  /** Fact of the owner: `user`, `ip`, …, or `` with the scope `global`. */
  readonly fact: string
  readonly owner: string
  readonly detail: string
  readonly checksPerSecond: number
  /** Share of all checks, whether or not they match its rule. */
  readonly share: number
}

/**
 * `share`: at least 1 % of checks, twice the sketch's error (1/200, with one limit per check), so no flood hides such a
 * key. `samples`: at least 16, about 2048 checks, for a standard error of 25 %.
 */
const HOT = { share: 0.01, samples: 16 } as const

const COUNTERS = 200
/**
 * Mean number of checks from one sample to the next; uniform from 1 to twice this, less 1. A sample costs about as much
 * as two checks in memory, because its data is not in the CPU caches.
 */
const GAP_MEAN = 128
/** Samples between two agings of the counts: reading the clock costs as much as counting a sample. */
const SAMPLES_PER_AGING = 16
/** Interval at which counts are halved: a rate covers about the last half minute. */
const HALF_LIFE_US = 10_000_000
/** After this many halvings every count is 0. */
const HALVINGS_MAX = 32

type Bucket = { readonly compiled: CompiledLimit; readonly owner: string; readonly detail: string }

export class HotKeys {
  readonly #clock: Clock
  readonly #random: () => number
  readonly #sketch = new TopSketch<Bucket>(COUNTERS)
  #untilSample: number
  #samples = 0
  /** Time of the last halving of the counts, and the time they covered then, which is halved with them. */
  #halvedUs: number
  #spanUs = 0

  constructor(clock: Clock, random: () => number) {
    this.#clock = clock
    this.#random = random
    this.#halvedUs = clock.nowUs()
    this.#untilSample = this.#gap()
  }

  /** Called for every decided check. */
  checked(chargeSet: ChargeSet): void {
    this.#untilSample -= 1
    if (this.#untilSample === 0) this.#sample(chargeSet)
  }

  /** Hottest first. */
  list(): HotKey[] {
    const seconds = this.#age() / 1e6
    return this.#sketch.counters
      .filter(({ countMin }) => this.#isHot(countMin))
      .sort((a, b) => b.countMin - a.countMin)
      .map(({ item: { compiled, owner, detail }, countMin }) => ({
        ruleId: compiled.rule.id,
        name: compiled.name,
        fact: compiled.limit.fact,
        owner,
        detail,
        // Less than a second of data gives no reliable rate.
        checksPerSecond: (countMin * GAP_MEAN) / Math.max(1, seconds),
        share: countMin / this.#samples,
      }))
  }

  #isHot(countMin: number): boolean {
    return countMin >= HOT.samples && countMin >= HOT.share * this.#samples
  }

  #sample({ charges, limits }: ChargeSet): void {
    this.#untilSample = this.#gap()
    this.#samples += 1
    for (let index = 0; index < limits.length; index += 1) {
      const charge = charges[index] as Charge // the index is in range, here and below
      const { limit, owner, detail } = charge
      if (limit.units === 0 || charge.kind === 'counterfactual') continue // a limit of 0 has no buckets
      this.#sketch.record(limit.id, nameOf(charge), { compiled: limits[index] as CompiledLimit, owner, detail })
    }
    if (this.#samples % SAMPLES_PER_AGING === 0) this.#age() // after counting: some samples may be old, which errs low
  }

  /** Random, so that a key with a periodic pattern is neither missed nor sampled every time. */
  #gap(): number {
    return 1 + Math.floor(this.#random() * (2 * GAP_MEAN - 1))
  }

  /** Halves old counts. Returns the time that counts cover. */
  #age(): number {
    const nowUs = this.#clock.nowUs()
    if (nowUs < this.#halvedUs) this.#halvedUs = nowUs // the clock was set back
    const halvings = Math.floor((nowUs - this.#halvedUs) / HALF_LIFE_US)
    for (let done = 0; done < Math.min(halvings, HALVINGS_MAX); done += 1) {
      this.#sketch.halve()
      this.#samples = Math.floor(this.#samples / 2)
      this.#spanUs = (this.#spanUs + HALF_LIFE_US) / 2
    }
    this.#halvedUs += halvings * HALF_LIFE_US
    return this.#spanUs + nowUs - this.#halvedUs
  }
}

/**
 * Name within its limit. The two forms do not collide: where details are sometimes absent, owners are addresses, which
 * contain no space.
 */
function nameOf({ owner, detail }: BucketName): string {
  return detail === '' ? owner : `${owner.length} ${owner}${detail}`
}
