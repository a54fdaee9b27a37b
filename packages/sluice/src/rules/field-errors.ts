// Collects all errors of an input, so that ten mistakes give ten messages, each with field, value and fix.

import { type ErrorCode, type FieldError, fieldErrorText, LimiterError, withheld } from '../errors.ts'

/** Cap on reported errors: a file can have any number of mistakes. */
const ERRORS_MAX = 100

export class FieldErrors {
  readonly list: FieldError[] = []
  readonly #path: string
  readonly #spellings: ReadonlyMap<string, string> | undefined

  constructor(path = '', list: FieldError[] = [], spellings?: ReadonlyMap<string, string>) {
    this.#path = path
    this.list = list
    this.#spellings = spellings
  }

  /** The same list, with a prefix for every field: `rules[2]`. */
  at(path: string): FieldErrors {
    return new FieldErrors(this.#path === '' ? path : `${this.#path}.${path}`, this.list)
  }

  /** The same list, with each field named as in the input. */
  spelled(spellings: ReadonlyMap<string, string>): FieldErrors {
    return new FieldErrors(this.#path, this.list, spellings)
  }

  /** Further errors are not reported: their fixes need not be computed. */
  get isFull(): boolean {
    return this.list.length >= ERRORS_MAX
  }

  add(field: string, value: unknown, fix: string): undefined {
    if (!this.isFull) this.list.push({ field: this.#pathOf(field), value, fix })
    return undefined
  }

  /** Describes the value instead of printing it: it may be a secret, such as the environment passed by mistake. */
  withhold(field: string, value: unknown, fix: string): void {
    if (!this.isFull) this.list.push(withheld(this.#pathOf(field), value, fix))
  }

  #pathOf(field: string): string {
    return [this.#path, this.#spellings?.get(field) ?? field].filter((part) => part !== '').join('.')
  }

  throwIfAny(code: ErrorCode): void {
    if (this.list.length === 0) return
    throw new LimiterError(code, this.list.map(fieldErrorText).join('\n'), { fieldErrors: this.list })
  }
}
