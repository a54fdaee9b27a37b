// Joining the chunks of a value returns an equal value.

import { inSlices } from 'sluice'
import { expect, test } from 'vitest'
import { fromChunks, toChunks } from './json-chunks.ts'

const RULES = Array.from({ length: 1234 }, (_, index) => ({ rule_id: `r${index}`, limits: [{ limit: index }] }))

test.each<[string, unknown]>([
  ['a list', RULES],
  ['an empty list', []],
  ['a list under "rules"', { version: 3, rules: RULES, 'x-more': [1] }],
  ['an empty list under "rules"', { rules: [] }],
  ['rules that are no list', { rules: 'none' }],
  ['no rules', { limit: 5 }],
  ['a text', 'rules'],
  ['null', null],
  ['nothing', undefined],
])('%s', async (_name, value) => {
  expect(await inSlices(fromChunks(toChunks(value)))).toEqual(value)
})
