// Leaky bucket: a queue of `capacity` that drains at `units` per window. The maths of the token bucket, seen from the
// other side: what is owed is the queue, and an admitted request waits until what was there before it has drained.

import type { Algorithm, PackedState } from './algorithm.ts'
import { tokenBucket } from './token-bucket.ts'

export const leakyBucket: Algorithm<PackedState> = {
  ...tokenBucket,
  delayUs: (limit, state) => Math.ceil(state.x / limit.tickParts) * limit.tickUs,
}
