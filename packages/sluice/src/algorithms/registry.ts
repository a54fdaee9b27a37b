// The algorithms whose state is three numbers, by name. The log and the permits keep a list instead.

import type { Algorithm, PackedState } from './algorithm.ts'
import { fixedWindow } from './fixed-window.ts'
import { leakyBucket } from './leaky-bucket.ts'
import type { AlgorithmName, Limit } from './limit.ts'
import { slidingWindow } from './sliding-window.ts'
import { tokenBucket } from './token-bucket.ts'

export type PackedName = 'token_bucket' | 'leaky_bucket' | 'fixed_window' | 'sliding_window'
export type PackedLimit = Limit & { readonly algorithm: PackedName }

export const PACKED: Readonly<Record<PackedName, Algorithm<PackedState>>> = {
  token_bucket: tokenBucket,
  leaky_bucket: leakyBucket,
  fixed_window: fixedWindow,
  sliding_window: slidingWindow,
}

export function isPacked(limit: Limit): limit is PackedLimit {
  return limit.algorithm !== 'sliding_window_log' && limit.algorithm !== 'concurrency'
}

export function isBucket(name: AlgorithmName): boolean {
  return name === 'token_bucket' || name === 'leaky_bucket'
}
