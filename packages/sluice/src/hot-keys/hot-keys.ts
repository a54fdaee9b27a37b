// Which buckets get the most checks at present, at the price of counting down: one check of 128 is looked at, and what
// is remembered is bounded, whatever comes. Errs low: what is told of a bucket is what its samples prove.

import type { Clock } from '../clock.ts'
import type { CompiledLimit } from '../rules/compile.ts'
import type { Plan } from '../rules/plan.ts'
import type { BucketName, Charge } from '../store/store.ts'
import { TopSketch } from './top-sketch.ts'

/** A bucket that gets a good part of all checks. Its numbers are estimates. */
export type HotKey = {
  readonly ruleId: string
  /** Name of the limit within its rule, as in an outcome. */
  readonly name: string
  /** Which fact the owner is: `user`, `ip`, …, or `` for one bucket in all. */
  readonly fact: string
  readonly owner: string
  readonly detail: string
  readonly checksPerSecond: number
  /** Of all checks, whether or not they match its rule. */
  readonly share: number
}

/**
 * One in a hundred checks: twice what the sketch may be wrong by where a check meets one limit, so that no flood hides
 * such a key. And 16 samples, which stand for 2048 checks: the standard error of so many is a quarter.
 */
const HOT = { share: 0.01, samples: 16 } as const

const COUNTERS = 200
/**
 * Checks from one sample to the next: a whole number from 1 to twice this, less 1. A sample costs about as much as two
 * checks in memory, because nothing that it needs is in the caches of the processor.
 */
const GAP_MEAN = 128
/** Reading a clock costs as much as counting, so samples are aged only every so many of them. */
const SAMPLES_PER_LOOK = 16
/** Counts are halved every so often: a rate is one of the last half minute. */
const HALF_LIFE_US = 10_000_000
/** After so many nothing is left of any count. */
const HALVINGS_MAX = 32

type Bucket = { readonly compiled: CompiledLimit; readonly owner: string; readonly detail: string }

export class HotKeys {
  readonly #clock: Clock
  readonly #random: () => number
  readonly #sketch = new TopSketch<Bucket>(COUNTERS)
  #untilSample: number
  #samples = 0
  /** When counts were last halved, and the time they stood for then: it is halved with them. */
  #halvedUs: number
  #spanUs = 0

  constructor(clock: Clock, random: () => number) {
    this.#clock = clock
    this.#random = random
    this.#halvedUs = clock.nowUs()
    this.#untilSample = this.#gap()
  }

  /** For every check that was decided. */
  checked(plan: Plan): void {
    this.#untilSample -= 1
    if (this.#untilSample === 0) this.#sample(plan)
  }

  /** The hottest first. */
  list(): HotKey[] {
    const seconds = this.#age() / 1e6
    return this.#sketch.counters
      .filter(({ sure }) => this.#isHot(sure))
      .sort((a, b) => b.sure - a.sure)
      .map(({ what: { compiled, owner, detail }, sure }) => ({
        ruleId: compiled.rule.id,
        name: compiled.name,
        fact: compiled.limit.fact,
        owner,
        detail,
        // What began less than a second ago is not worth a rate of its own.
        checksPerSecond: (sure * GAP_MEAN) / Math.max(1, seconds),
        share: sure / this.#samples,
      }))
  }

  #isHot(sure: number): boolean {
    return sure >= HOT.samples && sure >= HOT.share * this.#samples
  }

  #sample({ charges, limits }: Plan): void {
    this.#untilSample = this.#gap()
    this.#samples += 1
    for (let index = 0; index < charges.length; index += 1) {
      const charge = charges[index] as Charge // the index is within, and so it is below
      const { limit, owner, detail } = charge
      if (limit.units === 0) continue // nobody passes it, and nobody has a bucket
      this.#sketch.see(limit.id, nameOf(charge), { compiled: limits[index] as CompiledLimit, owner, detail })
    }
    if (this.#samples % SAMPLES_PER_LOOK === 0) this.#age() // after they are counted: some may be old, which errs low
  }

  /** Never the same for long: a key that comes in a rhythm is neither missed nor met each time. */
  #gap(): number {
    return 1 + Math.floor(this.#random() * (2 * GAP_MEAN - 1))
  }

  /** Halves what has become old. Returns the time that counts stand for. */
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
 * Within its limit. Most limits have no details, and those that are without them at times are of addresses, which have
 * no space: so the two forms do not meet.
 */
function nameOf({ owner, detail }: BucketName): string {
  return detail === '' ? owner : `${owner.length} ${owner}${detail}`
}
