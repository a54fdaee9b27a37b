// Parses lists and dictionaries of structured fields (RFC 9651) as far as rate limit headers need them: items with
// parameters. A field with any syntax error is undefined as a whole, as the RFC requires.

/** Strings and numbers. Values of other types are undefined. */
export type Value = string | number | undefined

export type Item = { readonly value: Value; readonly params: ReadonlyMap<string, Value> }

const FIELD_LENGTH_MAX = 4096

const NUMBER = /-?(?:\d{1,12}\.\d{1,3}|\d{1,15})(?![\d.])/y
const STRING = /"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"/y
const TOKEN = /[A-Za-z*][\w!#$%&'*+.^`|~:/-]*/y
/** Byte sequences, booleans, dates and display strings. */
const OTHER = /:[A-Za-z0-9+/=]*:|\?[01]|@-?\d{1,15}(?![\d.])|%"(?:[\x20\x21\x23\x24\x26-\x7e]|%[\da-f]{2})*"/y
const KEY = /[a-z*][a-z0-9_.*-]*/y
const BLANKS = /[ \t]*/y
const COMMA = /[ \t]*,[ \t]*/y
const SEMICOLON = /; */y
const EQUALS = /=/y

/** Syntax error. */
class Malformed extends Error {}

export function parseList(field: string): readonly Item[] | undefined {
  return parsed(field, (scanner) => scanner.members(() => scanner.item()))
}

export function parseDictionary(field: string): ReadonlyMap<string, Item> | undefined {
  return parsed(field, (scanner) => new Map(scanner.members(() => scanner.entry())))
}

function parsed<T>(field: string, read: (scanner: Scanner) => T): T | undefined {
  if (field.length > FIELD_LENGTH_MAX) return undefined
  try {
    return read(new Scanner(field.replace(/^ +| +$/g, '')))
  } catch (error) {
    if (error instanceof Malformed) return undefined
    throw error
  }
}

class Scanner {
  readonly #text: string
  #at = 0

  constructor(text: string) {
    this.#text = text
  }

  /** Members separated by commas, up to the end. A trailing comma is an error. */
  members<T>(member: () => T): T[] {
    const members: T[] = []
    if (this.#text === '') return members
    do members.push(member())
    while (this.#take(COMMA) !== undefined)
    this.#take(BLANKS)
    if (this.#at < this.#text.length) throw new Malformed()
    return members
  }

  item(): Item {
    return { value: this.#value(), params: this.#params() }
  }

  entry(): [string, Item] {
    const key = this.#key()
    return [key, this.#take(EQUALS) === undefined ? { value: undefined, params: this.#params() } : this.item()]
  }

  #params(): Map<string, Value> {
    const params = new Map<string, Value>()
    while (this.#take(SEMICOLON) !== undefined) {
      const key = this.#key()
      params.set(key, this.#take(EQUALS) === undefined ? undefined : this.#value())
    }
    return params
  }

  #key(): string {
    const key = this.#take(KEY)?.[0]
    if (key === undefined) throw new Malformed()
    return key
  }

  #value(): Value {
    const number = this.#take(NUMBER)
    if (number !== undefined) return Number(number[0])
    const text = this.#take(STRING)
    if (text !== undefined) return text[1]?.replace(/\\(.)/g, '$1')
    if (this.#take(TOKEN) === undefined && this.#take(OTHER) === undefined) throw new Malformed()
    return undefined
  }

  #take(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.#at
    const match = pattern.exec(this.#text)
    if (match === null) return undefined
    this.#at = pattern.lastIndex
    return match
  }
}
