// Long JSON parses as JSON.parse does, in short steps; what has no legitimate size is named.

import { inSlices } from 'sluice'
import { expect, test } from 'vitest'
import { JSON_ITEM_MAX, JsonMalformed, JsonTooComplex, parsingJson, SHORT_JSON_MAX } from './long-json.ts'

const RULES = Array.from({ length: 3000 }, (_, index) => ({
  rule_id: `r${index}`,
  description: 'a "quoted" \\ text, with [brackets], {braces} and 😀',
  limits: [{ limit: index }, { limit: 1.5e3 }],
}))
const LONG = 'x'.repeat(SHORT_JSON_MAX)

test.each<[string, unknown]>([
  ['a list', RULES],
  ['a list under a name', { version: 3, rules: RULES, 'x-more': [1, [2, { a: null }]] }],
  ['two lists', { rules: RULES, against: RULES }],
  ['an empty list beside a long text', { rules: [], text: LONG }],
  [
    'a rule with ten thousand values',
    [{ when: { country: Array.from({ length: 10_000 }, (_, at) => `value ${at}`) } }],
  ],
  ['names of Object.prototype', JSON.parse(`{"__proto__":["${LONG}"],"constructor":{"a":1}}`)],
  ['a text', LONG],
  ['a long number in a list', [Number('9'.repeat(100)), LONG]],
])('%s', async (_, value) => {
  for (const text of [JSON.stringify(value), JSON.stringify(value, null, 2)]) {
    expect(text.length).toBeGreaterThan(SHORT_JSON_MAX)
    const parsed = await inSlices(parsingJson(text))
    expect(parsed).toEqual(value)
    expect(Object.keys(parsed as object)).toEqual(Object.keys(value as object))
  }
})

test('of a repeated name, the last value counts', async () => {
  const text = `{"a":[1],"b":"${LONG}","a":2,"b":[3]}`
  expect(await inSlices(parsingJson(text))).toEqual(JSON.parse(text))
})

test.each<[string, (good: string) => string, (good: string) => number]>([
  ['an unfinished list', (good) => `[${good}`, (good) => good.length + 1],
  ['an unfinished text', (good) => `[${good},"a`, (good) => good.length + 4],
  ['a comma too many', (good) => `[${good},]`, (good) => good.length + 2],
  ['a missing comma', (good) => `[${good} 1]`, (good) => good.length + 2],
  ['the wrong bracket', (good) => `[${good}}`, (good) => good.length + 1],
  ['text after the end', (good) => `[${good}] x`, (good) => good.length + 3],
  ['a missing colon', (good) => `{"a":[${good}],"b" 1}`, (good) => good.length + 12],
  ['a name without quotes', (good) => `{"a":[${good}],b:1}`, (good) => good.length + 8],
  ['an invalid item', (good) => `[${good},nul,${good}]`, (good) => good.length + 2],
])('%s is malformed, at its position', async (_, textOf, at) => {
  const good = `"${LONG}"`
  const text = textOf(good)
  expect(() => JSON.parse(text)).toThrow()
  const error = await inSlices(parsingJson(text)).catch((thrown: unknown) => thrown)
  expect(error).toBeInstanceOf(JsonMalformed)
  expect((error as JsonMalformed).at).toBe(at(good))
})

const HUGE = 'x'.repeat(JSON_ITEM_MAX)

test.each<[string, string, string]>([
  ['a long item', `{"rules":[1,"${HUGE}"]}`, 'rules[1]'],
  ['a long item of the text itself', `[{"a":"${HUGE}"}]`, '[0]'],
  ['a long value outside of lists', `{"name":"${HUGE}"}`, 'name'],
  ['many values outside of lists', `{${Array.from({ length: 9 }, (_, at) => `"${at}":"${LONG}"`).join()}}`, 'body'],
  ['a text alone', `"${HUGE}"`, 'body'],
  ['a deep item', `["${LONG}",${'['.repeat(200)}${']'.repeat(200)}]`, '[1]'],
  ['a list of too many items', `{"rules":[${'0,'.repeat(100_000)}0]}`, 'rules'],
])('%s is refused, and named', async (_, text, field) => {
  const error = await inSlices(parsingJson(text)).catch((thrown: unknown) => thrown)
  expect(error).toBeInstanceOf(JsonTooComplex)
  expect((error as JsonTooComplex).field).toBe(field)
})
