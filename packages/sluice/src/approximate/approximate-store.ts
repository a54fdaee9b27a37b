// A store around a store: rules with `consistency: approximate` or `local` are decided in this process, at once. Of an
// approximate bucket a model is kept in memory: what the store last said and what was admitted here since. The store is
// told of the latter from time to time, and asked first when too much of it is not acknowledged. A take is still all or
// nothing: what is decided here is set aside while the store is asked for the rest, and put back if it refuses.
// algorithms/approximate-terms.ts has the bound, and what it needs of this file: models err low, and nothing that is
// not acknowledged is forgotten.

import { STATE_MAX } from '../algorithms/limit.ts'
import { type Clock, systemTimers, type Timers } from '../clock.ts'
import { memoryStore } from '../store/memory.ts'
import type { SyncStore } from '../store/parted-store.ts'
import {
  type BucketName,
  type Charge,
  decidedAt,
  type Give,
  type Given,
  type Grant,
  givenOf,
  NOT_ASKED,
  type Once,
  type Returned,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'
import { takeAnew } from '../store/take-anew.ts'
import { type Account, AccountTable } from './account.ts'
import { StoreClock } from './store-clock.ts'

export type ApproximateOptions = {
  /** How many nodes share the limits of rules with `consistency: local`. */
  readonly nodes?: number
  /** Most buckets held in memory, and most of them with something to tell; beyond that the store decides. */
  readonly maxKeys?: number
  readonly accountsMax?: number
  /** The time until the store has told its own. */
  readonly clock?: Clock
  readonly timers?: Timers
}

const KEYS_MAX = 1_000_000
const ACCOUNTS_MAX = 200_000
const TICK_MS = 20
/** Syncs that begin in one tick: a tick must not hold up a check, nor flood the store. */
const SYNCS_PER_TICK = 1000

export function approximateStore(store: Store, options: ApproximateOptions = {}): Store {
  return new ApproximateStore(store, options)
}

class ApproximateStore implements Store {
  readonly #store: Store
  readonly #timers: Timers
  readonly #clock: StoreClock
  /** Models of approximate buckets, and the buckets that are local. */
  readonly #local: SyncStore
  readonly #table: AccountTable
  #stopTicking: (() => void) | undefined
  readonly #counts = { syncs: 0, syncs_over: 0, syncs_lost: 0 }

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
    if (!charges.some(isLoose)) return this.#store.takeSync?.(take)
    const own = charges.filter(isOwn)
    const aside = this.#takeHere(own)
    if (aside === undefined) return undefined
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
    if (!charges.some(isLoose) && !resets?.some(isLoose)) return this.#store.take(take)
    if (resets !== undefined) return takeAnew(this, take)
    return this.takeSync(take) ?? this.#ask(take)
  }

  async peek(charges: readonly Charge[], mayBeStale?: boolean): Promise<Taken> {
    const own = charges.filter(isOwn)
    const others = charges.filter((charge) => !isOwn(charge))
    const here = decidedHere(this.#local.peek(own))
    if (others.length === 0) return here
    const taken = await this.#store.peek(others, mayBeStale)
    const { stale } = taken
    return { ...combined(charges, own, here, taken), granted: here.granted && taken.granted, stale }
  }

  /**
   * Units that the store does not know of need not go back to it. Nothing changes here before the store has confirmed
   * the rest, so that a give which fails can be tried again.
   */
  async give(gives: readonly Give[], opId?: string, once?: Once): Promise<Given> {
    const [local, shared] = [gives.filter(isLoose).filter(({ limit }) => limit.local), gives.filter(isShared)]
    const untold = shared.map((give) => this.#withhold(give))
    const told = shared.map((give, index) => ({ ...give, units: give.units - (untold[index] ?? 0) }))
    const others = once === undefined ? told.filter(({ units }, index) => units !== 0 || untold[index] === 0) : told
    const outcomes: Returned[] = local.length === 0 ? [] : [this.#local.give(local, undefined, once)]
    const settle = (given: boolean) => {
      shared.forEach((give, index) => {
        if (!given) this.#admitted(give, untold[index] ?? 0, give.bookedUs)
        else if (isLoose(give) && !give.remote) this.#local.give([give])
      })
    }
    try {
      if (others.length > 0) outcomes.push(await this.#store.give(others, opId, once))
    } catch (error) {
      settle(false)
      throw error
    }
    const given = givenOf(outcomes)
    settle(given === 'given')
    return given
  }

  /** Of units that come back, those that the store was not told of; until it has answered, it is not told. */
  #withhold(give: Give): number {
    const account = isLoose(give) && !give.remote ? this.#table.find(give) : undefined
    if (account === undefined || give.bookedUs <= account.toldUs) return 0
    const untold = Math.max(0, Math.min(give.units, account.unsynced))
    account.unsynced -= untold
    return untold
  }

  async reset(bucket: BucketName): Promise<void> {
    this.#table.delete(bucket)
    this.#local.reset(bucket)
    if (!bucket.limit.local) await this.#store.reset(bucket)
  }

  stats(): Readonly<Record<string, number>> {
    let unsynced = 0
    for (const account of this.#table.all()) unsynced += account.unacknowledged
    return { ...this.#store.stats?.(), ...this.#local.stats(), ...this.#counts, unsynced }
  }

  /** Tells the store what is left to tell, once. */
  async close(): Promise<void> {
    this.#stopTicking?.()
    this.#stopTicking = () => {} // it does not begin again
    const pending: Promise<unknown>[] = []
    for (const account of [...this.#table.all()]) {
      const left = () => (account.unsynced > 0 ? this.#sync(account) : account.syncing)
      pending.push(Promise.resolve(account.syncing).then(left))
      if (pending.length >= SYNCS_PER_TICK) await Promise.all(pending.splice(0))
    }
    await Promise.all(pending)
    await this.#store.close()
  }

  /** Asks the store for what cannot be decided here, and with it for what is to be known of such buckets. */
  async #ask(take: Take): Promise<Taken> {
    const { charges } = take
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

  /** Whether as many units may be admitted before the store has acknowledged more. */
  #hasRoom(charge: Charge): boolean {
    const terms = charge.limit.approximate
    if (terms === undefined) return true
    const account = this.#table.find(charge)
    if (account === undefined) return charge.max <= terms.unsyncedMax && !this.#table.isFull
    if (account.hasLost) account.forgetLost(this.#timers.nowMs())
    return account.unacknowledged + charge.max <= terms.unsyncedMax
  }

  /**
   * What models and local buckets say. Undefined when they would let the request pass, but it is for the store to say:
   * too little is acknowledged, or there are so many keys that some share a model.
   */
  #takeHere(charges: readonly Charge[]): Taken | undefined {
    const { overflowed } = this.#local.stats()
    const taken = this.#local.take({ charges })
    const shared = this.#local.stats().overflowed !== overflowed && charges.some(({ limit }) => !limit.local)
    if (shared || (taken.granted && !charges.every((charge) => this.#hasRoom(charge)))) {
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
    else this.#tidy(account)
  }

  #admitted(charge: BucketName, units: number, nowUs: number): void {
    if (!charge.limit.local && units > 0) this.#admit(this.#table.findOrAdd(charge, nowUs), units)
  }

  #admit(account: Account, units: number): void {
    account.unsynced += units
    this.#attend(account)
  }

  /** At the latest when half of what may be is not acknowledged, the store is told: then few have to wait for it. */
  #attend(account: Account): void {
    const unsyncedMax = account.limit.approximate?.unsyncedMax ?? 0
    if (account.unsynced > 0 && account.unacknowledged * 2 >= unsyncedMax) void this.#sync(account)
    else this.#lookLater(account)
  }

  /** The store itself has decided; its next reply will count it, but until then the model has to. */
  #booked(charges: readonly Charge[], taken: Taken): void {
    for (const [charge, grant] of paired(charges, taken)) {
      if (decidedAt(taken, grant).source !== 'store') continue
      if (charge.limit.approximate !== undefined) this.#force(charge, grant.units)
    }
  }

  #refused(charge: Charge, nowUs: number): void {
    if (charge.limit.local || (this.#table.isFull && this.#table.find(charge) === undefined)) return
    const account = this.#table.findOrAdd(charge, nowUs)
    account.refused = true
    this.#lookLater(account)
  }

  #lookLater(account: Account): void {
    if (account.isQueued) return
    this.#stopTicking ??= this.#timers.every(TICK_MS, () => this.#tick())
    this.#table.enqueue(account, this.#timers.nowMs())
  }

  #tick(): void {
    for (const account of this.#table.takeDue(this.#timers.nowMs(), SYNCS_PER_TICK)) {
      if (account.hasNews) void this.#sync(account)
      else this.#tidy(account)
    }
  }

  #tidy(account: Account): void {
    if (this.#table.find(account) !== account) return // it was reset
    account.forgetLost(this.#timers.nowMs())
    if (account.isIdle) this.#table.delete(account)
    else this.#attend(account)
  }

  /** One at a time for each bucket. */
  #sync(account: Account): Promise<void> {
    account.syncing ??= this.#exchange(account).finally(() => {
      account.syncing = undefined
      this.#tidy(account)
    })
    return account.syncing
  }

  /** Tells what was admitted, and believes what the store says. What was lost on the way is not sent again. */
  async #exchange(account: Account): Promise<void> {
    const { limit, owner, detail, unsynced: units } = account
    if (!account.hasNews) return
    account.unsynced = 0
    account.sent = units
    account.toldUs = this.#clock.nowUs()
    account.refused = false
    const sentMs = this.#timers.nowMs()
    const cost = Math.max(1, units)
    const charge: Charge = { limit, owner, detail, min: cost, max: cost, kind: 'force' }
    const asked = units === 0 ? this.#store.peek([charge]) : this.#store.take({ charges: [charge] })
    const taken = await Promise.resolve(asked).catch(() => undefined)
    const grant = taken?.source === 'store' ? taken.grants[0] : undefined
    account.sent = 0
    if (taken === undefined || grant === undefined || grant.units < units) {
      account.lose(units, this.#timers.nowMs() + (limit.approximate?.remembersMs ?? 0))
      if (units > 0) this.#counts.syncs_lost += 1
    }
    if (taken === undefined || grant === undefined) return
    this.#counts.syncs += 1
    if (units > 0 && grant.short !== false) this.#counts.syncs_over += 1
    this.#clock.tell(taken.nowUs, sentMs)
    if (this.#table.find(account) === account) this.#believe(account, charge, grant, taken.nowUs + grant.retryAfterUs)
  }

  /**
   * A model that is at no time fuller than the store's bucket: as many units in use, all of them as of now, and as long
   * a wait where the bucket is in debt, of which the number of units is not told.
   */
  #believe(account: Account, charge: Charge, grant: Grant, untilUs: number): void {
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

function isLoose({ limit }: BucketName): boolean {
  return limit.local || limit.approximate !== undefined
}

/** Whether this node decides it, if it may. */
function isOwn({ limit, kind }: Charge): boolean {
  return limit.local || (limit.approximate !== undefined && (kind === 'enforce' || kind === 'shadow'))
}

function decidedHere({ granted, nowUs, grants }: Taken): Taken {
  return { granted, nowUs, grants, source: 'local', replayed: false }
}

/** There is a grant for each charge. */
function paired(charges: readonly Charge[], { grants }: Taken): [Charge, Grant][] {
  return charges.map((charge, index) => [charge, grants[index] as Grant])
}

/** The answer to all: `own` were decided here, the others by `taken`, which is `aside` if they were not asked for. */
function combined(charges: readonly Charge[], own: readonly Charge[], aside: Taken, taken: Taken): Taken {
  if (own.length === charges.length) return aside
  if (own.length === 0) return taken
  const here = aside.grants.values()
  const there = taken === aside ? undefined : taken.grants.values()
  const grants = charges.map((charge): Grant => {
    if (!own.includes(charge)) return there?.next().value ?? NOT_ASKED
    const grant = here.next().value as Grant // one for each of them
    return { ...grant, units: taken.granted ? grant.units : 0, bookedUs: aside.nowUs }
  })
  const { granted, nowUs, source, replayed } = taken
  return { granted, nowUs, grants, source, replayed }
}
