// Detects deeply nested YAML before it is parsed. The parser recurses once per level, and V8 aborts the process if the
// stack overflows while it compiles a regular expression.

import { Lexer } from 'yaml'

/** Far more than any rule needs. */
export const NESTING_MAX = 100

const OPENING = new Set(['[', '{'])
const CLOSING = new Set([']', '}'])
/** Indentation and indicators before the content of a line; each `- ` begins another level. */
const MARGIN = /^[ ]*(?:[-?:][ \t]+)*/

export function isNestedTooDeep(text: string): boolean {
  return blocksAreTooDeep(text) || bracketsAreTooDeep(text)
}

function bracketsAreTooDeep(text: string): boolean {
  let depth = 0
  for (const token of new Lexer().lex(text)) {
    if (OPENING.has(token)) depth += 1
    else if (CLOSING.has(token)) depth -= 1
    if (depth > NESTING_MAX) return true
  }
  return false
}

/** Content further to the right than its parent is one level deeper. */
function blocksAreTooDeep(text: string): boolean {
  const columns: number[] = []
  for (let start = 0; start < text.length; ) {
    const end = text.indexOf('\n', start)
    const line = text.slice(start, end < 0 ? text.length : end)
    start += line.length + 1
    const margin = MARGIN.exec(line)?.[0] ?? ''
    if (margin.length >= line.trimEnd().length) continue
    for (let column = 0; column <= margin.length; column += 1) {
      const isLevel = column === margin.length || /[-?:]/.test(margin[column] ?? '')
      if (!isLevel) continue
      while (columns.length > 0 && (columns.at(-1) ?? 0) >= column) columns.pop()
      columns.push(column)
    }
    if (columns.length > NESTING_MAX) return true
  }
  return false
}
