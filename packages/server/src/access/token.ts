// API tokens: a prefix that scanners of leaked secrets can look for, and 256 random bits. Only their SHA-256 is kept
// anywhere: so much chance cannot be guessed, so a slow hash would protect nothing.

import { createHash, randomBytes } from 'node:crypto'
import type { Role } from './roles.ts'

export const TOKEN_PREFIX = 'sluice_'
const SECRET_BYTES = 32

/** What is known of a token, by everybody but its owner. */
export type Token = {
  readonly tokenId: string
  readonly name: string
  readonly role: Role
  /** SHA-256 of the token, in hexadecimal. */
  readonly hash: string
  readonly createdAt: string
  /** null: it does not end by itself. */
  readonly expiresAt: string | null
  readonly revokedAt: string | null
}

/** The token itself: shown once, to whoever asked for it. */
export function newSecret(): string {
  return TOKEN_PREFIX + randomBytes(SECRET_BYTES).toString('base64url')
}

export function newTokenId(): string {
  return `tok_${randomBytes(8).toString('hex')}`
}

export function tokenHash(secret: string): string {
  return createHash('sha256').update(secret).digest('hex')
}
