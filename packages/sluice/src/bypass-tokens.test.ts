import { expect, test } from 'vitest'
import { type BypassToken, createBypassToken, hashBypassToken, verifyBypass } from './bypass-tokens.ts'
import { createLimiter } from './limiter.ts'

const NOW_MS = 1_700_000_000_000
const clock = { nowUs: () => NOW_MS * 1000 }

function tokenOf(secret: string, change: Partial<BypassToken> = {}): BypassToken {
  return { id: secret, hash: hashBypassToken(secret), expiresAtMs: null, limitPerMinute: 5, ...change }
}

test.each<[string, string, Partial<BypassToken>, boolean]>([
  ['the token', 'new', {}, true],
  ['another one', 'newer', {}, false],
  ['the hash itself', hashBypassToken('new'), {}, false],
  ['the token before it expires', 'new', { expiresAtMs: NOW_MS + 1 }, true],
  ['the token when it has expired', 'new', { expiresAtMs: NOW_MS }, false],
  ['the old token while it is rotated', 'old', { previous: previous(NOW_MS + 1) }, true],
  ['the new token while it is rotated', 'new', { previous: previous(NOW_MS + 1) }, true],
  ['the old token after the rotation', 'old', { previous: previous(NOW_MS) }, false],
  ['the old token of an expired one', 'old', { previous: previous(NOW_MS + 1), expiresAtMs: NOW_MS }, false],
])('accepts only valid tokens: %s', (_name, sent, change, isValid) => {
  const found = verifyBypass([tokenOf('other'), tokenOf('new', change)], clock)(sent)
  expect(found?.id).toBe(isValid ? 'new' : undefined)
})

function previous(expiresAtMs: number) {
  return { hash: hashBypassToken('old'), expiresAtMs }
}

test('a new token is random, and a limiter accepts it', async () => {
  const { token, hash } = createBypassToken()
  expect([token.length, createBypassToken().token === token]).toEqual([47, false])
  const bypass = verifyBypass([{ id: 'ci', hash, expiresAtMs: null, limitPerMinute: 3, paths: ['/v1/**'] }])
  const limiter = createLimiter({ rules: [{ rule_id: 'a', limit: 1, window: '1m' }], bypass })
  const decision = await limiter.check({ path: '/v1/x', bypassToken: token })
  expect(decision.exceptions).toEqual([{ kind: 'bypass', id: 'ci', ruleId: 'a', effect: { exempt: true } }])
})

test.each<[unknown, string]>([
  [{}, 'tokens: give a list of tokens'],
  [[7], 'tokens[0]: give { id, hash,'],
  [[tokenOf('a', { id: '' })], 'tokens[0].id: give a unique id'],
  [[tokenOf('a', { hash: 'a' })], 'tokens[0].hash: give hashBypassToken(token)'],
  [[tokenOf('a', { expiresAtMs: undefined as never })], 'tokens[0].expiresAtMs: give a time in milliseconds'],
  [[tokenOf('a', { previous: { hash: 'x', expiresAtMs: 1 } })], 'tokens[0].previous.hash: give hashBypassToken'],
  [[tokenOf('a', { previous: { ...previous(1), expiresAtMs: 'x' as never } })], 'tokens[0].previous.expiresAtMs: give'],
  [[tokenOf('a', { rules: [] })], 'tokens[0].rules: give a list of rule ids, or leave it out'],
  [[tokenOf('a', { paths: ['/a*'] })], 'tokens[0].paths[0]: "*" stands for a whole segment'],
  [[tokenOf('a', { limitPerMinute: 0 })], 'tokens[0].limitPerMinute: give a whole number of at least 1 (got 0)'],
  [[tokenOf('a'), tokenOf('a')], 'tokens[1].id: use each one once'],
  [[tokenOf('a'), tokenOf('a', { id: 'b' })], 'tokens[1].hash: use each one once'],
])('names field, value and fix of a mistake: %#', (tokens, message) => {
  expect(() => verifyBypass(tokens as never)).toThrow(message)
})
