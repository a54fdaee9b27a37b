// Key that seals receipts, shared by all nodes of one Redis. The first node generates and stores it there, because
// access to Redis already allows changing every bucket. Without Redis the key stays in this process, like the buckets.

import { randomBytes } from 'node:crypto'
import type { Log } from '../log.ts'
import type { SharedValues } from '../store/shared-values.ts'
import type { Keys } from './receipt-ids.ts'

const VALUE_NAME = 'receipt-key'
const KEY_BYTES = 32
/** Keeps earlier keys for ids still in use: a key changes only if Redis has lost it. */
const KEYS_MAX = 4
const REFRESH_MS = 30_000
/** Minimum interval between reads, so that forged ids cannot flood Redis. */
const READ_INTERVAL_MS = 1000

export class ReceiptKeys implements Keys {
  #all: readonly Buffer[] = [randomBytes(KEY_BYTES)]
  readonly #sharedValues: SharedValues | undefined
  readonly #log: Log
  #readMs = Number.NEGATIVE_INFINITY
  #timer: NodeJS.Timeout | undefined
  #warned = false
  #stopped = false

  constructor(sharedValues: SharedValues | undefined, log: Log) {
    this.#sharedValues = sharedValues
    this.#log = log
  }

  get all(): readonly Buffer[] {
    return this.#all
  }

  /** Resolves when the key is known, or Redis is unreachable; then it is read again periodically. */
  async start(): Promise<void> {
    if (this.#sharedValues === undefined) return
    await this.refresh()
    this.#refreshLater()
  }

  /** Reads the key again, at most once a second. */
  async refresh(): Promise<void> {
    const nowMs = performance.now()
    if (this.#sharedValues === undefined || nowMs - this.#readMs < READ_INTERVAL_MS) return
    this.#readMs = nowMs
    try {
      this.#use(await sharedKey(this.#sharedValues, this.#all[0] as Buffer)) // never empty
    } catch (error) {
      if (!this.#warned) this.#log.event('receipt_key_unavailable', { reason: (error as Error).message })
      this.#warned = true
    }
  }

  stop(): void {
    clearTimeout(this.#timer)
    this.#stopped = true
  }

  #refreshLater(): void {
    if (this.#stopped) return
    this.#timer = setTimeout(() => void this.refresh().then(() => this.#refreshLater()), REFRESH_MS).unref()
  }

  #use(key: Buffer): void {
    this.#warned = false
    const others = this.#all.filter((known) => !known.equals(key))
    this.#all = [key, ...others].slice(0, KEYS_MAX)
  }
}

/** Returns the stored key, or stores and returns `own` if there is none. */
async function sharedKey(sharedValues: SharedValues, own: Buffer): Promise<Buffer> {
  const [known] = await sharedValues.get(VALUE_NAME)
  if (known === undefined) await sharedValues.putIfAbsent(VALUE_NAME, own.toString('base64url'))
  const [text = ''] = known === undefined ? await sharedValues.get(VALUE_NAME) : [known]
  const key = Buffer.from(text, 'base64url')
  if (key.length !== KEY_BYTES) throw new Error('the receipt key is damaged: delete sl:note:receipt-key')
  return key
}
