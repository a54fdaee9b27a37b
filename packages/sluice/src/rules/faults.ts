// Collects what is wrong with an input: ten mistakes are ten messages at once, each with field, value and fix.

import { type ErrorCode, type Fault, faultText, LimiterError, withheld } from '../errors.ts'

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
    if (this.list.length < FAULTS_MAX) this.list.push({ field: this.#placeOf(field), value, fix })
    return undefined
  }

  /** For values that are no part of a rule, such as the environment handed over by mistake: described, not shown. */
  withhold(field: string, value: unknown, fix: string): void {
    if (this.list.length < FAULTS_MAX) this.list.push(withheld(this.#placeOf(field), value, fix))
  }

  #placeOf(field: string): string {
    return [this.#path, this.#spellings?.get(field) ?? field].filter((part) => part !== '').join('.')
  }

  throwIfAny(code: ErrorCode): void {
    if (this.list.length === 0) return
    throw new LimiterError(code, this.list.map(faultText).join('\n'), { faults: this.list })
  }
}
