// Parses JSON in short steps, because one call of JSON.parse on megabytes blocks the event loop for up to a second.
// Equal to JSON.parse, except that the length of each item of a list, and of everything outside of lists, is bounded.

import { mapped, type Sliced } from 'sluice'
import { jsonErrorPosition } from './json-error-position.ts'

/** Texts up to this length are parsed in one call. */
export const SHORT_JSON_MAX: number = 64 * 1024
/** Cap on one item of a list: a rule with ten thousand values in a condition is about this long. */
export const JSON_ITEM_MAX: number = 512 * 1024
/** Cap on the items of one list. */
const ITEMS_MAX = 100_000
const NESTING_MAX = 100
/** Items that are parsed in one call have about this length. */
const STEP_LENGTH = 16 * 1024

const SPACE = /[ \t\n\r]*/y
/** Up to the next character that matters for the structure. */
const INSIDE = /[^"[\]{},]*/y
const PLAIN = /[^"\\]*/y

/** A syntax error, and its position. */
export class JsonMalformed extends Error {
  readonly at: number

  constructor(at: number) {
    super('malformed JSON')
    this.at = at
  }
}

/** A part that is too long or too deep; `field` is its path, such as `rules[3]`. */
export class JsonTooComplex extends Error {
  readonly field: string
  readonly value: string

  constructor(field: string, value: string, fix: string) {
    super(fix)
    this.field = field
    this.value = value
  }
}

/** Throws JsonMalformed or JsonTooComplex. */
export function* parsingJson(text: string): Sliced<unknown> {
  if (text.length <= SHORT_JSON_MAX) return parsePart(text, 0, text.length)
  const start = skip(SPACE, text, 0)
  const value = text[start] === '[' ? yield* parsingList(text, start, '') : yield* parsingFields(text, start)
  const end = skip(SPACE, text, value.end)
  if (end < text.length) throw new JsonMalformed(end)
  return value.value
}

type Parsed<T> = { readonly value: T; readonly end: number }

/** An object at `start`. Its lists are parsed item by item, all else together. */
function* parsingFields(text: string, start: number): Sliced<Parsed<unknown>> {
  if (text[start] !== '{') {
    if (text.length - start > JSON_ITEM_MAX) throw tooLong('body', text.length - start, '')
    return { value: parsePart(text, start, text.length), end: text.length }
  }
  const fields = new Map<string, unknown>()
  let length = 0
  let at = skip(SPACE, text, start + 1)
  if (text[at] === '}') return { value: {}, end: at + 1 }
  for (;;) {
    const nameEnd = text[at] === '"' ? stringEnd(text, at, 'body') : undefined
    if (nameEnd === undefined) throw new JsonMalformed(at)
    const name = parsePart(text, at, nameEnd) as string
    const colon = skip(SPACE, text, nameEnd)
    if (text[colon] !== ':') throw new JsonMalformed(colon)
    length += colon - at
    at = skip(SPACE, text, colon + 1)
    if (text[at] === '[') {
      const list = yield* parsingList(text, at, name)
      fields.set(name, list.value)
      at = list.end
    } else {
      const end = partEnd(text, at, name)
      fields.set(name, parsePart(text, at, end))
      length += end - at
      at = end
    }
    if (length > JSON_ITEM_MAX) throw tooLong('body', length, 'outside of lists')
    yield
    at = skip(SPACE, text, at)
    if (text[at] === '}') return { value: Object.fromEntries(fields), end: at + 1 }
    if (text[at] !== ',') throw new JsonMalformed(at)
    at = skip(SPACE, text, at + 1)
  }
}

function* parsingList(text: string, start: number, name: string): Sliced<Parsed<unknown[]>> {
  const steps: { readonly from: number; readonly to: number }[] = []
  let at = skip(SPACE, text, start + 1)
  if (text[at] === ']') return { value: [], end: at + 1 }
  let from = at
  for (let count = 0; ; count += 1) {
    const field = `${name}[${count}]`
    if (count === ITEMS_MAX)
      throw new JsonTooComplex(name || 'body', `${count + 1} items`, `give at most ${ITEMS_MAX} items`)
    const itemStart = skip(SPACE, text, at)
    at = partEnd(text, itemStart, field)
    if (at === itemStart) throw new JsonMalformed(at) // a comma too many: the items of a step are parsed together
    const isLast = text[at] === ']'
    if (text[at] !== ',' && !isLast) throw new JsonMalformed(at)
    if (isLast || at - from > STEP_LENGTH) {
      steps.push({ from, to: at })
      from = at + 1
      yield
    }
    at += 1
    if (isLast) break
  }
  const parts = yield* mapped(steps, ({ from, to }) => parseItems(text, from, to))
  return { value: parts.flat(), end: at }
}

function parseItems(text: string, from: number, to: number): unknown[] {
  try {
    return JSON.parse(`[${text.slice(from, to)}]`) as unknown[]
  } catch {
    throw new JsonMalformed(from - 1 + jsonErrorPosition(`[${text.slice(from, to)}]`))
  }
}

function parsePart(text: string, from: number, to: number): unknown {
  const part = from === 0 && to === text.length ? text : text.slice(from, to)
  try {
    return JSON.parse(part)
  } catch {
    throw new JsonMalformed(from + jsonErrorPosition(part))
  }
}

/** Position of the comma or bracket after a value. Not a validation: the value is parsed later. */
function partEnd(text: string, start: number, field: string): number {
  let depth = 0
  let at = start
  for (;;) {
    at = skip(INSIDE, text, at)
    const character = text[at]
    if (character === undefined) throw new JsonMalformed(text.length)
    if (at - start > JSON_ITEM_MAX) throw tooLong(field, at - start, '')
    if (character === '"') {
      at = stringEnd(text, at, field)
      continue
    }
    if (character === '[' || character === '{') depth += 1
    else if (depth === 0) return at
    else if (character !== ',') depth -= 1
    if (depth > NESTING_MAX)
      throw new JsonTooComplex(field, `${depth} levels`, `nest at most ${NESTING_MAX} levels deep`)
    at += 1
  }
}

/** End of the string that starts at `start`. */
function stringEnd(text: string, start: number, field: string): number {
  for (let at = skip(PLAIN, text, start + 1); ; at = skip(PLAIN, text, at + 2)) {
    if (text[at] === '"') return at + 1
    if (at - start > JSON_ITEM_MAX) throw tooLong(field, at - start, '')
    if (at >= text.length) throw new JsonMalformed(text.length)
  }
}

function tooLong(field: string, length: number, where: string): JsonTooComplex {
  const fix = ['give at most', JSON_ITEM_MAX, 'characters', where].join(' ').trim()
  return new JsonTooComplex(field, `${length} characters or more`, fix)
}

/** End of the match at `at`; `at` if there is none. */
function skip(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at
  return pattern.test(text) ? pattern.lastIndex : at
}
