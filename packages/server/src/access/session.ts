// Sessions of the dashboard, sealed into a cookie. No node stores them: every node that knows the token can open the
// cookie, after a restart too, and a session ends with its token.
//
// The cookie contains the token, encrypted with a key derived from the token's stored hash. A stolen cookie does not
// reveal the token and ends with the session. A stolen database is not enough to create a cookie, because it does not
// contain the token.

import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto'
import { type Token, tokenHash } from './token.ts'

export type Session = {
  readonly token: Token
  readonly expiresMs: number
  /** Writes must send it in a header: other sites can neither read nor guess it. */
  readonly csrf: string
}

const VERSION = 'v1'
const IV_BYTES = 12
const TAG_BYTES = 16
const CSRF_BYTES = 18
const TIME_BYTES = 8
/** Longer cookies are rejected unread: a valid one is never that long. */
const COOKIE_LENGTH_MAX = 4096

export type Sealed = { readonly cookie: string; readonly session: Session }

/** `secret`: the token itself, which must belong to `token`. */
export function sealSession(token: Token, secret: string, expiresMs: number): Sealed {
  const csrf = randomBytes(CSRF_BYTES)
  const time = Buffer.alloc(TIME_BYTES)
  time.writeDoubleBE(expiresMs)
  const iv = randomBytes(IV_BYTES)
  const cipher = createCipheriv('aes-256-gcm', keyOf(token), iv).setAAD(labelOf(token.tokenId))
  const sealed = Buffer.concat([cipher.update(Buffer.concat([time, csrf, Buffer.from(secret)])), cipher.final()])
  const id = Buffer.from(token.tokenId).toString('base64url')
  const cookie = [VERSION, id, Buffer.concat([iv, cipher.getAuthTag(), sealed]).toString('base64url')].join('.')
  return { cookie, session: { token, expiresMs, csrf: csrf.toString('base64url') } }
}

/** Undefined if the cookie is forged, expired, or belongs to a token that `find` no longer knows. */
export function openSession(
  cookie: string,
  find: (tokenId: string) => Token | undefined,
  nowMs: number,
): Session | undefined {
  if (cookie.length > COOKIE_LENGTH_MAX) return undefined
  const [version, id = '', text = ''] = cookie.split('.')
  const token = version === VERSION ? find(Buffer.from(id, 'base64url').toString()) : undefined
  const bytes = Buffer.from(text, 'base64url')
  if (token === undefined || bytes.length <= IV_BYTES + TAG_BYTES + TIME_BYTES + CSRF_BYTES) return undefined
  const plain = decrypt(token, bytes)
  if (plain === undefined) return undefined
  const expiresMs = plain.readDoubleBE(0)
  const csrf = plain.subarray(TIME_BYTES, TIME_BYTES + CSRF_BYTES).toString('base64url')
  const secret = plain.subarray(TIME_BYTES + CSRF_BYTES).toString()
  return nowMs < expiresMs && tokenHash(secret) === token.hash ? { token, expiresMs, csrf } : undefined
}

function decrypt(token: Token, bytes: Buffer): Buffer | undefined {
  const iv = bytes.subarray(0, IV_BYTES)
  const decipher = createDecipheriv('aes-256-gcm', keyOf(token), iv, { authTagLength: TAG_BYTES })
  decipher.setAAD(labelOf(token.tokenId)).setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES))
  try {
    return Buffer.concat([decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES)), decipher.final()])
  } catch {
    return undefined // forged, or the token was replaced by another one with the same id
  }
}

function keyOf({ hash }: Token): Buffer {
  return Buffer.from(hkdfSync('sha256', Buffer.from(hash, 'hex'), Buffer.alloc(0), 'sluice dashboard session', 32))
}

function labelOf(tokenId: string): Buffer {
  return Buffer.from(`${VERSION}.${tokenId}`)
}
