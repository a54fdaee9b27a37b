// Leaky bucket: a queue of `capacity` that drains at `units` per window. Same maths as the token bucket: the
// debt is the queue, and an admitted request waits until the queue ahead of it has drained.

import type { Algorithm, PackedState } from './algorithm.ts'
import { tokenBucket } from './token-bucket.ts'

export const leakyBucket: Algorithm<PackedState> = {
  ...tokenBucket,
  delayUs: (limit, state) => Math.ceil(state.x / limit.subunitsPerTick) * limit.tickUs,
}
