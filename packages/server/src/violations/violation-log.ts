// Refusals, on their way to the database. A check only leaves a note, which never waits and never fails; notes are
// written together, a second later. When more come than can be written, the newest are dropped and counted.

import { bucketOf, type Clock, type Decision, type Subject } from 'sluice'
import { canonicalAddress } from 'sluice/http'
import { type Database, DatabaseUnavailable } from '../db/database.ts'
import type { KeyHash, Log } from '../log.ts'
import { bucketKey, hashedKey } from './hashed-key.ts'
import { insertViolations, type Violation } from './violation-table.ts'

const PENDING_MAX = 5000
/** At most so many every second: a flood of refusals must not become a flood of the database. */
const BATCH_ROWS = 500
const FLUSH_MS = 1000
const RETRY_MS = 5000
const ADDRESS_BITS = 128

export type ViolationLogParts = {
  readonly database: Database
  /** Given: clients are named by this hash instead of in clear. */
  readonly keyHash: KeyHash | undefined
  readonly clock: Clock
  readonly log: Log
}

export class ViolationLog {
  readonly #parts: ViolationLogParts
  #pending: Violation[] = []
  #written = 0
  #dropped = 0
  #flushing: Promise<void> | undefined
  #flushTimer: NodeJS.Timeout | undefined
  #closed = false
  #lost = false

  constructor(parts: ViolationLogParts) {
    this.#parts = parts
  }

  get written(): number {
    return this.#written
  }

  get dropped(): number {
    return this.#dropped
  }

  /** For every refusal. `decided`: the limiter's own decision, which knows the bucket, if this one was made of it. */
  refused(decision: Decision, subject: Subject, decided: Decision = decision): void {
    if (this.#pending.length >= PENDING_MAX || this.#closed) {
      this.#dropped += 1
      return
    }
    const { clock, keyHash } = this.#parts
    this.#pending.push(violationOf(decision, bucketOf(decided), subject, clock.nowUs() / 1000, keyHash))
    this.#flushLater(FLUSH_MS)
  }

  /** Writes what is pending, if the database takes it, and ends. */
  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#flushTimer)
    await this.#flushing
    while (this.#pending.length > 0 && !this.#lost) await this.#flush()
    this.#dropped += this.#pending.length
  }

  #flushLater(ms: number): void {
    if (this.#closed) return
    this.#flushTimer ??= setTimeout(() => {
      this.#flushTimer = undefined
      this.#flushing = this.#flush().then(() => {
        if (this.#pending.length > 0) this.#flushLater(this.#lost ? RETRY_MS : FLUSH_MS)
      })
    }, ms).unref()
  }

  #flush(): Promise<void> {
    return this.#write(this.#pending.splice(0, BATCH_ROWS))
  }

  /** A row that the database does not want is dropped alone, so that no other one is lost with it. */
  async #write(batch: readonly Violation[]): Promise<void> {
    const { database, log } = this.#parts
    try {
      await insertViolations(database, batch)
      this.#written += batch.length
      this.#lost = false
    } catch (error) {
      if (error instanceof DatabaseUnavailable) {
        if (!this.#lost) log.error({ reason: String(error) }, 'violations cannot be written at the moment')
        this.#lost = true
        this.#pending.unshift(...batch)
      } else if (batch.length > 1) {
        const half = batch.length >> 1
        await this.#write(batch.slice(0, half))
        await this.#write(batch.slice(half))
      } else {
        if (this.#dropped === 0) log.error({ reason: String(error) }, 'the database refuses a violation: it is dropped')
        this.#dropped += 1
      }
    }
  }
}

function violationOf(
  decision: Decision,
  bucket: ReturnType<typeof bucketOf>,
  { user, ip, path }: Subject,
  nowMs: number,
  hash: KeyHash | undefined,
): Violation {
  const address = ip === undefined ? null : (canonicalAddress(ip, ADDRESS_BITS) ?? null)
  const names =
    hash === undefined
      ? { user_id: user ?? null, ip_address: address, ip_hash: null }
      : {
          user_id: user === undefined ? null : hashedKey(hash, 'user', user),
          ip_address: null,
          ip_hash: address === null ? null : hashedKey(hash, 'ip', address),
        }
  return {
    bucket_key: bucketKey(bucket ?? NO_BUCKET, hash),
    ...names,
    endpoint: path ?? null,
    requested_at: new Date(nowMs),
    tokens_at_time: decision.remaining ?? 0,
    rule_id: decision.ruleId,
  }
}

const NO_BUCKET = { ruleId: '', name: '', fact: '', owner: '', detail: '' }
