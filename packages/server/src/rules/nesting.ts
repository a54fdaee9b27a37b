// How deep YAML is nested, told without recursion: the parser calls itself once per level, and an engine that runs out
// of stack while it compiles a regular expression ends the whole process.

import { Lexer } from 'yaml'

/** Far more than any rule has. */
export const NESTING_MAX = 100

const OPENING = new Set(['[', '{'])
const CLOSING = new Set([']', '}'])
/** Spaces and signs before what stands on a line: each `- ` begins one more level. */
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

/** Whatever stands further to the right than what is around it is one level deeper. */
function blocksAreTooDeep(text: string): boolean {
  const columns: number[] = []
  for (let start = 0; start < text.length; ) {
    const end = text.indexOf('\n', start)
    const line = text.slice(start, end < 0 ? text.length : end)
    start += line.length + 1
    const margin = MARGIN.exec(line)?.[0] ?? ''
    if (margin.length >= line.trimEnd().length) continue
    for (let column = 0; column <= margin.length; column += 1) {
      const isPlace = column === margin.length || /[-?:]/.test(margin[column] ?? '')
      if (!isPlace) continue
      while (columns.length > 0 && (columns.at(-1) ?? 0) >= column) columns.pop()
      columns.push(column)
    }
    if (columns.length > NESTING_MAX) return true
  }
  return false
}
