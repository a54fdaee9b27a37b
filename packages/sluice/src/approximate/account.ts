// Units of one bucket that this node has admitted and the store has not acknowledged, and the table of such accounts.
// Idle accounts are removed. Bounded: beyond the bound, the store decides.

import type { Limit } from '../algorithms/limit.ts'
import { type BucketName, REFUSAL_MS } from '../store/store.ts'

export class Account {
  /** The limit of the last charge: rules may be edited meanwhile. */
  limit: Limit
  readonly owner: string
  readonly detail: string
  /** Admitted, and not sent yet. */
  unsynced = 0
  /** Estimated store time of the last sync: units booked later are not sent yet. */
  syncedUs: number
  /** Set aside for a request that waits for the store's decision on its other charges. */
  reserved = 0
  /** Sent, without a reply yet. */
  sent = 0
  /** Sent, with the reply lost: unacknowledged until #lostUntilMs. */
  #lost = 0
  #lostUntilMs = 0
  /** A request was refused here since the last sync: the store may have more units by now. */
  refused = false
  /** Time of the last refusal here, and of the last sync. */
  refusedMs: number = Number.NEGATIVE_INFINITY
  askedMs: number = Number.NEGATIVE_INFINITY
  /** The sync in flight. */
  syncing: Promise<void> | undefined
  dueMs = 0
  isQueued = false

  /** `nowUs`: booking time of its first units. */
  constructor({ limit, owner, detail }: BucketName, nowUs: number) {
    this.syncedUs = nowUs - 1
    this.limit = limit
    this.owner = owner
    this.detail = detail
  }

  get unacknowledged(): number {
    return this.unsynced + this.reserved + this.sent + this.#lost
  }

  get needsSync(): boolean {
    return this.unsynced > 0 || this.refused
  }

  /** Whether removing it loses nothing. After a refusal, the time of the last sync matters for a while. */
  isIdle(nowMs: number): boolean {
    const recent = nowMs - this.refusedMs < REFUSAL_MS
    return this.unacknowledged === 0 && !this.refused && !recent && this.syncing === undefined
  }

  /** Units came back, through any node: the next refusal needs a sync. */
  askAgain(): void {
    this.askedMs = Number.NEGATIVE_INFINITY
  }

  lose(units: number, untilMs: number): void {
    this.#lost += units
    this.#lostUntilMs = Math.max(this.#lostUntilMs, untilMs)
  }

  get hasLost(): boolean {
    return this.#lost > 0
  }

  forgetLost(nowMs: number): void {
    if (nowMs >= this.#lostUntilMs) this.#lost = 0
  }
}

export class AccountTable {
  count = 0
  readonly #countMax: number
  /** By name of the limit, whatever its numbers, then by owner and detail. */
  readonly #byName = new Map<string, Map<string, Account>>()
  readonly #byLimit = new WeakMap<Limit, Map<string, Account>>()
  /** Accounts due for a sync, by sync interval, in order of arrival. */
  readonly #queues = new Map<number, Set<Account>>()

  constructor(countMax: number) {
    this.#countMax = countMax
  }

  get isFull(): boolean {
    return this.count >= this.#countMax
  }

  find({ limit, owner, detail }: BucketName): Account | undefined {
    return this.#accountsOf(limit)?.get(keyOf(owner, detail))
  }

  findOrAdd(bucket: BucketName, nowUs: number): Account {
    const { limit, owner, detail } = bucket
    const accounts = this.#accountsOf(limit) ?? this.#open(limit)
    const key = keyOf(owner, detail)
    let account = accounts.get(key)
    if (account === undefined) {
      account = new Account(bucket, nowUs)
      accounts.set(key, account)
      this.count += 1
    }
    account.limit = limit
    return account
  }

  delete(bucket: BucketName): void {
    const account = this.find(bucket)
    const accounts = this.#accountsOf(bucket.limit)
    if (account === undefined || accounts === undefined) return
    accounts.delete(keyOf(bucket.owner, bucket.detail))
    if (accounts.size === 0) this.#byName.delete(nameOf(bucket.limit))
    if (account.isQueued) for (const queue of this.#queues.values()) queue.delete(account)
    this.count -= 1
  }

  /** Schedules the account's next sync. */
  enqueue(account: Account, nowMs: number): void {
    const waitMs = account.limit.approximate?.syncMs ?? 0
    let queue = this.#queues.get(waitMs)
    if (queue === undefined) {
      queue = new Set()
      this.#queues.set(waitMs, queue)
    }
    account.dueMs = nowMs + waitMs
    account.isQueued = true
    queue.add(account)
  }

  /** Removes the accounts that are due from the queues, at most `countMax`. */
  takeDue(nowMs: number, countMax: number): Account[] {
    const due: Account[] = []
    for (const [waitMs, queue] of this.#queues) {
      for (const account of queue) {
        if (account.dueMs > nowMs || due.length >= countMax) break
        queue.delete(account)
        account.isQueued = false
        due.push(account)
      }
      if (queue.size === 0) this.#queues.delete(waitMs)
    }
    return due
  }

  *all(): Generator<Account> {
    for (const accounts of this.#byName.values()) yield* accounts.values()
  }

  #accountsOf(limit: Limit): Map<string, Account> | undefined {
    const known = this.#byLimit.get(limit)
    if (known !== undefined && known.size > 0) return known // an empty one may have been replaced
    const accounts = this.#byName.get(nameOf(limit))
    if (accounts !== undefined) this.#byLimit.set(limit, accounts)
    return accounts
  }

  #open(limit: Limit): Map<string, Account> {
    const accounts = new Map<string, Account>()
    this.#byName.set(nameOf(limit), accounts)
    this.#byLimit.set(limit, accounts)
    return accounts
  }
}

/** Reloaded rules create new limits of the same name, which keep the accounts of the old ones. */
function nameOf({ id, fact }: Limit): string {
  return `${id}\n${fact}`
}

function keyOf(owner: string, detail: string): string {
  return detail === '' ? owner : `${owner.length}:${owner}${detail}`
}
