// Finds the position of a JSON syntax error, which the message of Node.js does not always contain. Linear and not
// recursive, so that deep or long texts are harmless. Used only on texts that JSON.parse rejected.

type Expected = 'value' | 'first value' | 'key' | 'first key' | 'colon' | 'comma or end'

const NEWLINE = 10
const SPACE = /[ \t\n\r]*/y
const ESCAPE = /\\(?:["\\/bfnrt]|u[\da-fA-F]{4})/y
const SCALAR = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|true\b|false\b|null\b/y

/** Line and column of a position, both from 1. Counts in place: a text can have millions of line breaks. */
export function lineAndColumn(text: string, at: number): { readonly line: number; readonly column: number } {
  let line = 1
  let start = 0
  for (let index = 0; index < at; index += 1) {
    if (text.charCodeAt(index) !== NEWLINE) continue
    line += 1
    start = index + 1
  }
  return { line, column: at - start + 1 }
}

/** Index of the first invalid character, or the length of the text if it ends too early. */
export function jsonErrorPosition(text: string): number {
  const open: ('{' | '[')[] = []
  let expected: Expected = 'value'
  let at = 0
  for (;;) {
    at = end(SPACE, text, at) ?? at
    const character = text[at]
    if (character === undefined) return at
    if ((character === '}' || character === ']') && closes(character, open.at(-1), expected)) {
      open.pop()
      expected = 'comma or end'
      at += 1
      continue
    }
    const next = step(text, at, character, expected, open)
    if (next === undefined) return at
    at = next.at
    expected = next.expected
  }
}

function step(
  text: string,
  at: number,
  character: string,
  expected: Expected,
  open: ('{' | '[')[],
): { at: number; expected: Expected } | undefined {
  if (expected === 'colon') return character === ':' ? { at: at + 1, expected: 'value' } : undefined
  if (expected === 'comma or end') {
    const inside = open.at(-1)
    return character === ',' && inside ? { at: at + 1, expected: inside === '{' ? 'key' : 'value' } : undefined
  }
  if (expected === 'key' || expected === 'first key') return found(stringEnd(text, at), 'colon')
  if (character !== '{' && character !== '[') {
    return found(stringEnd(text, at) ?? end(SCALAR, text, at), 'comma or end')
  }
  open.push(character)
  return { at: at + 1, expected: character === '{' ? 'first key' : 'first value' }
}

function closes(character: '}' | ']', innermost: '{' | '[' | undefined, expected: Expected): boolean {
  if (innermost !== (character === '}' ? '{' : '[')) return false
  return expected === 'comma or end' || expected === (character === '}' ? 'first key' : 'first value')
}

function found(at: number | undefined, expected: Expected): { at: number; expected: Expected } | undefined {
  return at === undefined ? undefined : { at, expected }
}

/** Reads character by character, because a regular expression for whole strings could backtrack exponentially. */
function stringEnd(text: string, start: number): number | undefined {
  if (text[start] !== '"') return undefined
  let at = start + 1
  while (at < text.length) {
    const character = text[at] as string // within the text
    if (character === '"') return at + 1
    if (character < ' ') return undefined
    const next = character === '\\' ? end(ESCAPE, text, at) : at + 1
    if (next === undefined) return undefined
    at = next
  }
  return undefined
}

/** End of the match that starts at `at`. */
function end(pattern: RegExp, text: string, at: number): number | undefined {
  pattern.lastIndex = at
  return pattern.test(text) ? pattern.lastIndex : undefined
}
