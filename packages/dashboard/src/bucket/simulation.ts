// Buckets of one client on a virtual clock, decided by the library's own algorithms. Pure: time and chance are
// arguments, so that a simulation can be replayed.

import {
  ALGORITHMS,
  type Algorithm,
  type AlgorithmName,
  compileLimit,
  hasPermits,
  LISTED,
  type Limit,
  PACKED,
  type PackedState,
} from 'sluice/algorithms'

/** Multiple of every window that divides a day: windows start with the simulation. */
export const START_US = 86_400_000_000
const RECENT_MAX = 200
/** One sample of the level per tenth of a second. */
const SAMPLE_US = 100_000
const SAMPLES_MAX = 200

export type LimitSettings = { readonly limit: number; readonly windowSeconds: number; readonly burst?: number }

export type SimulatedRequest = {
  readonly number: number
  readonly atUs: number
  readonly allowed: boolean
  /** Free units after the request. */
  readonly free: number
  /** Refused: time until a unit is free. */
  readonly waitUs: number
  /** Admitted by a leaky bucket: time in the queue. */
  readonly delayUs: number
}

const IMPLEMENTATIONS = { ...PACKED, ...LISTED } satisfies Readonly<Record<AlgorithmName, unknown>>

/** One limit and the state of its bucket. */
class Bucket {
  readonly limit: Limit
  readonly #algorithm: Algorithm<unknown>
  readonly #state: unknown

  constructor(algorithm: AlgorithmName, { limit, windowSeconds, burst }: LimitSettings) {
    const windowUs = Math.round(windowSeconds * 1_000_000)
    const numbers = { id: 'simulated', algorithm, units: limit, windowUs }
    this.limit = compileLimit(burst === undefined ? numbers : { ...numbers, burst })
    this.#algorithm = IMPLEMENTATIONS[algorithm] as Algorithm<unknown>
    this.#state = this.#algorithm.fresh()
  }

  /** Free units; a fraction where the algorithm refills continuously. */
  free(nowUs: number): number {
    this.#algorithm.advance(this.limit, this.#state, nowUs)
    const { capacity, subunitsPerUnit, algorithm } = this.limit
    if (ALGORITHMS[algorithm].burst) return Math.max(0, capacity - (this.#state as PackedState).x / subunitsPerUnit)
    return Math.max(0, capacity - this.#algorithm.used(this.limit, this.#state, nowUs))
  }

  fits(nowUs: number): boolean {
    this.#algorithm.advance(this.limit, this.#state, nowUs)
    return this.#algorithm.used(this.limit, this.#state, nowUs) + 1 <= this.limit.capacity
  }

  charge(nowUs: number, opId: string): number {
    this.#algorithm.charge(this.limit, this.#state, nowUs, 1, opId)
    return this.#algorithm.delayUs(this.limit, this.#state)
  }

  release(nowUs: number, opId: string): void {
    this.#algorithm.refund(this.limit, this.#state, nowUs, 1, nowUs, opId)
  }

  waitUs(nowUs: number): number {
    return this.limit.capacity < 1 ? 0 : this.#algorithm.waitUs(this.limit, this.#state, nowUs, 1)
  }
}

/** One algorithm with its counts. A request needs a unit of every limit; a refused one consumes nothing. */
export class Simulation {
  readonly algorithm: AlgorithmName
  allowed = 0
  denied = 0
  /** Oldest first. */
  readonly recent: SimulatedRequest[] = []
  /** Share of free units of the tightest limit, oldest first. */
  readonly levels: number[] = []
  readonly #buckets: readonly Bucket[]
  readonly #holdUs: number
  readonly #held: { readonly untilUs: number; readonly opId: string }[] = []
  #sampledUs = START_US

  /** `holdSeconds`: how long a request runs, for concurrency limits. */
  constructor(algorithm: AlgorithmName, limits: readonly LimitSettings[], holdSeconds = 1) {
    this.algorithm = algorithm
    this.#buckets = limits.map((limit) => new Bucket(algorithm, limit))
    this.#holdUs = holdSeconds * 1_000_000
  }

  /** Free units and capacity of each limit. */
  levelsAt(nowUs: number): readonly { readonly free: number; readonly capacity: number }[] {
    return this.#buckets.map((bucket) => ({ free: bucket.free(nowUs), capacity: bucket.limit.capacity }))
  }

  request(nowUs: number): void {
    this.advance(nowUs)
    const number = this.allowed + this.denied + 1
    const allowed = this.#buckets.every((bucket) => bucket.fits(nowUs))
    const opId = String(number)
    let [delayUs, waitUs] = [0, 0]
    for (const bucket of this.#buckets) {
      if (allowed) delayUs = Math.max(delayUs, bucket.charge(nowUs, opId))
      else waitUs = Math.max(waitUs, bucket.waitUs(nowUs))
    }
    if (allowed) this.allowed += 1
    else this.denied += 1
    if (allowed && hasPermits(this)) this.#held.push({ untilUs: nowUs + this.#holdUs, opId })
    const free = Math.min(...this.#buckets.map((bucket) => bucket.free(nowUs)))
    this.recent.push({ number, atUs: nowUs, allowed, free, waitUs, delayUs })
    if (this.recent.length > RECENT_MAX) this.recent.shift()
  }

  /** Ends requests that have run long enough, and samples the level. */
  advance(nowUs: number): void {
    while (this.#held[0] !== undefined && this.#held[0].untilUs <= nowUs) {
      const { untilUs, opId } = this.#held.shift() ?? this.#held[0]
      for (const bucket of this.#buckets) bucket.release(untilUs, opId)
    }
    while (this.#sampledUs + SAMPLE_US <= nowUs) {
      this.#sampledUs += SAMPLE_US
      const shares = this.levelsAt(this.#sampledUs).map(({ free, capacity }) => (capacity === 0 ? 0 : free / capacity))
      this.levels.push(Math.min(...shares))
      if (this.levels.length > SAMPLES_MAX) this.levels.shift()
    }
  }
}
