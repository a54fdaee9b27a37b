// Bounded set of names of one dimension. Beyond the cap, new names are counted as `other`; names that were not seen for
// ten minutes make room, so that a flood of made-up names hides others for at most that long.

import { OTHER } from './event.ts'

const FORGET_MS = 600_000

export class Names {
  readonly #max: number
  readonly #ids = new Map<string, { readonly id: number; seenMs: number }>()
  readonly #free: number[] = []
  readonly #names: string[] = [OTHER]
  #sweptMs = 0

  /** Ids are from 0 (`other`) to `max`. */
  constructor(max: number) {
    this.#max = max
  }

  idOf(name: string, nowMs: number): number {
    const known = this.#ids.get(name)
    if (known !== undefined) {
      known.seenMs = nowMs
      return known.id
    }
    if (this.#ids.size >= this.#max) this.#sweep(nowMs)
    if (this.#ids.size >= this.#max || name === OTHER) return 0
    const id = this.#free.pop() ?? this.#names.length
    this.#names[id] = name
    this.#ids.set(name, { id, seenMs: nowMs })
    return id
  }

  name(id: number): string {
    return this.#names[id] ?? OTHER
  }

  /** At most once a second: a flood of names must not cost a scan each. */
  #sweep(nowMs: number): void {
    if (nowMs - this.#sweptMs < 1000 && nowMs >= this.#sweptMs) return
    this.#sweptMs = nowMs
    for (const [name, { id, seenMs }] of this.#ids) {
      if (nowMs - seenMs < FORGET_MS) continue
      this.#ids.delete(name)
      this.#free.push(id)
    }
  }
}
