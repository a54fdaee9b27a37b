// Client keys of the hashes that events store: buckets are named by the key itself, and a hash cannot be reversed. The
// keys of recent events are kept in this process and, encrypted with the key secret, in Redis, where every node finds
// them. Only explanations read them, and no answer contains one. Errs towards unknown: at its caps, and after KEPT_MS,
// a key is forgotten.

import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto'
import { hashedName, storable } from '../events/client-key.ts'
import type { KeyHash } from '../log.ts'
import type { SharedValues } from '../store/shared-values.ts'
import { RecentMap } from './recent-map.ts'

/** In this process. */
const KEYS_MAX = 20_000
/** In Redis: a ring in which a newer key overwrites an older one. */
const POSITIONS = 2 ** 16
const KEPT_MS = 86_400_000
const FLUSH_MS = 100
/** Per FLUSH_MS: a flood of new keys must not become a flood of writes. */
const FLUSHED_MAX = 50
const WAITING_MAX = 10_000
const KEY_LENGTH_MAX = 4096
/** Facts that events store as a hash of the whole value. */
const FACTS: readonly string[] = ['user', 'api_key', 'ip', 'tenant']
/** Events truncate longer values before they hash them. */
const WHOLE_LENGTH_MAX = 128

const CIPHER = 'aes-256-gcm'
const NONCE_BYTES = 12
const TAG_BYTES = 16

type SharedKeys = Pick<SharedValues, 'put' | 'get'> | undefined

export class KnownKeys {
  readonly #hash: KeyHash
  readonly #sealKey: Buffer
  readonly #shared: SharedKeys
  readonly #recent = new RecentMap<string>(KEYS_MAX)
  /** Keys that are not in Redis yet. */
  readonly #waiting: { readonly hashed: string; readonly value: string }[] = []
  #timer: NodeJS.Timeout | undefined

  /** `shared` undefined: buckets are in this process, and so is all that is known of them. */
  constructor(hash: KeyHash, secret: string, shared: SharedKeys) {
    this.#hash = hash
    this.#sealKey = Buffer.from(hkdfSync('sha256', secret, '', 'keys of stored hashes', 32))
    this.#shared = shared
  }

  remember(fact: string, value: string): void {
    if (!FACTS.includes(fact) || value.length > (fact === 'api_key' ? KEY_LENGTH_MAX : WHOLE_LENGTH_MAX)) return
    if (storable(value, KEY_LENGTH_MAX) !== value || value.includes('\ufffd')) return
    const hashed = hashedName(this.#hash, fact, value)
    this.#recent.remember(hashed, value)
    if (this.#shared === undefined || this.#waiting.length >= WAITING_MAX) return
    this.#waiting.push({ hashed, value })
    this.#timer ??= setTimeout(() => void this.#flush(this.#shared), FLUSH_MS).unref()
  }

  async #flush(shared: SharedKeys): Promise<void> {
    const batch = this.#waiting.splice(0, FLUSHED_MAX)
    const written = batch.map(({ hashed, value }) => shared?.put(nameOf(hashed), this.#seal(value), KEPT_MS))
    await Promise.allSettled(written) // the store reports its outage
    this.#timer = this.#waiting.length === 0 ? undefined : setTimeout(() => void this.#flush(shared), FLUSH_MS).unref()
  }

  /** The value of a fact whose hash this is; undefined if it is not known. Rejects while Redis does not answer. */
  async find(fact: string, hashed: string): Promise<string | undefined> {
    const isKeyOf = (value: string | undefined) => value !== undefined && hashedName(this.#hash, fact, value) === hashed
    const own = this.#recent.find(hashed)
    if (isKeyOf(own)) return own
    const [sealed] = (await this.#shared?.get(nameOf(hashed))) ?? []
    const value = sealed === undefined ? undefined : this.#open(sealed)
    return isKeyOf(value) ? value : undefined // the position may hold another key by now
  }

  #seal(value: string): string {
    const nonce = randomBytes(NONCE_BYTES)
    const cipher = createCipheriv(CIPHER, this.#sealKey, nonce)
    return Buffer.concat([nonce, cipher.update(value, 'utf8'), cipher.final(), cipher.getAuthTag()]).toString('base64')
  }

  #open(text: string): string | undefined {
    const sealed = Buffer.from(text, 'base64')
    const end = sealed.length - TAG_BYTES
    try {
      const nonce = sealed.subarray(0, NONCE_BYTES)
      const decipher = createDecipheriv(CIPHER, this.#sealKey, nonce, { authTagLength: TAG_BYTES })
      decipher.setAuthTag(sealed.subarray(end))
      return Buffer.concat([decipher.update(sealed.subarray(NONCE_BYTES, end)), decipher.final()]).toString('utf8')
    } catch {
      return undefined // another key secret
    }
  }
}

/** Hashes are `hmac:` and hexadecimal digits. */
function nameOf(hashed: string): string {
  return `client-key:${Number.parseInt(hashed.slice(-8), 16) % POSITIONS}`
}
