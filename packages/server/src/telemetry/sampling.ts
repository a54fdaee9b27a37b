// Decides which requests are traced. A caller's `traceparent` decides for its own request; others are sampled at
// random. While the queue of spans is full none is traced, so that callers who want every request traced cannot slow
// the node down. Decides before a span is created: an unsampled request costs less than a microsecond.

import { randomFillSync } from 'node:crypto'
import type { SpanQueue } from './span-queue.ts'
import type { TraceParent } from './trace-context.ts'

export type Sample = (parent: TraceParent | undefined) => boolean

const POOL_SIZE = 1024
const RANGE = 2 ** 32

export function createSample(share: number, queue: Pick<SpanQueue, 'isFull' | 'drop'>): Sample {
  const pool = new Uint32Array(POOL_SIZE) // filled at once, because each call into the random source takes long
  let next = POOL_SIZE
  const random = () => {
    if (next === POOL_SIZE) {
      randomFillSync(pool)
      next = 0
    }
    next += 1
    return (pool[next - 1] ?? 0) / RANGE
  }
  return (parent) => {
    const isWanted = parent === undefined ? random() < share : parent.isSampled
    if (!isWanted || !queue.isFull) return isWanted
    queue.drop()
    return false
  }
}
