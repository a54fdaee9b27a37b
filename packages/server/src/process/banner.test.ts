import { expect, test } from 'vitest'
import { banner } from './banner.ts'

test.each([
  [true, '(sign in with a token)'],
  [false, '(start with --admin-token or --tokens-file to sign in)'],
])('the dashboard needs a token: %s', (signInIsPossible, hint) => {
  const facts = { address: 'http://127.0.0.1:8080', store: 'in memory', rulesLocation: 'a file', rules: [] }
  const checks = { checksAreOpen: true, checksArePossible: true, firstToken: undefined }
  expect(banner({ ...facts, ...checks, hasDashboard: true, signInIsPossible })).toContain(`8080/ ${hint}\n`)
})
