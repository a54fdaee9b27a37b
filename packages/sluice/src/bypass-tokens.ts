// `sluice/bypass`: verifies bypass tokens that are stored as SHA-256 hashes. A token is found by its hash, so neither
// the result nor the timing reveals how much of a guess is right.

import { type Clock, wallClock } from './clock.ts'
import { type FieldError, optionsInvalid } from './errors.ts'
import { isObject } from './known-fields.ts'
import type { Bypass, VerifyBypass } from './rules/bypass.ts'
import { patternFix } from './rules/pattern.ts'
import { sha256 } from './sha-256.ts'

export type BypassToken = {
  /** Unique; appears in decisions. */
  readonly id: string
  /** SHA-256 of the token in hexadecimal, by `hashBypassToken`. */
  readonly hash: string
  /** While the token is rotated: the hash of the old one, which stays valid until this time. */
  readonly previous?: { readonly hash: string; readonly expiresAtMs: number } | undefined
  /** By wall-clock time; null: never. */
  readonly expiresAtMs: number | null
  /** Ids of the rules that it bypasses. Default: all. */
  readonly rules?: readonly string[] | undefined
  /** Patterns of the paths that it is valid for. Default: all. */
  readonly paths?: readonly string[] | undefined
  /** Units per minute, over all nodes that share a store. */
  readonly limitPerMinute: number
}

const HASH = /^[0-9a-f]{64}$/
const TOKEN_BYTES = 32
const PREFIX = 'slb_'

/** Option `bypass` of `createLimiter` for these tokens. Throws OPTION_INVALID, and names every mistake. */
export function verifyBypass(tokens: readonly BypassToken[], clock: Clock = wallClock): VerifyBypass {
  checkTokens(tokens)
  const byHash = new Map<string, { readonly bypass: Bypass; readonly endsMs: number }>()
  for (const { id, hash, previous, expiresAtMs, rules, paths, limitPerMinute } of tokens) {
    const bypass = { id, rules, paths, limitPerMinute }
    const endsMs = expiresAtMs ?? Number.POSITIVE_INFINITY
    if (previous !== undefined) byHash.set(previous.hash, { bypass, endsMs: Math.min(endsMs, previous.expiresAtMs) })
    byHash.set(hash, { bypass, endsMs })
  }
  return (token) => {
    const found = byHash.get(hashBypassToken(token))
    return found !== undefined && found.endsMs > clock.nowUs() / 1000 ? found.bypass : undefined
  }
}

export function hashBypassToken(token: string): string {
  return sha256(token)
}

/** A new random token: give `token` to the client, and keep only `hash`. */
export function createBypassToken(): { readonly token: string; readonly hash: string } {
  const bytes = crypto.getRandomValues(new Uint8Array(TOKEN_BYTES))
  const token = `${PREFIX}${base64Url(bytes)}`
  return { token, hash: hashBypassToken(token) }
}

function base64Url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '')
}

function checkTokens(tokens: unknown): void {
  if (!Array.isArray(tokens)) throw optionsInvalid([{ field: 'tokens', value: tokens, fix: 'give a list of tokens' }])
  const [ids, hashes] = [new Set<unknown>(), new Set<unknown>()]
  const errors = tokens.flatMap((token: unknown, index): FieldError[] => {
    const field = `tokens[${index}]`
    if (!isObject(token)) return [{ field, value: token, fix: 'give { id, hash, expiresAtMs, limitPerMinute }' }]
    const { id, hash, previous } = token
    const own = isObject(previous) ? [hash, previous.hash] : [hash]
    const repeated = [ids.has(id) && 'id', own.some((one) => hashes.has(one)) && 'hash'].filter(
      (name) => name !== false,
    )
    ids.add(id)
    for (const one of own) hashes.add(one)
    const twice = repeated.map((name) => ({ field: `${field}.${name}`, value: token[name], fix: 'use each one once' }))
    return [...tokenErrors(token, field), ...twice]
  })
  if (errors.length > 0) throw optionsInvalid(errors)
}

function tokenErrors(token: Readonly<Record<string, unknown>>, path: string): FieldError[] {
  const { id, hash, previous, expiresAtMs, rules, paths, limitPerMinute } = token
  const errors: FieldError[] = []
  const require = (name: string, value: unknown, isValid: boolean, fix: string) => {
    if (!isValid) errors.push({ field: `${path}.${name}`, value, fix })
  }
  require('id', id, typeof id === 'string' && id !== '', 'give a unique id')
  require('hash', hash, isHash(hash), HASH_FIX)
  require('expiresAtMs', expiresAtMs, expiresAtMs === null || isTime(expiresAtMs), `${TIME_FIX}, or null for never`)
  if (previous !== undefined) {
    const { hash: old, expiresAtMs: until } = isObject(previous) ? previous : {}
    require('previous.hash', old, isHash(old), HASH_FIX)
    require('previous.expiresAtMs', until, isTime(until), TIME_FIX)
  }
  require('rules', rules, rules === undefined || isList(rules), 'give a list of rule ids, or leave it out')
  const isPaths = paths === undefined || isList(paths)
  require('paths', paths, isPaths, 'give a list of path patterns, or leave it out')
  for (const [index, pattern] of (isPaths ? ((paths ?? []) as string[]) : []).entries()) {
    const fix = patternFix(pattern)
    require(`paths[${index}]`, pattern, fix === undefined, fix ?? '')
  }
  const isLimit = Number.isSafeInteger(limitPerMinute) && Number(limitPerMinute) >= 1
  require('limitPerMinute', limitPerMinute, isLimit, 'give a whole number of at least 1')
  return errors
}

const HASH_FIX = 'give hashBypassToken(token): 64 hexadecimal digits in lower case'
const TIME_FIX = 'give a time in milliseconds since the epoch'

function isHash(value: unknown): boolean {
  return typeof value === 'string' && HASH.test(value)
}

function isTime(value: unknown): boolean {
  return typeof value === 'number' && Number.isFinite(value)
}

/** An empty list would make the token useless. */
function isList(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0 && value.every((one) => typeof one === 'string')
}
