// What a node has admitted of one bucket and the store has not acknowledged, and the table of all such buckets. One
// that has nothing to tell or to ask is forgotten. Bounded: buckets beyond that are the store's to decide.

import type { Limit } from '../algorithms/limit.ts'
import type { BucketName } from '../store/store.ts'

export class Account {
  /** As it was last charged: rules may be edited meanwhile. */
  limit: Limit
  readonly owner: string
  readonly detail: string
  /** Admitted, and not told yet. */
  unsynced = 0
  /** Store time as known here when it last told: units booked later are not told yet. */
  toldUs: number
  /** Set aside for a request that waits for what the store says of others. */
  reserved = 0
  /** Told, and not answered yet. */
  sent = 0
  /** Told, and never answered: until then they count as not acknowledged. */
  #lost = 0
  #lostUntilMs = 0
  /** Somebody was refused: what the store says may be better. */
  refused = false
  /** The exchange with the store that is under way. */
  syncing: Promise<void> | undefined
  dueMs = 0
  isQueued = false

  /** `nowUs`: when the first of its units are booked. */
  constructor({ limit, owner, detail }: BucketName, nowUs: number) {
    this.toldUs = nowUs - 1
    this.limit = limit
    this.owner = owner
    this.detail = detail
  }

  get unacknowledged(): number {
    return this.unsynced + this.reserved + this.sent + this.#lost
  }

  get hasNews(): boolean {
    return this.unsynced > 0 || this.refused
  }

  /** Nothing would be missed if it were forgotten. */
  get isIdle(): boolean {
    return this.unacknowledged === 0 && !this.refused && this.syncing === undefined
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
  /** By limit, whatever its numbers are, then by owner and detail. */
  readonly #byName = new Map<string, Map<string, Account>>()
  readonly #byLimit = new WeakMap<Limit, Map<string, Account>>()
  /** Those that are to be looked at, by how long they wait for it, first come first. */
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

  /** To be looked at when its time comes. */
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

  /** Takes those out of the queues whose time has come, at most so many. */
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

/** Rules that are read again make new limits of the same name: what was admitted under the old ones counts on. */
function nameOf({ id, fact }: Limit): string {
  return `${id}\n${fact}`
}

function keyOf(owner: string, detail: string): string {
  return detail === '' ? owner : `${owner.length}:${owner}${detail}`
}
