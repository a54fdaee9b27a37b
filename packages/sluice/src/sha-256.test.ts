import { createHash, createHmac } from 'node:crypto'
import { expect, test } from 'vitest'
import { hmacSha256, portableHmacSha256, portableSha256, sha256 } from './sha-256.ts'

// Lengths around the ends of blocks, where padding differs.
const LENGTHS = [0, 1, 27, 28, 54, 55, 56, 63, 64, 65, 119, 120, 128, 1000]
const TEXTS = LENGTHS.flatMap((length) => ['a', 'é', '\ud800'].map((unit) => unit.repeat(length)))

test('digests are the same with and without node:crypto', () => {
  for (const text of TEXTS) {
    const digest = createHash('sha256').update(text).digest('hex')
    expect([portableSha256(text), sha256(text)]).toEqual([digest, digest])
  }
})

test.each(['utf8', 'utf16le'] as const)('keyed digests are the same with and without node:crypto: %s', (encoding) => {
  for (const [index, text] of TEXTS.entries()) {
    const key = TEXTS.at(-index - 1) ?? ''
    const digest = createHmac('sha256', key).update(text, encoding).digest('hex')
    const found = [portableHmacSha256(key, text, encoding), hmacSha256(key, text, encoding)]
    expect(found).toEqual([digest, digest])
  }
})
