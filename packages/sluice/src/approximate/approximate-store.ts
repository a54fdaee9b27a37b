// Wraps a store to decide rules with `consistency: approximate` or `local` in this process. An approximate bucket has
// a model in memory: the store's last reply plus the units admitted here since, which are synced to the store
// periodically. When too many are unacknowledged, the store decides. A take stays all or nothing: units taken here are
// set aside while the store decides the rest, and put back if it refuses. A model that has not been synced for
// REFUSAL_MS refuses nothing before the store was asked: others may have refunded or reset the bucket.
// The bound is in algorithms/approximate-terms.ts. It needs models that err low, and no unacknowledged unit forgotten.

import { STATE_MAX } from '../algorithms/limit.ts'
import { type Clock, systemTimers, type Timers } from '../clock.ts'
import { memoryStore } from '../store/memory.ts'
import type { SyncStore } from '../store/node-share-store.ts'
import { resetThenTake } from '../store/reset-then-take.ts'
import type { SomeStats } from '../store/stats.ts'
import {
  type BucketName,
  type Charge,
  decidedAt,
  type Give,
  type GiveReply,
  type GiveResult,
  type Grant,
  type IdempotencyKey,
  mergeGiveResults,
  NOT_CHARGED,
  REFUSAL_MS,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'
import { checkCharges } from '../store/validate-request.ts'
import { type Account, AccountTable } from './account.ts'
import { StoreClock } from './store-clock.ts'

export type ApproximateOptions = {
  /** Number of nodes that share the limits of rules with `consistency: local`. */
  readonly nodes?: number
  /** Most buckets in memory, and most accounts with unacknowledged units; beyond that the store decides. */
  readonly maxKeys?: number
  readonly accountsMax?: number
  /** Used until the first reply of the store gives its time. */
  readonly clock?: Clock
  readonly timers?: Timers
}

const KEYS_MAX = 1_000_000
const ACCOUNTS_MAX = 200_000
const TICK_MS = 20
/** Syncs started per tick, so that a tick neither blocks checks nor floods the store. */
const SYNCS_PER_TICK = 1000

export function approximateStore(store: Store, options: ApproximateOptions = {}): Store {
  return new ApproximateStore(store, options)
}

class ApproximateStore implements Store {
  readonly #store: Store
  readonly #timers: Timers
  readonly #clock: StoreClock
  /** Models of approximate buckets, and local buckets. */
  readonly #local: SyncStore
  readonly #table: AccountTable
  #stopTicking: (() => void) | undefined
  readonly #counts = { syncs: 0, syncs_over: 0, syncs_lost: 0 } satisfies SomeStats

  constructor(store: Store, options: ApproximateOptions) {
    const { nodes = 1, maxKeys = KEYS_MAX, accountsMax = ACCOUNTS_MAX, timers = systemTimers } = options
    this.#store = store
    this.#timers = timers
    this.#clock = new StoreClock(timers, options.clock)
    this.#local = memoryStore({ maxKeys, nodes, clock: this.#clock })
    this.#table = new AccountTable(accountsMax)
  }

  takeSync(take: Take): Taken | undefined {
    const { charges } = take
    if (take.resets !== undefined) return undefined
    if (!charges.some(isLocallyDecided)) return this.#store.takeSync?.(take)
    const own = charges.filter(isOwn)
    if (own.length < charges.length) checkCharges(charges) // the store must not reject them after units are set aside
    const aside = this.#takeHere(own)
    if (aside === undefined || this.#mayHaveEnded(own, aside).length > 0) return undefined
    const others = aside.granted ? charges.filter((charge) => !isOwn(charge)) : []
    const taken = others.length === 0 ? aside : this.#store.takeSync?.({ ...take, charges: others })
    if (taken?.granted)
      for (const [charge, grant] of paired(own, aside)) this.#admitted(charge, grant.units, aside.nowUs)
    else if (aside.granted) this.#putBack(own, aside)
    if (taken !== undefined) this.#booked(others, taken)
    return taken && combined(charges, own, aside, taken)
  }

  take(take: Take): Taken | Promise<Taken> {
    const { charges, resets } = take
    if (!charges.some(isLocallyDecided) && !resets?.some(isLocallyDecided)) return this.#store.take(take)
    if (resets !== undefined) return resetThenTake(this, take)
    return this.takeSync(take) ?? this.#query(take)
  }

  async peek(charges: readonly Charge[], mayBeStale?: boolean, expiresMs?: number): Promise<Taken> {
    const own = charges.filter(isOwn)
    const others = charges.filter((charge) => !isOwn(charge))
    const here = decidedHere(this.#local.peek(own))
    if (others.length === 0) return here
    const taken = await this.#store.peek(others, mayBeStale, expiresMs)
    const { stale } = taken
    return { ...combined(charges, own, here, taken), granted: here.granted && taken.granted, stale }
  }

  /**
   * Units that were never synced do not go back to the store. Nothing changes here before the store has confirmed the
   * rest, so that a failed give can be retried.
   */
  async give(gives: readonly Give[], opId?: string, idempotencyKey?: IdempotencyKey): Promise<GiveResult> {
    const [local, shared] = [gives.filter(isLocallyDecided).filter(({ limit }) => limit.local), gives.filter(isShared)]
    const unsynced = shared.map((give) => this.#withhold(give))
    const synced = shared.map((give, index) => ({ ...give, units: give.units - (unsynced[index] ?? 0) }))
    const others =
      idempotencyKey === undefined ? synced.filter(({ units }, index) => units !== 0 || unsynced[index] === 0) : synced
    const outcomes: GiveReply[] = local.length === 0 ? [] : [this.#local.give(local, undefined, idempotencyKey)]
    const settle = (given: boolean) => {
      shared.forEach((give, index) => {
        if (!given) this.#admitted(give, unsynced[index] ?? 0, give.bookedUs)
        else if (isLocallyDecided(give) && !give.remote) this.#local.give([give])
        this.#table.find(give)?.askAgain()
      })
    }
    try {
      if (others.length > 0) outcomes.push(await this.#store.give(others, opId, idempotencyKey))
    } catch (error) {
      settle(false)
      throw error
    }
    const given = mergeGiveResults(outcomes)
    settle(given === 'given')
    return given
  }

  /** Withdraws returned units that were not synced, so that they are not synced while the give is in flight. */
  #withhold(give: Give): number {
    const account = isLocallyDecided(give) && !give.remote ? this.#table.find(give) : undefined
    if (account === undefined || give.bookedUs <= account.syncedUs) return 0
    const unsynced = Math.max(0, Math.min(give.units, account.unsynced))
    account.unsynced -= unsynced
    return unsynced
  }

  async reset(bucket: BucketName): Promise<void> {
    this.#table.delete(bucket)
    this.#local.reset(bucket)
    if (!bucket.limit.local) await this.#store.reset(bucket)
  }

  stats(): SomeStats {
    let unsynced = 0
    for (const account of this.#table.all()) unsynced += account.unacknowledged
    return { ...this.#store.stats?.(), ...this.#local.stats(), ...this.#counts, unsynced }
  }

  /** Syncs what is left, once. */
  async close(): Promise<void> {
    this.#stopTicking?.()
    this.#stopTicking = () => {} // ticking does not restart
    const pending: Promise<unknown>[] = []
    for (const account of [...this.#table.all()]) {
      const left = () => (account.unsynced > 0 ? this.#sync(account) : account.syncing)
      pending.push(Promise.resolve(account.syncing).then(left))
      if (pending.length >= SYNCS_PER_TICK) await Promise.all(pending.splice(0))
    }
    await Promise.all(pending)
    await this.#store.close()
  }

  /** Queries the store for charges that cannot be decided here, and syncs their accounts. */
  async #query(take: Take): Promise<Taken> {
    const { charges } = take
    const asked = await this.#askAgain(take)
    if (asked !== undefined) return asked
    let own = charges.filter((charge) => isOwn(charge) && this.#hasRoom(charge))
    let aside = this.#takeHere(own)
    if (aside === undefined) {
      own = own.filter(({ limit }) => limit.local)
      aside = decidedHere(this.#local.take({ charges: own }))
    }
    const others = charges.filter((charge) => !own.includes(charge))
    if (!aside.granted) return combined(charges, own, aside, aside)
    for (const charge of others) {
      const account = this.#table.find(charge)
      if (account !== undefined && account.unsynced > 0) void this.#sync(account)
    }
    const reserved = this.#reserve(own, aside)
    const settle = (granted: boolean) => {
      for (const [account, units] of reserved) this.#release(account, units, granted)
      if (!granted) this.#putBack(own, aside)
    }
    let taken: Taken
    try {
      taken = await this.#store.take({ ...take, charges: others })
    } catch (error) {
      settle(false)
      throw error
    }
    settle(taken.granted)
    this.#booked(others, taken)
    return combined(charges, own, aside, taken)
  }

  /**
   * Syncs the models that refuse the take and may be outdated, and decides again. Undefined if none of them does, or if
   * the store has to decide. One sync per bucket serves all requests that wait.
   */
  async #askAgain(take: Take): Promise<Taken | undefined> {
    const own = take.charges.filter(isOwn)
    const outdated = this.#mayHaveEnded(own, this.#local.peek(own))
    if (outdated.length === 0) return undefined
    await this.#until(Promise.all(outdated.map((account) => this.#sync(account))), take.expiresMs)
    return this.takeSync(take)
  }

  /** Settles as `work` does, or when the caller gives up. */
  async #until(work: Promise<unknown>, expiresMs: number | undefined): Promise<void> {
    if (expiresMs === undefined) return void (await work)
    let cancel = () => {}
    const expired = new Promise<void>((resolve) => {
      cancel = this.#timers.after(Math.max(0, expiresMs - this.#timers.nowMs()), resolve)
    })
    await Promise.race([work, expired])
    cancel()
  }

  /** Accounts of the charges that refuse, unless the store was asked within REFUSAL_MS. */
  #mayHaveEnded(charges: readonly Charge[], { granted, nowUs, grants }: Taken): Account[] {
    if (granted) return []
    const nowMs = this.#timers.nowMs()
    return charges.flatMap((charge, index) => {
      if (charge.limit.local || grants[index]?.short !== 'now') return []
      const account = this.#accountOf(charge, nowUs)
      return account === undefined || nowMs - account.askedMs < REFUSAL_MS ? [] : [account]
    })
  }

  /** Whether the charge fits below the cap on unacknowledged units. */
  #hasRoom(charge: Charge): boolean {
    const terms = charge.limit.approximate
    if (terms === undefined) return true
    const account = this.#table.find(charge)
    if (account === undefined) return charge.max <= terms.unsyncedMax && !this.#table.isFull
    if (account.hasLost) account.forgetLost(this.#timers.nowMs())
    return account.unacknowledged + charge.max <= terms.unsyncedMax
  }

  /**
   * Decides by models and local buckets. Undefined when the store must decide: too much is unacknowledged, keys share a
   * model because the memory is full, or there is no account to remember when the store was asked.
   */
  #takeHere(charges: readonly Charge[]): Taken | undefined {
    const { overflowed } = this.#local.stats()
    const taken = this.#local.take({ charges })
    const shared = this.#local.stats().overflowed !== overflowed && charges.some(({ limit }) => !limit.local)
    const hasAccount = ([charge, { short }]: [Charge, Grant]) =>
      short !== 'now' || charge.limit.local || this.#accountOf(charge, taken.nowUs) !== undefined
    const isKnown = taken.granted
      ? charges.every((charge) => this.#hasRoom(charge))
      : paired(charges, taken).every(hasAccount)
    if (shared || !isKnown) {
      this.#putBack(charges, taken)
      return undefined
    }
    for (const [charge, { short }] of paired(charges, taken)) if (short === 'now') this.#refused(charge, taken.nowUs)
    return decidedHere(taken)
  }

  #putBack(charges: readonly Charge[], { nowUs, grants }: Taken): void {
    this.#local.give(charges.map((charge, index) => ({ ...charge, units: grants[index]?.units ?? 0, bookedUs: nowUs })))
  }

  #reserve(charges: readonly Charge[], aside: Taken): [Account, number][] {
    const spent = paired(charges, aside).filter(([{ limit }, { units }]) => !limit.local && units > 0)
    return spent.map(([charge, { units }]) => {
      const account = this.#table.findOrAdd(charge, aside.nowUs)
      account.reserved += units
      return [account, units]
    })
  }

  #release(account: Account, units: number, admitted: boolean): void {
    account.reserved -= units
    if (admitted) this.#admit(account, units)
    else this.#cleanUp(account)
  }

  #admitted(charge: BucketName, units: number, nowUs: number): void {
    if (!charge.limit.local && units > 0) this.#admit(this.#table.findOrAdd(charge, nowUs), units)
  }

  #admit(account: Account, units: number): void {
    account.unsynced += units
    this.#syncOrSchedule(account)
  }

  /** Syncs early once half of the allowed units are unacknowledged, so that few requests wait for the store. */
  #syncOrSchedule(account: Account): void {
    const unsyncedMax = account.limit.approximate?.unsyncedMax ?? 0
    if (account.unsynced > 0 && account.unacknowledged * 2 >= unsyncedMax) void this.#sync(account)
    else this.#schedule(account)
  }

  /** Adds units granted by the store to the model, until the next sync includes them. */
  #booked(charges: readonly Charge[], taken: Taken): void {
    for (const [charge, grant] of paired(charges, taken)) {
      if (decidedAt(taken, grant).source !== 'store') continue
      if (charge.limit.approximate !== undefined) this.#force(charge, grant.units)
    }
  }

  #refused(charge: Charge, nowUs: number): void {
    const account = charge.limit.local ? undefined : this.#accountOf(charge, nowUs)
    if (account === undefined) return
    account.refused = true
    account.refusedMs = this.#timers.nowMs()
    this.#schedule(account)
  }

  /** Undefined if there is none and no room for one. */
  #accountOf(charge: Charge, nowUs: number): Account | undefined {
    return this.#table.find(charge) ?? (this.#table.isFull ? undefined : this.#table.findOrAdd(charge, nowUs))
  }

  #schedule(account: Account): void {
    if (account.isQueued) return
    this.#stopTicking ??= this.#timers.every(TICK_MS, () => this.#tick())
    this.#table.enqueue(account, this.#timers.nowMs())
  }

  #tick(): void {
    for (const account of this.#table.takeDue(this.#timers.nowMs(), SYNCS_PER_TICK)) {
      if (account.needsSync) void this.#sync(account)
      else this.#cleanUp(account)
    }
  }

  #cleanUp(account: Account): void {
    if (this.#table.find(account) !== account) return // the bucket was reset
    account.forgetLost(this.#timers.nowMs())
    if (account.isIdle(this.#timers.nowMs())) this.#table.delete(account)
    else this.#syncOrSchedule(account)
  }

  /** One sync at a time per bucket. */
  #sync(account: Account): Promise<void> {
    account.syncing ??= this.#exchange(account).finally(() => {
      account.syncing = undefined
      this.#cleanUp(account)
    })
    return account.syncing
  }

  /** Sends the admitted units and adopts the store's reply. Lost units are not sent again. */
  async #exchange(account: Account): Promise<void> {
    const { limit, owner, detail, unsynced: units } = account
    if (!account.needsSync) return
    account.unsynced = 0
    account.sent = units
    account.syncedUs = this.#clock.nowUs()
    account.refused = false
    const sentMs = this.#timers.nowMs()
    account.askedMs = sentMs
    const cost = Math.max(1, units)
    const charge: Charge = { limit, owner, detail, min: cost, max: cost, kind: 'force' }
    const reply = units === 0 ? this.#store.peek([charge]) : this.#store.take({ charges: [charge] })
    const taken = await Promise.resolve(reply).catch(() => undefined)
    const grant = taken?.source === 'store' ? taken.grants[0] : undefined
    account.sent = 0
    if (taken === undefined || grant === undefined || grant.units < units) {
      account.lose(units, this.#timers.nowMs() + (limit.approximate?.retentionMs ?? 0))
      if (units > 0) this.#counts.syncs_lost += 1
    }
    if (taken === undefined || grant === undefined) return
    this.#counts.syncs += 1
    if (units > 0 && grant.short !== false) this.#counts.syncs_over += 1
    this.#clock.sync(taken.nowUs, sentMs)
    if (this.#table.find(account) === account) this.#adopt(account, charge, grant, taken.nowUs + grant.retryAfterUs)
  }

  /**
   * Rebuilds the model with at most as many free units as the store's bucket: the same number in use, all booked now.
   * The reply omits the size of a debt, so units are added until the model's wait is at least the store's.
   */
  #adopt(account: Account, charge: Charge, grant: Grant, untilUs: number): void {
    const { capacity, approximate } = charge.limit
    this.#local.reset(charge)
    this.#force(charge, capacity - grant.remaining)
    if (grant.short === 'now') {
      for (let debt = approximate?.unsyncedMax ?? 1; debt < STATE_MAX; debt *= 2) {
        const [model] = this.#local.peek([charge]).grants
        if (this.#clock.nowUs() + (model?.retryAfterUs ?? 0) >= untilUs) break
        this.#force(charge, debt)
      }
    }
    this.#force(charge, account.unacknowledged)
  }

  #force({ limit, owner, detail }: BucketName, units: number): void {
    if (units > 0) this.#local.take({ charges: [{ limit, owner, detail, min: units, max: units, kind: 'force' }] })
  }
}

function isShared({ limit }: BucketName): boolean {
  return !limit.local
}

function isLocallyDecided({ limit }: BucketName): boolean {
  return limit.local || limit.approximate !== undefined
}

/** Whether this node decides the charge, if its account has room. */
function isOwn({ limit, kind }: Charge): boolean {
  return limit.local || (limit.approximate !== undefined && (kind === 'enforce' || kind === 'shadow'))
}

function decidedHere({ granted, nowUs, grants }: Taken): Taken {
  return { granted, nowUs, grants, source: 'local', replayed: false }
}

/** Pairs each charge with its grant. */
function paired(charges: readonly Charge[], { grants }: Taken): [Charge, Grant][] {
  return charges.map((charge, index) => [charge, grants[index] as Grant])
}

/** The result for all charges: `own` decided here, the others by `taken` (`aside` if they were not queried). */
function combined(charges: readonly Charge[], own: readonly Charge[], aside: Taken, taken: Taken): Taken {
  if (own.length === charges.length) return aside
  if (own.length === 0) return taken
  const here = aside.grants.values()
  const there = taken === aside ? undefined : taken.grants.values()
  const grants = charges.map((charge): Grant => {
    if (!own.includes(charge)) return there?.next().value ?? NOT_CHARGED
    const grant = here.next().value as Grant // one per own charge
    return { ...grant, units: taken.granted ? grant.units : 0, bookedUs: aside.nowUs }
  })
  const { granted, nowUs, source, policyReason, replayed } = taken
  return { granted, nowUs, grants, source, policyReason, replayed }
}
