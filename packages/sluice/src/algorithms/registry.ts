// Implementations by name: packed algorithms, whose state is three numbers, and listed ones.

import type { Algorithm, ListAlgorithm, PackedState } from './algorithm.ts'
import { concurrency } from './concurrency.ts'
import { fixedWindow } from './fixed-window.ts'
import { leakyBucket } from './leaky-bucket.ts'
import type { Limit } from './limit.ts'
import { slidingWindow } from './sliding-window.ts'
import { slidingWindowLog } from './sliding-window-log.ts'
import { tokenBucket } from './token-bucket.ts'
import { ALGORITHMS, type ListedName, type PackedName } from './traits.ts'

export type PackedLimit = Limit & { readonly algorithm: PackedName }
export type ListedLimit = Limit & { readonly algorithm: ListedName }

export const PACKED: Readonly<Record<PackedName, Algorithm<PackedState>>> = {
  token_bucket: tokenBucket,
  leaky_bucket: leakyBucket,
  fixed_window: fixedWindow,
  sliding_window: slidingWindow,
}

export const LISTED: Readonly<Record<ListedName, ListAlgorithm<unknown>>> = {
  sliding_window_log: slidingWindowLog,
  concurrency,
}

export function isPacked(limit: Limit): limit is PackedLimit {
  return ALGORITHMS[limit.algorithm].storage === 'packed'
}
