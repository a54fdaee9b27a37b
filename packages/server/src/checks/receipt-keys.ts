// The key that seals receipts. All nodes of one Redis have the same: the first one makes it and keeps it there, because
// access to Redis already allows changing every bucket. Without Redis the buckets are in this process, and so is the
// key.

import { randomBytes } from 'node:crypto'
import type { SharedNotes } from '../counters/shared-notes.ts'
import type { Log } from '../log.ts'
import type { Keys } from './receipt-ids.ts'

const NOTE = 'receipt-key'
const KEY_BYTES = 32
/** Keys of ids that are still around: one is replaced only if Redis has lost it. */
const KEYS_MAX = 4
const REFRESH_MS = 30_000
/** A forged id must not make a node ask Redis each time. */
const ASK_MS_MIN = 1000

export class ReceiptKeys implements Keys {
  #all: readonly Buffer[] = [randomBytes(KEY_BYTES)]
  readonly #notes: SharedNotes | undefined
  readonly #log: Log
  #askedMs = Number.NEGATIVE_INFINITY
  #timer: NodeJS.Timeout | undefined
  #warned = false
  #stopped = false

  constructor(notes: SharedNotes | undefined, log: Log) {
    this.#notes = notes
    this.#log = log
  }

  get all(): readonly Buffer[] {
    return this.#all
  }

  /** Resolves when the key is known, or Redis cannot be asked: then it is asked again from time to time. */
  async start(): Promise<void> {
    if (this.#notes === undefined) return
    await this.refresh()
    this.#refreshLater()
  }

  /** Reads the key again, at most once a second. */
  async refresh(): Promise<void> {
    const nowMs = performance.now()
    if (this.#notes === undefined || nowMs - this.#askedMs < ASK_MS_MIN) return
    this.#askedMs = nowMs
    try {
      this.#use(await sharedKey(this.#notes, this.#all[0] as Buffer)) // there is always one
    } catch (error) {
      if (!this.#warned) {
        const reason = (error as Error).message
        this.#log.warn({ reason }, 'the key of receipts cannot be read: refunds work on the node that admitted')
      }
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

/** The key that is there, or `own` if there is none. */
async function sharedKey(notes: SharedNotes, own: Buffer): Promise<Buffer> {
  const [known] = await notes.get(NOTE)
  if (known === undefined) await notes.putIfAbsent(NOTE, own.toString('base64url'))
  const [text = ''] = known === undefined ? await notes.get(NOTE) : [known]
  const key = Buffer.from(text, 'base64url')
  if (key.length !== KEY_BYTES) throw new Error('the key of receipts is damaged: delete sl:note:receipt-key')
  return key
}
