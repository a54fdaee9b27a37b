// API tokens: a prefix that secret scanners recognise, and 256 random bits. Only the SHA-256 is stored: a slow hash
// adds nothing to a secret that cannot be guessed.

import { createHash, randomBytes } from 'node:crypto'
import type { Role } from './roles.ts'

export const TOKEN_PREFIX = 'sluice_'
const SECRET_BYTES = 32

/** A token without its secret. */
export type Token = {
  readonly tokenId: string
  readonly name: string
  readonly role: Role
  /** SHA-256 of the token, in hexadecimal. */
  readonly hash: string
  readonly createdAt: string
  /** null: does not expire. */
  readonly expiresAt: string | null
  readonly revokedAt: string | null
}

/** Says when the token was revoked or expired; undefined while it is valid. */
export function endedReason({ revokedAt, expiresAt }: Token, nowMs: number): string | undefined {
  if (revokedAt !== null) return `This token was revoked at ${revokedAt}.`
  return expiresAt !== null && Date.parse(expiresAt) <= nowMs ? `This token expired at ${expiresAt}.` : undefined
}

/** Generates a token. It is shown only once. */
export function newSecret(): string {
  return TOKEN_PREFIX + randomBytes(SECRET_BYTES).toString('base64url')
}

export function newTokenId(): string {
  return `tok_${randomBytes(8).toString('hex')}`
}

export function tokenHash(secret: string): string {
  return createHash('sha256').update(secret).digest('hex')
}
