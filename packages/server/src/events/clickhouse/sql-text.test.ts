import { expect, it } from 'vitest'
import { jsonText, literal } from './sql-text.ts'

it.each([
  ["it's", String.raw`'it\'s'`],
  ['\\', String.raw`'\\'`],
  ["\\'; DROP TABLE x; --", String.raw`'\\\'; DROP TABLE x; --'`],
  ['\0\n\r\t\b\f', String.raw`'\0\n\r\t\b\f'`],
  ['😀 é "`', `'😀 é "\`'`],
  ['\ud83d', `'\ufffd'`],
  ['', `''`],
])('%j is a literal that ends where it should', (text, sql) => {
  expect(literal(text)).toBe(sql)
})

it('JSON has no lone surrogates, and keeps text that looks like their escapes', () => {
  expect(JSON.parse(jsonText({ a: '\ud83d', b: '\\ud83d', c: '😀', d: 1, e: null }))).toEqual({
    ...{ a: '\ufffd', b: '\\ud83d', c: '😀', d: 1, e: null },
  })
})
