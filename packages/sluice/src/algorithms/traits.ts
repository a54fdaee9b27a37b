// Algorithm traits: everything about an algorithm that selects behaviour elsewhere. A new algorithm starts with a row
// here; the compiler then reports every table that lacks it.

export type AlgorithmTraits = {
  /** Number of the algorithm in requests to Redis, stored values and Lua, where 1 to 4 are packed. */
  readonly code: number
  /**
   * packed: three numbers (PackedState). log: a list of bookings. permits: a map of op ids. Names the kind of a Redis
   * key, so existing values must not be renamed.
   */
  readonly storage: 'packed' | 'log' | 'permits'
  /** Refills continuously, up to `burst`; state counts subunits. */
  readonly burst: boolean
  /** Aligned windows whose counts a bucket keeps; 0: none. */
  readonly windows: 0 | 1 | 2
  /**
   * Keeps leased units within the limit (lease-terms.ts). held: the store counts units on lease. window: a lease
   * ends with its window. lookback: the store looks back further. none: cannot be leased.
   */
  readonly lease: 'held' | 'window' | 'lookback' | 'none'
  /** Admitted requests may have to wait. */
  readonly delays: boolean
}

export const ALGORITHMS = {
  token_bucket: { code: 1, storage: 'packed', burst: true, windows: 0, lease: 'held', delays: false },
  leaky_bucket: { code: 2, storage: 'packed', burst: true, windows: 0, lease: 'none', delays: true },
  fixed_window: { code: 3, storage: 'packed', burst: false, windows: 1, lease: 'window', delays: false },
  sliding_window: { code: 4, storage: 'packed', burst: false, windows: 2, lease: 'window', delays: false },
  sliding_window_log: { code: 5, storage: 'log', burst: false, windows: 0, lease: 'lookback', delays: false },
  concurrency: { code: 6, storage: 'permits', burst: false, windows: 0, lease: 'none', delays: false },
} as const

// Rejects an incomplete row. A statement of its own: PackedName needs the literal types of the constant.
ALGORITHMS satisfies Readonly<Record<string, AlgorithmTraits>>

export type AlgorithmName = keyof typeof ALGORITHMS

export const ALGORITHM_NAMES: readonly AlgorithmName[] = Object.keys(ALGORITHMS) as AlgorithmName[]

/** Algorithms whose traits include `Some`. */
type NamesWith<Some extends Partial<AlgorithmTraits>> = {
  [Name in AlgorithmName]: (typeof ALGORITHMS)[Name] extends Some ? Name : never
}[AlgorithmName]

export type PackedName = NamesWith<{ storage: 'packed' }>
export type ListedName = Exclude<AlgorithmName, PackedName>

/** Whether the units are permits, which their holder renews and releases. */
export function hasPermits({ algorithm }: { readonly algorithm: AlgorithmName }): boolean {
  return ALGORITHMS[algorithm].storage === 'permits'
}
