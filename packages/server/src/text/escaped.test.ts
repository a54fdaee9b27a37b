import { expect, test } from 'vitest'
import { escaped, escapedJson, safeOutput } from './escaped.ts'

const HOSTILE = [
  ['an escape sequence', '\u001b[2J', '\\u001b[2J'],
  ['an 8-bit escape sequence', '\u009b31m', '\\u009b31m'],
  ['a line feed', 'a\nb\r\tc', 'a\\nb\\r\\tc'],
  ['a delete', '\u007f', '\\u007f'],
  ['a line separator', '\u2028', '\\u2028'],
  ['a reversed direction', '\u202egpj.exe', '\\u202egpj.exe'],
  ['an invisible character', 'al\u200bice', 'al\\u200bice'],
  ['a tag outside the basic plane', '\u{e0041}', '\\udb40\\udc41'],
  ['half a surrogate pair', '\ud800', '\\ud800'],
  ['quotes and emoji, which are harmless', `"'\u{1f6b0}é`, `"'\u{1f6b0}é`],
] as const

test.each(HOSTILE)('%s is safe for a terminal', (_name, text, shown) => {
  expect(escaped(text)).toBe(shown)
})

test.each(HOSTILE)('%s survives JSON unchanged, and is safe there', (_name, text) => {
  const json = escapedJson({ [text]: [text] })
  expect(JSON.parse(json)).toEqual({ [text]: [text] })
  expect(json.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u)
})

test.each(HOSTILE.slice(0, 9))('%s in the output of a command does not reach the terminal', (_name, text, shown) => {
  const escapedTwice = text === 'a\nb\r\tc' ? 'a\nb\\r\tc' : shown // line feeds and tabs are output
  for (const hasColors of [false, true]) expect(safeOutput(text, hasColors)).toBe(escapedTwice)
})

test('colours of this program are kept on a terminal, and nothing else that begins as they do', () => {
  const red = '\u001b[31mrefused\u001b[0m\n'
  expect(safeOutput(red, true)).toBe(red)
  expect(safeOutput(red, false)).toBe('\\u001b[31mrefused\\u001b[0m\n')
  for (const other of ['\u001b[2J', '\u001b[31;1m', '\u001b]0;x\u0007', '\u001b[310m']) {
    expect(safeOutput(other, true)).toContain('\\u001b')
  }
})
