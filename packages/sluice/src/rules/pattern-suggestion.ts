// Suggests the nearest valid pattern for an invalid one: a regular expression, the notation of another router, or a
// path that is not canonical. Single pass. Errs wide: unsupported syntax becomes `*`, or `**` at the end.

import { canonicalPath, pathStart } from '../canonical/path.ts'

/** Syntax of regular expressions that is rare in paths. */
const REGEX = /[\^\\[|]|\.[*+]|[)\]}][*+?]|\(\?|\$$/
const QUANTIFIER = /[*+?]\??|\{\d*,?\d*\}\??/y
const CLASSES = 'dDwWsSbBpP'
const CLOSING: Readonly<Record<string, string>> = { '[': ']', '(': ')', '{': '}', '<': '>' }

type Segment = {
  text: string
  /** Name of a parameter. */
  name: string | undefined
  /** Matches more than one string. */
  isWild: boolean
  /** Matches more than one segment. */
  isRest: boolean
}

export function looksLikeRegex(pattern: string): boolean {
  return REGEX.test(pattern)
}

/** May be invalid: the caller checks, and falls back to a pattern for every path. */
export function suggestedPattern(pattern: string): string {
  const isRegex = looksLikeRegex(pattern)
  const path = pattern.slice(pathStart(pattern)).replace(/^(\(\?[a-z]+\))?(\^|\\A)?/, '')
  const segments = segmentsIn(isRegex ? path.replace(/\/?\??\$$/, '') : path, isRegex)
  return canonicalPath(`/${segments.map((one, index) => textOf(one, index === segments.length - 1)).join('/')}`)
}

function textOf({ text, name, isWild, isRest }: Segment, isLast: boolean): string {
  if (isRest && isLast) return '**'
  if (name !== undefined) return `:${name}`
  return isWild || isRest ? '*' : text
}

function segmentsIn(path: string, isRegex: boolean): Segment[] {
  const segments = [newSegment()]
  let at = 0
  while (at < path.length) {
    const segment = segments.at(-1) as Segment // there is always one
    const char = path.charAt(at)
    if (char === '/') {
      if (segment.text === '**') return withRest(segments) // nothing may follow `**`
      segments.push(newSegment())
      at += 1
    } else if (char === '?' && !isRegex) {
      break // a query
    } else {
      at = char in CLOSING ? readGroup(path, at, segments) : readChar(path, at, segment)
    }
  }
  return segments.at(-1)?.text === '**' ? withRest(segments) : segments.map(withWildcards)
}

/** Returns where the next character is. */
function readChar(path: string, at: number, segment: Segment): number {
  const [char, next] = [path.charAt(at), path.charAt(at + 1)]
  if (char === '\\') {
    if (next === '/') return at + 1
    if (next === '' || CLASSES.includes(next)) segment.isWild = true
    else segment.text += next
    return afterQuantifier(path, at + 2)
  }
  if (char === '.' && (next === '*' || next === '+')) {
    segment.isRest = true
    return at + 2
  }
  if (char === ';') return endOfSegment(path, at)
  if (char === '|' || char === '?') segment.isWild = true
  else if (char !== '^') segment.text += char
  return at + 1
}

/** A class, a group, or a parameter in brackets. */
function readGroup(path: string, at: number, segments: Segment[]): number {
  const end = closingOf(path, at)
  const content = path.slice(at + 1, end)
  const segment = segments.at(-1) as Segment
  segment.name ??= parameterIn(path.charAt(at), content)
  segment.isWild = true
  if (path[at] === '(' && content.includes('/') && !content.includes('['))
    segments.push({ ...newSegment(), isRest: true })
  else if (path[at] === '(' && /\.[*+]/.test(content)) segment.isRest = segment.name === undefined
  return afterQuantifier(path, end + 1)
}

/** `id` of `{id}`, `{id:[0-9]+}`, `<id>`, `<int:id>` and `(?<id>…)`. */
function parameterIn(bracket: string, content: string): string | undefined {
  if (bracket === '{') return /^[a-z_]\w*/i.exec(content)?.[0]
  if (bracket === '<') return /^(?:\w+:)?(\w+)$/.exec(content)?.[1]
  return /^\?P?<(\w+)>/.exec(content)?.[1]
}

/** Index of the bracket that closes the one at `at`, or the end of the text. */
function closingOf(path: string, at: number): number {
  const [open, close] = [path.charAt(at), CLOSING[path.charAt(at)] ?? '']
  let depth = 0
  for (let end = at; end < path.length; end += 1) {
    const char = path[end]
    if (char === '\\') end += 1
    else if (char === close) depth -= 1
    else if (char === open) depth += 1
    if (depth === 0) return end
  }
  return path.length
}

/** Turns `*.png`, `:` and `:id(…)` into wildcards for whole segments. */
function withWildcards(segment: Segment): Segment {
  const [, parameter] = /^:(\w*)/.exec(segment.text) ?? []
  if (parameter !== undefined) return { ...segment, name: parameter || 'id' }
  return segment.text.includes('*') ? { ...segment, isWild: true } : segment
}

function withRest(segments: readonly Segment[]): Segment[] {
  return [...segments.slice(0, -1).map(withWildcards), { ...newSegment(), isRest: true }]
}

function newSegment(): Segment {
  return { text: '', name: undefined, isWild: false, isRest: false }
}

function endOfSegment(path: string, at: number): number {
  const slash = path.indexOf('/', at)
  return slash < 0 ? path.length : slash
}

function afterQuantifier(path: string, at: number): number {
  QUANTIFIER.lastIndex = at
  return at + (QUANTIFIER.exec(path)?.[0].length ?? 0)
}
