// Long work in short slices, so that nobody has to wait for the whole of it. The work is a generator that yields
// wherever it may be interrupted; the same work can also be done at once.

import { systemTimers } from './clock.ts'

export type Sliced<T> = Generator<undefined, T, undefined>

/** Short against what a request over a network takes. */
const SLICE_MS = 0.5

export function atOnce<T>(work: Sliced<T>): T {
  for (;;) {
    const step = work.next()
    if (step.done) return step.value
  }
}

/** Between two slices everything that waits has its turn. */
export async function inSlices<T>(work: Sliced<T>): Promise<T> {
  for (;;) {
    const endMs = systemTimers.nowMs() + SLICE_MS
    do {
      const step = work.next()
      if (step.done) return step.value
    } while (systemTimers.nowMs() < endMs)
    await new Promise<void>((resolve) => systemTimers.soon(resolve))
  }
}

/** What `Array.from(items, make)` gives. */
export function* mapped<A, B>(items: readonly A[], make: (item: A, index: number) => B): Sliced<B[]> {
  const made: B[] = []
  for (const [index, item] of items.entries()) {
    made.push(make(item, index))
    yield
  }
  return made
}
