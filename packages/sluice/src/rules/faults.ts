// Collects what is wrong with an input: ten mistakes are ten messages at once, each with field, value and fix.

import { type ErrorCode, type Fault, faultText, LimiterError } from '../errors.ts'

/** A file can hold any number of mistakes; nobody reads more than this. */
const FAULTS_MAX = 100

export class Faults {
  readonly list: Fault[] = []
  readonly #path: string
  readonly #spellings: ReadonlyMap<string, string> | undefined

  constructor(path = '', list: Fault[] = [], spellings?: ReadonlyMap<string, string>) {
    this.#path = path
    this.list = list
    this.#spellings = spellings
  }

  /** The same list, with a place in front of every field: `rules[2]`. */
  at(path: string): Faults {
    return new Faults(this.#path === '' ? path : `${this.#path}.${path}`, this.list)
  }

  /** The same list, with each field called what its author called it. */
  spelled(spellings: ReadonlyMap<string, string>): Faults {
    return new Faults(this.#path, this.list, spellings)
  }

  add(field: string, value: unknown, fix: string): undefined {
    if (this.list.length < FAULTS_MAX) {
      const parts = [this.#path, this.#spellings?.get(field) ?? field]
      this.list.push({ field: parts.filter((part) => part !== '').join('.'), value, fix })
    }
    return undefined
  }

  throwIfAny(code: ErrorCode): void {
    if (this.list.length === 0) return
    throw new LimiterError(code, this.list.map(faultText).join('\n'), { faults: this.list })
  }
}

/** The nearest of `names` to a mistyped one, if it is near: at most two edits away. */
export function nearest(name: string, names: readonly string[]): string | undefined {
  const scored = names.map((candidate) => ({ candidate, edits: editDistance(name, candidate) }))
  return scored.filter(({ edits }) => edits <= 2).sort((a, b) => a.edits - b.edits)[0]?.candidate
}

function editDistance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 2) return Number.POSITIVE_INFINITY
  let row = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i]
    for (let j = 1; j <= b.length; j += 1) {
      const substitution = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(substitution, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1))
    }
    row = next
  }
  return row[b.length] ?? 0
}
