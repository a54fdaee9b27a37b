// Mutants of `npm run sim -- --mutants` are edits of the source text, so an edit of the source can outdate them.

import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import mutants from './mutants.json' with { type: 'json' }

test('every mutant has a name of its own and changes exactly one place of its file', () => {
  expect(new Set(mutants.map(({ name }) => name)).size).toBe(mutants.length)
  const outdated = mutants.filter(({ file, from }) => {
    return readFileSync(new URL(`../../src/${file}`, import.meta.url), 'utf8').split(from).length !== 2
  })
  expect(outdated.map(({ name }) => name)).toEqual([])
})
