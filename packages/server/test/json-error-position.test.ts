import fc from 'fast-check'
import { expect, test } from 'vitest'
import { jsonErrorPosition } from '../src/text/json-error-position.ts'

test.each([
  ['', 0],
  ['  ', 2],
  ['{', 1],
  ['{"a":1', 6],
  ['{"a":1]', 6],
  ['{"a" 1}', 5],
  ['{"a":1,}', 7],
  ['[1,]', 3],
  ['[1 2]', 3],
  ['{a:1}', 1],
  ["{'a':1}", 1],
  ['01', 0],
  ['1.e5', 0],
  ['NaN', 0],
  ['"a\nb"', 0],
  ['"\\x"', 0],
  ['{} {}', 3],
  ['}', 0],
  ['tru', 0],
])('%j stops being JSON at %i', (text, at) => expect(jsonErrorPosition(text)).toBe(at))

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

test('damaged JSON: the position is at the damage, after it, or at the start of the token that contains it', () => {
  const damaged = fc.tuple(
    fc.json({ maxDepth: 4 }),
    fc.nat(),
    fc.constantFrom('', ',', '}', ']', '"', 'x', '\n', ':', '-'),
  )
  fc.assert(
    fc.property(damaged, ([json, place, piece]) => {
      const cut = place % (json.length + 1)
      const text = json.slice(0, cut) + piece + json.slice(cut + 1)
      fc.pre(!isJson(text))
      const at = jsonErrorPosition(text)
      expect(at).toBeLessThanOrEqual(text.length)
      // Everything before the damage is the beginning of valid JSON, but for a string or number that it lies within.
      const token = text.slice(at, cut + 1)
      expect(at >= cut || /^["\d\-tfn]/.test(token)).toBe(true)
    }),
    { numRuns: 2000 },
  )
})

test('a million brackets take no stack and little time', () => {
  expect(jsonErrorPosition('['.repeat(1_000_000))).toBe(1_000_000)
  expect(jsonErrorPosition(`"${'\\n'.repeat(500_000)}`)).toBe(0)
})
