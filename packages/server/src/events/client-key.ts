// Identity of a client in events: the user, else the API key, else the address. Every value is made storable first, so
// that all sinks hold the same text.

import { createHmac } from 'node:crypto'
import { HalfSipHash, type HashSeed, type Subject, seedOf } from 'sluice'
import { canonicalAddress } from 'sluice/http'
import { HASH_DIGITS, type KeyHash } from '../log.ts'
import { HASH_PREFIX } from './bucket-key.ts'
import type { ClientKind } from './event.ts'

export type Client = { readonly kind: ClientKind; readonly name: string }

const ADDRESS_BITS = 128
/** Longer values do not fit into an index of PostgreSQL (2704 bytes). */
const NAME_MAX = 512
/** NUL and lone surrogates. */
const UNSTORABLE = /\0|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g

/** Replaces NUL and lone surrogates, which some databases cannot store, and truncates long text between characters. */
export function storable(text: string, lengthMax: number = NAME_MAX): string {
  const short = text.length <= lengthMax ? text : text.slice(0, lengthMax).replace(/[\ud800-\udbff]$/, '')
  return /[\0\ud800-\udfff]/.test(short) ? short.replace(UNSTORABLE, '\ufffd') : short
}

export function clientOf({ user, apiKey, ip }: Subject): Client | undefined {
  if (user !== undefined) return { kind: 'user', name: storable(user) }
  if (apiKey !== undefined) return { kind: 'api_key', name: apiKey }
  const address = canonicalIp(ip)
  return address === undefined ? undefined : { kind: 'ip', name: address }
}

export function canonicalIp(ip: string | undefined): string | undefined {
  return ip === undefined ? undefined : canonicalAddress(ip, ADDRESS_BITS)
}

/** The form of a stored hash. Other texts with this prefix are ordinary keys. */
export const HASHED: RegExp = new RegExp(`^${HASH_PREFIX}[0-9a-f]{${HASH_DIGITS}}$`)

/** `hmac:` and the keyed hash; the same as in the log and in `key_hash` of the API. */
export function hashedName(hash: KeyHash, fact: string, value: string): string {
  return HASH_PREFIX + hash(fact, value)
}

/** Most values of recent batches; beyond it the cache starts again. */
const CACHED_MAX = 20_000

/** A cache starts again after this time, so that `onNew` hears of a key again while it is in use. */
const CACHED_MS = 3_600_000

/** Caches hashes: an HMAC takes 2 µs, and clients repeat. Calls `onNew` with each value that is not cached. */
export function cachedHash(hash: KeyHash, onNew?: (fact: string, value: string) => void): KeyHash {
  const caches = new Map<string, { readonly hashes: Map<string, string>; readonly sinceMs: number }>()
  return (fact, value) => {
    let cache = caches.get(fact)
    const known = cache?.hashes.get(value)
    if (known !== undefined && cache !== undefined && performance.now() - cache.sinceMs < CACHED_MS) return known
    if (cache === undefined || known !== undefined || cache.hashes.size >= CACHED_MAX) {
      cache = { hashes: new Map(), sinceMs: performance.now() }
      caches.set(fact, cache)
    }
    const hashed = hash(fact, value)
    cache.hashes.set(value, hashed)
    onNew?.(fact, value)
    return hashed
  }
}

/**
 * Position of a client in [0, 1): the client is sampled if it is below the sample rate. Keyed, so that clients cannot
 * choose it, and the same on all nodes with the same secret.
 */
export class SamplePosition {
  readonly #seed: HashSeed
  readonly #hash = new HalfSipHash()

  constructor(secret: string) {
    const key = createHmac('sha256', secret).update('sample').digest()
    this.#seed = seedOf(key.readInt32LE(0), key.readInt32LE(4))
  }

  of({ kind, name }: Client): number {
    this.#hash.hash(this.#seed, kind, name)
    return (this.#hash.low >>> 0) / 2 ** 32
  }
}
