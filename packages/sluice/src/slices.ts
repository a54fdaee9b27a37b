// Runs long work in short slices, so that it does not block the event loop. The work is a generator that yields where
// it may be interrupted; it can also run synchronously.

import { systemTimers } from './clock.ts'

export type Sliced<T> = Generator<undefined, T, undefined>

/** Short compared to a network round trip. */
const SLICE_MS = 0.5

export function runSync<T>(work: Sliced<T>): T {
  for (;;) {
    const step = work.next()
    if (step.done) return step.value
  }
}

/** Returns to the event loop between slices. */
export async function inSlices<T>(work: Sliced<T>, sliceMs: number = SLICE_MS): Promise<T> {
  for (;;) {
    const endMs = systemTimers.nowMs() + sliceMs
    do {
      const step = work.next()
      if (step.done) return step.value
    } while (systemTimers.nowMs() < endMs)
    await new Promise<void>((resolve) => systemTimers.soon(resolve))
  }
}

/** `Array.from(items, make)` as sliced work, which may be interrupted after every `together` items. */
export function* mapped<A, B>(items: readonly A[], make: (item: A, index: number) => B, together = 1): Sliced<B[]> {
  const made: B[] = []
  for (const [index, item] of items.entries()) {
    made.push(make(item, index))
    if ((index + 1) % together === 0) yield
  }
  return made
}
