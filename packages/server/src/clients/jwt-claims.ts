// Reads the claims of a JSON Web Token; an invalid token has none, and on_missing of the rules applies. With a key,
// only valid signatures and unexpired tokens count. The key determines the accepted algorithms, never the token.

import { createPublicKey, type KeyObject } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { JwtSettings } from '../settings/client-settings.ts'
import { settingInvalid } from '../settings/setting-invalid.ts'

export type Claims = Readonly<Record<string, unknown>>
export type ClaimsOf = (token: string) => Claims | Promise<Claims>

const NO_CLAIMS: Claims = {}

const ALGORITHMS: Readonly<Record<string, readonly string[]>> = {
  rsa: ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  'rsa-pss': ['PS256', 'PS384', 'PS512'],
  ec: ['ES256', 'ES384', 'ES512'],
  ed25519: ['EdDSA', 'Ed25519'],
}

const RSA_BITS_MIN = 2048
/** P-256, P-384 and P-521, by their OpenSSL names. */
const CURVES = ['prime256v1', 'secp384r1', 'secp521r1']

export function claimsReader({ jwtSecret, jwtKey }: JwtSettings): ClaimsOf {
  if (jwtKey !== undefined) {
    const key = publicKeyIn(jwtKey)
    return verified(key, algorithmsOf(key, jwtKey))
  }
  if (jwtSecret !== undefined) return verified(new TextEncoder().encode(jwtSecret), ['HS256', 'HS384', 'HS512'])
  return (token) =>
    jose === undefined ? loadJose().then((loaded) => unverified(loaded, token)) : unverified(jose, token)
}

type Jose = typeof import('jose')

/** Loaded with the first token, because most nodes never see one. */
let jose: Jose | undefined

async function loadJose(): Promise<Jose> {
  jose ??= await import('jose')
  return jose
}

function unverified({ decodeJwt }: Jose, token: string): Claims {
  try {
    return decodeJwt(token)
  } catch {
    return NO_CLAIMS
  }
}

function verified(key: KeyObject | Uint8Array, algorithms: readonly string[]): ClaimsOf {
  const options = { algorithms: [...algorithms] }
  return async (token) => {
    const { jwtVerify } = jose ?? (await loadJose())
    return jwtVerify(token, key, options).then(
      ({ payload }) => payload,
      () => NO_CLAIMS,
    )
  }
}

/** Rejects a key that cannot sign tokens: no client would have an identity. */
function algorithmsOf({ asymmetricKeyType, asymmetricKeyDetails = {} }: KeyObject, path: string): readonly string[] {
  const { modulusLength = RSA_BITS_MIN, namedCurve = 'prime256v1' } = asymmetricKeyDetails
  const algorithms = ALGORITHMS[asymmetricKeyType ?? '']
  if (algorithms !== undefined && modulusLength >= RSA_BITS_MIN && CURVES.includes(namedCurve)) return algorithms
  throw settingInvalid(
    'jwt-key',
    path,
    'give an RSA key of at least 2048 bits, or a key on P-256, P-384, P-521 or Ed25519',
  )
}

function publicKeyIn(path: string): KeyObject {
  try {
    return createPublicKey(readFileSync(path))
  } catch (error) {
    throw settingInvalid('jwt-key', path, 'give a file with a public key or a certificate in PEM', error)
  }
}
