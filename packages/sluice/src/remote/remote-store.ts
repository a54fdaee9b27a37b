// Store of a remote node: buckets are at the service, over any transport. A node sends rule ids, limit names and the
// facts of keys; the service finds bucket and limit in its own rules. Units go back with the lease that the service
// issued for them. Nothing is sent twice, except returns with an idempotency key. Requests of one turn share a message.

import type { Limit } from '../algorithms/limit.ts'
import { systemTimers, type Timers } from '../clock.ts'
import { LimiterError, optionInvalid } from '../errors.ts'
import { PROBE } from '../failure/guard-store.ts'
import { keyFacts, type ScopedName } from '../rules/limit-names.ts'
import type { SomeStats } from '../store/stats.ts'
import {
  type BucketName,
  type Charge,
  type Give,
  type GiveReply,
  type GiveResult,
  type Grant,
  type IdempotencyKey,
  mergeGiveResults,
  requireOp,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'
import { checkBucket, checkCharges, checkGives, checkTake } from '../store/validate-request.ts'
import { type HeldLease, HeldLeases, type PlannedReturn } from './held-leases.ts'
import { limitFingerprint } from './limit-fingerprint.ts'
import { decodeReplies, type WireGrant, type WireReply, type WireTaken } from './replies.ts'
import {
  encodeRequests,
  WIRE_KINDS,
  type WireCharge,
  type WireKind,
  type WireRequest,
  type WireReturn,
} from './requests.ts'

/** Sends one message and returns the reply. Rejects with a LimiterError. */
export type Exchange = (message: Uint8Array) => Promise<Uint8Array>

export type RemoteStoreOptions = {
  readonly exchange: Exchange
  /** Name of a limit by its id; undefined if the rules that this node follows have no such limit. */
  nameOf(limitId: string): ScopedName | undefined
  readonly timers?: Timers
}

/** Requests per message, and messages without a reply. Under load, requests wait and share larger messages. */
const REQUESTS_MAX = 500
const MESSAGES_MAX = 8
/** Cap on queued requests; beyond it, a request fails with STORE_UNAVAILABLE. */
const WAITING_MAX = 20_000
/** Leases that can be returned; about 600 bytes each. */
const LEASES_MAX = 100_000
/** Unconfirmed returns with an idempotency key that can be repeated. */
const KEYED_MAX = 10_000

type Waiting = {
  readonly request: WireRequest
  readonly onSent: (() => void) | undefined
  resolve(reply: WireReply): void
  reject(error: unknown): void
}

export class RemoteStore implements Store {
  readonly #options: RemoteStoreOptions
  readonly #timers: Timers
  readonly #held = new HeldLeases(LEASES_MAX)
  readonly #keyed = new Map<string, PlannedReturn>()
  readonly #queue: Waiting[] = []
  #inFlight = 0
  #dropped = 0
  #lastUs = 0

  constructor(options: RemoteStoreOptions) {
    this.#options = options
    this.#timers = options.timers ?? systemTimers
  }

  async take(take: Take): Promise<Taken> {
    checkTake(take)
    if (take.resets !== undefined) throw noReset()
    requireOp(take)
    if (take.charges[0]?.limit.id === PROBE.limit.id) return this.#probe(take)
    const charges = this.#wireCharges(take.charges)
    if (charges === undefined) return undecided(take.charges.length)
    const { planned, later } = this.#planTogether(take.gives ?? [])
    const returns = planned.map((one) => one.sent)
    const sent = this.send({ type: 'take', charges, op: take.op?.id ?? '', returns }, take.onSent)
    for (const { held } of planned) held.returning = sent
    for (const give of later) this.#return(give, '', undefined).catch(() => {}) // errs low
    try {
      const reply = await sent
      if (reply.type !== 'taken') throw unexpected(reply)
      const { taken } = reply
      for (const [index, one] of planned.entries()) replaced(one, taken.leases[index] ?? '')
      return this.#taken(taken, take.charges, true)
    } finally {
      for (const { held } of planned) if (held.returning === sent) held.returning = undefined
    }
  }

  /** A guard whose circuit breaker is open asks whether the service replies. */
  async #probe({ charges }: Take): Promise<Taken> {
    await this.send({ type: 'peek', charges: [] })
    return undecided(charges.length)
  }

  async peek(charges: readonly Charge[]): Promise<Taken> {
    checkCharges(charges)
    const named = this.#wireCharges(charges)
    if (named === undefined) return undecided(charges.length)
    const reply = await this.send({ type: 'peek', charges: named })
    if (reply.type !== 'taken') throw unexpected(reply)
    return this.#taken(reply.taken, charges, false)
  }

  /** Gives that no lease of this node names are dropped: the service would not accept them. Errs low. */
  async give(gives: readonly Give[], opId?: string, idempotencyKey?: IdempotencyKey): Promise<GiveReply> {
    checkGives(gives, opId)
    if (gives.some(({ units }) => units < 0)) throw optionInvalid('units', '< 0', 'a remote node cannot add debt')
    return mergeGiveResults(await Promise.all(gives.map((give) => this.#return(give, opId ?? '', idempotencyKey))))
  }

  async reset(bucket: BucketName): Promise<void> {
    checkBucket(bucket)
    throw noReset()
  }

  stats(): SomeStats {
    return { dropped: this.#dropped }
  }

  lastUs(): number {
    return this.#lastUs
  }

  async close(): Promise<void> {
    this.#flush()
  }

  /** Sends a request with all others of this turn. An error reply rejects. */
  send(request: WireRequest, onSent?: () => void): Promise<WireReply> {
    if (this.#queue.length >= WAITING_MAX) {
      this.#dropped += 1
      return Promise.reject(new LimiterError('STORE_UNAVAILABLE', `${WAITING_MAX} requests wait for the service`))
    }
    return new Promise((resolve, reject) => {
      if (this.#queue.length === 0) this.#timers.soon(() => this.#flush())
      this.#queue.push({ request, onSent, resolve, reject })
    })
  }

  #flush(): void {
    while (this.#queue.length > 0 && this.#inFlight < MESSAGES_MAX) {
      const waiting = this.#queue.splice(0, REQUESTS_MAX)
      for (const { onSent } of waiting) onSent?.()
      this.#inFlight += 1
      void this.#exchange(waiting).then(() => {
        this.#inFlight -= 1
        this.#flush()
      })
    }
  }

  async #exchange(waiting: readonly Waiting[]): Promise<void> {
    try {
      const replies = decodeReplies(await this.#options.exchange(encodeRequests(waiting.map(({ request }) => request))))
      waiting.forEach(({ resolve, reject }, index) => {
        const reply = replies[index]
        if (reply === undefined) reject(new LimiterError('STORE_UNAVAILABLE', 'the service sent too few replies'))
        else if (reply.type === 'error') reject(new LimiterError(reply.code, reply.message))
        else resolve(reply)
      })
    } catch (error) {
      const cause = error instanceof LimiterError ? error : new LimiterError('STORE_UNAVAILABLE', String(error))
      for (const { reject } of waiting) reject(cause)
    }
  }

  /** Undefined if the service has to decide: a limit is unknown, or not counted in the buckets of its store. */
  #wireCharges(charges: readonly Charge[]): WireCharge[] | undefined {
    const all: WireCharge[] = []
    for (const { limit, owner, detail, min, max, kind, pair } of charges) {
      const name = this.#options.nameOf(limit.id)
      if (name === undefined || pair !== undefined || !isWireKind(kind) || isCountedElsewhere(limit)) return undefined
      const facts = keyFacts(name, owner, detail)
      all.push({ name, facts, fingerprint: limitFingerprint(limit), min, max, kind })
    }
    return all
  }

  #taken(wire: WireTaken, charges: readonly Charge[], isTake: boolean): Taken {
    const { granted, nowUs, source, policyReason, replayed, stale, asksToDecide } = wire
    if (asksToDecide || wire.grants.length !== charges.length) return undecided(charges.length)
    this.#lastUs = Math.max(this.#lastUs, nowUs)
    const grants = wire.grants.map((grant, index): Grant => {
      const charge = charges[index] as Charge // one grant per charge
      if (isTake && grant.lease !== '') this.#hold(charge, grant)
      const { units, short, remaining, resetAfterUs, retryAfterUs, delayUs } = grant
      const isSame = grant.nowUs === nowUs && grant.source === source
      const at = isSame ? undefined : { nowUs: grant.nowUs, source: grant.source }
      return { units, short, remaining, resetAfterUs, retryAfterUs, delayUs, at }
    })
    return { granted, nowUs, grants, source, policyReason, replayed, ...(stale ? { stale } : {}) }
  }

  #hold(charge: Charge, { lease, units, nowUs }: WireGrant): void {
    const onLease = charge.kind === 'hold' ? units : units - Math.min(units, charge.min)
    this.#held.add(charge, nowUs, lease, units, onLease)
  }

  /** Returns that can be sent with a take, and gives whose lease has a return on its way: they follow separately. */
  #planTogether(gives: readonly Give[]): { planned: PlannedReturn[]; later: Give[] } {
    const planned: PlannedReturn[] = []
    const later: Give[] = []
    for (const give of gives) {
      const held = this.#find(give)
      if (held === undefined) continue
      if (held.returning !== undefined || planned.some((one) => one.held === held)) later.push(give)
      else planned.push({ held, sent: wireReturn(give, held) })
    }
    return { planned, later }
  }

  #find(give: Give): HeldLease | undefined {
    return this.#held.find(give, give.leasedUs ?? give.bookedUs, give.units, give.settled ?? 0)
  }

  async #return(give: Give, op: string, key: IdempotencyKey | undefined): Promise<GiveResult> {
    const keyId = key && `${key.id} ${give.limit.id} ${give.owner.length} ${give.owner} ${give.detail} ${give.bookedUs}`
    let planned = keyId === undefined ? undefined : this.#keyed.get(keyId)
    if (planned === undefined) {
      let held = this.#find(give)
      while (held?.returning !== undefined) {
        await held.returning.catch(() => {}) // the sender gets the error
        held = this.#find(give)
      }
      if (held === undefined) return 'given'
      planned = { held, sent: wireReturn(give, held) }
      if (keyId !== undefined) this.#remember(keyId, planned)
    }
    const { held, sent } = planned
    const request = this.send({ type: 'give', returns: [{ ...sent, ttlUs: key?.ttlUs ?? 0 }], op })
    held.returning ??= request
    try {
      const reply = await request
      if (reply.type !== 'given') throw unexpected(reply)
      const [result = 'expired'] = reply.results
      if (result !== 'repeated') replaced(planned, reply.leases[0] ?? '', result === 'given')
      return result
    } finally {
      if (held.returning === request) held.returning = undefined
    }
  }

  #remember(keyId: string, planned: PlannedReturn): void {
    this.#keyed.set(keyId, planned)
    if (this.#keyed.size <= KEYED_MAX) return
    const [oldest] = this.#keyed.keys()
    if (oldest !== undefined) this.#keyed.delete(oldest)
  }
}

/** Marks outcomes that the service has to decide (`isUndecided` in remote-limiter.ts). */
const UNDECIDED: Grant = {
  units: 0,
  short: 'stale_rules',
  remaining: 0,
  resetAfterUs: 0,
  retryAfterUs: 0,
  delayUs: 0,
}

/** Result of a take that the service has to decide as a whole. Not from the store, so that leases do not record it. */
function undecided(charges: number): Taken {
  const grants = Array.from({ length: charges }, () => UNDECIDED)
  return { granted: false, nowUs: 0, grants, source: 'local', replayed: false }
}

function wireReturn({ units, settled = 0, bookedUs, leasedUs }: Give, held: HeldLease): WireReturn {
  return {
    lease: held.lease,
    units: Math.min(units, held.units),
    settled: Math.min(settled, held.onLease),
    spentUs: leasedUs === undefined || leasedUs === bookedUs ? 0 : bookedUs,
    ttlUs: 0,
  }
}

/** The reply to a return: the lease that replaces the returned one. */
function replaced({ held, sent }: PlannedReturn, lease: string, isGiven = true): void {
  if (held.lease !== sent.lease) return
  held.lease = lease
  if (!isGiven) return
  held.units -= sent.units
  held.onLease -= sent.settled
}

function isWireKind(kind: Charge['kind']): kind is WireKind {
  return WIRE_KINDS.some((one) => one === kind)
}

/** Node shares, models and sublimits exist at the service only. */
function isCountedElsewhere({ local, approximate, shards, shard, spread }: Limit): boolean {
  return local || approximate !== undefined || shards !== undefined || shard !== undefined || spread !== undefined
}

function noReset(): LimiterError {
  return optionInvalid('reset', undefined, 'reset buckets through the service: a remote node cannot')
}

function unexpected({ type }: WireReply): LimiterError {
  return new LimiterError('STORE_UNAVAILABLE', `the service sent an unexpected reply: ${type}`)
}
