// Takes, returns and decisions for remote nodes. A remote node names rules and facts; bucket and limit come from the
// rules of this node. The store counts units that a remote node keeps as leased, so the limit holds even if the remote
// node crashes.

import {
  ALGORITHMS,
  andThen,
  type BucketName,
  type Charge,
  type Give,
  type GiveResult,
  hasPermits,
  inSlices,
  type Limit,
  type Limiter,
  LimiterError,
  mapped,
  type Store,
  type Taken,
} from 'sluice'
import {
  limitFingerprint,
  type WireCharge,
  type WireGrant,
  type WireReply,
  type WireRequest,
  type WireReturn,
  type WireTaken,
} from 'sluice/remote-wire'
import type { Caller } from '../../access/roles.ts'
import { subjectFromJson } from '../../checks/check-body.ts'
import type { Check } from '../../checks/check-controller.ts'
import type { Receipts } from '../../checks/receipts.ts'
import { type Lease, signLease, verifyLease } from './lease-signature.ts'

export type ExchangeDeps = {
  readonly limiter: Pick<Limiter, 'remote' | 'redeem' | 'peek'>
  /** The store below the leases of this node. */
  readonly store: Store
  readonly keys: { readonly all: readonly Buffer[] }
  readonly check: Check
  readonly receipts: Pick<Receipts, 'admitted' | 'find'>
  /** Unique ids of leases. */
  newId(): string
  /** Called with errors that are bugs. */
  onError(error: unknown): void
}

/** Charges per take, and returns per request. */
const ITEMS_MAX = 1000
/** Time for which the requests of a message may block the event loop. */
export const SLICE_MS = 5
/** Time during which a return is accepted, if the remote node names none. */
const RETURN_TTL_US = 120_000_000
const RETURN_TTL_US_MAX = 86_400_000_000

/** A charge with its bucket here. */
type Resolved = { readonly wire: WireCharge; readonly charge: Charge; readonly ttlUs: number }

export class LeaseExchange {
  readonly counts = { leases: 0, units: { leased: 0, returned: 0 } }
  readonly #deps: ExchangeDeps

  constructor(deps: ExchangeDeps) {
    this.#deps = deps
  }

  /** One reply per request, in their order. A request that fails does not affect the others. */
  async handle(requests: readonly WireRequest[], caller: Caller, expiresMs?: number): Promise<WireReply[]> {
    const start = mapped(requests, (request) => {
      const reply = this.#reply(request, caller, expiresMs)
      reply.catch(() => {}) // it is awaited after the last one has started
      return reply
    })
    return Promise.all(await inSlices(start, SLICE_MS))
  }

  async #reply(request: WireRequest, caller: Caller, expiresMs: number | undefined): Promise<WireReply> {
    try {
      switch (request.type) {
        case 'take':
          return await this.#take(request, caller, expiresMs)
        case 'peek':
          return await this.#peek(request.charges, expiresMs)
        case 'give': {
          requireFew('returns', request.returns)
          const returned = request.returns.map((one) => this.#return(one, request.op, caller))
          const all = await Promise.all(returned)
          return { type: 'given', results: all.map(({ result }) => result), leases: all.map(({ lease }) => lease) }
        }
        case 'decide':
          return await this.#decide(request, caller, expiresMs)
        case 'refund':
          return await this.#refund(request.requestId, request.units, caller)
      }
    } catch (error) {
      if (error instanceof LimiterError) {
        return { type: 'error', code: error.code, message: error.message.replace(/^\[\w+\] /, '') }
      }
      // A rejection would drop the replies of the other requests, whose units are taken.
      this.#deps.onError(error)
      return { type: 'error', code: 'STORE_UNAVAILABLE', message: 'internal error; see the log of the service' }
    }
  }

  async #take(
    { charges, op, returns }: Extract<WireRequest, { type: 'take' }>,
    caller: Caller,
    expiresMs: number | undefined,
  ): Promise<WireReply> {
    requireSome('charges', charges)
    requireFew('returns', returns)
    // Sent before the take, so that their units can be taken again. A failed return only strands units.
    const returned = returns.map((one) => this.#return(one, '', caller).catch(() => ({ lease: one.lease })))
    const resolved = this.#resolve(charges)
    const taken =
      resolved === undefined
        ? ASKS_TO_DECIDE
        : await andThen(
            this.#deps.store.take({
              charges: resolved.map(({ charge }) => charge),
              op: op === '' ? undefined : { id: opOf(op, caller) },
              expiresMs,
            }),
            (known) => this.#wireTaken(known, resolved, caller),
          )
    const leases = (await Promise.all(returned)).map(({ lease }) => lease)
    return { type: 'taken', taken: { ...taken, leases } }
  }

  async #peek(charges: readonly WireCharge[], expiresMs: number | undefined): Promise<WireReply> {
    requireSome('charges', charges)
    const resolved = this.#resolve(charges)
    if (resolved === undefined) return { type: 'taken', taken: ASKS_TO_DECIDE }
    const all = resolved.map(({ charge }) => charge)
    const peeked = await this.#deps.store.peek(all, false, expiresMs)
    return { type: 'taken', taken: this.#wireTaken(peeked, resolved, undefined) }
  }

  /** Undefined if the remote node must send the whole request with `Decide`. */
  #resolve(charges: readonly WireCharge[]): Resolved[] | undefined {
    const { remote } = this.#deps.limiter
    const all: Resolved[] = []
    for (const wire of charges) {
      const bucket = remote.bucket(wire.name, wire.facts)
      const storeBucket = bucket && inStore(bucket)
      if (bucket === undefined || storeBucket === undefined) return undefined
      const fingerprint = limitFingerprint(storeBucket.limit)
      if (wire.fingerprint !== '' && wire.fingerprint !== fingerprint) return undefined
      const { min, kind } = wire
      if (min < 1 || wire.max < min) throw invalid('charge', 'min and max must be whole numbers, 1 ≤ min ≤ max')
      // A remote node leases no more than a node of the service would.
      const { lease } = bucket.limit
      if (kind === 'hold' && lease === undefined) return undefined // it may not be kept
      const extra = lease?.hotUnitsMax ?? 0
      const max = Math.min(wire.max, kind === 'hold' ? Math.max(min, extra) : min + extra)
      all.push({ wire: { ...wire, fingerprint }, charge: { ...storeBucket, min, max, kind }, ttlUs: lease?.ttlUs ?? 0 })
    }
    return all
  }

  #wireTaken(taken: Taken, resolved: readonly Resolved[], caller: Caller | undefined): WireTaken {
    const { granted, nowUs, source, policyReason, replayed, stale = false } = taken
    const grants = resolved.map(({ wire, charge, ttlUs }, index): WireGrant => {
      const grant = taken.grants[index] ?? NO_GRANT // one per charge
      const at = grant.at ?? taken
      const { units, short, remaining, resetAfterUs, retryAfterUs, delayUs } = grant
      const lease =
        caller === undefined || at.source !== 'store' ? '' : this.#issue(wire, charge, units, at.nowUs, caller)
      const leaseMs = lease === '' ? 0 : leaseMsOf(charge.limit, ttlUs, at.nowUs)
      const times = { resetAfterUs, retryAfterUs, delayUs }
      return { units, short, remaining, ...times, lease, nowUs: at.nowUs, source: at.source, leaseMs }
    })
    return { granted, nowUs, source, policyReason, replayed, stale, grants, asksToDecide: false, leases: [] }
  }

  #issue(wire: WireCharge, charge: Charge, units: number, bookedUs: number, caller: Caller): string {
    if (units === 0) return ''
    const { name, facts, fingerprint } = wire
    const onLease = charge.kind === 'hold' ? units : units - Math.min(units, charge.min)
    this.counts.leases += 1
    this.counts.units.leased += onLease
    const lease = { returns: 0, caller: caller.id, name, facts, fingerprint, units, onLease, bookedUs }
    return signLease({ ...lease, id: this.#deps.newId() }, this.#deps.keys)
  }

  async #return(sent: WireReturn, op: string, caller: Caller): Promise<{ result: GiveResult; lease: string }> {
    const { keys, limiter, store } = this.#deps
    const lease = verifyLease(sent.lease, keys)
    if (lease === undefined) return { result: 'expired', lease: '' }
    if (lease.caller !== caller.id) throw invalid('lease', 'it was issued to another token')
    const bucket = limiter.remote.bucket(lease.name, lease.facts)
    const storeBucket = bucket && inStore(bucket)
    // Units of an edited limit cannot be told apart from those of the new one.
    if (storeBucket === undefined || limitFingerprint(storeBucket.limit) !== lease.fingerprint) {
      return { result: 'expired', lease: '' }
    }
    const units = Math.min(sent.units, lease.units)
    const settled = Math.min(sent.settled, lease.onLease)
    const give: Give = { ...storeBucket, units, settled, bookedUs: this.#bookedUs(sent, lease, settled), remote: true }
    const ttlUs = Math.min(sent.ttlUs === 0 ? RETURN_TTL_US : sent.ttlUs, RETURN_TTL_US_MAX)
    const opId = op === '' || !hasPermits(storeBucket.limit) ? undefined : opOf(op, caller)
    const result = (await store.give([give], opId, { id: `${lease.id}.${lease.returns}`, ttlUs })) ?? 'given'
    if (result === 'repeated') return { result, lease: '' }
    if (result === 'expired') return { result, lease: sent.lease }
    this.counts.units.returned += units
    return { result, lease: this.#rest(lease, units, settled) }
  }

  #rest(lease: Lease, units: number, settled: number): string {
    if (lease.units === units) return ''
    const left = { units: lease.units - units, onLease: lease.onLease - settled, returns: lease.returns + 1 }
    return signLease({ ...lease, ...left }, this.#deps.keys)
  }

  /** A refund of spent units counts their age from when they were spent: after the booking, and not in the future. */
  #bookedUs({ spentUs }: WireReturn, { bookedUs }: Lease, settled: number): number {
    if (settled > 0 || spentUs <= bookedUs) return bookedUs
    return Math.min(spentUs, Math.max(bookedUs, this.#deps.store.lastUs?.() ?? spentUs))
  }

  async #decide(
    { subject: text, requestId, dryRun }: Extract<WireRequest, { type: 'decide' }>,
    caller: Caller,
    expiresMs: number | undefined,
  ): Promise<WireReply> {
    const { check, limiter, receipts } = this.#deps
    const subject = subjectFromJson(text)
    if (dryRun) {
      const peeked = await limiter.peek(subject, expiresMs)
      return { type: 'decided', decision: JSON.stringify(peeked), requestId: peeked.requestId }
    }
    const chosenId = requestId === '' ? undefined : requestId
    const opId = chosenId === undefined ? undefined : opOf(chosenId, caller)
    const decision = await check(subject, opId, undefined, undefined, expiresMs)
    const id = decision.allowed
      ? await receipts.admitted(decision, chosenId, caller, undefined)
      : (chosenId ?? decision.requestId)
    return { type: 'decided', decision: JSON.stringify(decision), requestId: id }
  }

  async #refund(requestId: string, units: number | undefined, caller: Caller): Promise<WireReply> {
    const found = await this.#deps.receipts.find(requestId, caller)
    if (typeof found === 'string') throw invalid('request_id', `no refund: ${found}`)
    const { outcome } = await this.#deps.limiter.redeem(found.receipt, units)
    return { type: 'given', results: [outcome === 'outdated' ? 'expired' : outcome], leases: [''] }
  }
}

const NO_GRANT = {
  units: 0,
  short: false,
  remaining: 0,
  resetAfterUs: 0,
  retryAfterUs: 0,
  delayUs: 0,
  at: undefined,
} as const

const ASKS_TO_DECIDE: WireTaken = {
  granted: false,
  nowUs: 0,
  source: 'local',
  replayed: false,
  stale: false,
  grants: [],
  asksToDecide: true,
  leases: [],
}

/** The bucket as the store counts it; undefined if it does not count it under this name. */
function inStore({ limit, owner, detail }: BucketName): BucketName | undefined {
  const { local, approximate, shards, spread } = limit
  if (local || approximate !== undefined || shards !== undefined || spread !== undefined) return undefined
  return { limit: storeLimit(limit), owner, detail }
}

/** Leased limits have a margin in the store. */
function storeLimit(limit: Limit): Limit {
  return limit.lease === undefined ? limit : limit.lease.storeLimit
}

/** Units of a window must be spent in it. */
function leaseMsOf({ algorithm, windowUs }: Limit, ttlUs: number, nowUs: number): number {
  const leftUs = ALGORITHMS[algorithm].lease === 'window' ? windowUs - (nowUs % windowUs) : Number.POSITIVE_INFINITY
  return Math.floor(Math.min(ttlUs, leftUs) / 1000)
}

/** Permits are named by remote nodes; a name of one token must not release a permit of another. */
function opOf(op: string, { id }: Caller): string {
  return `remote ${id} ${op}`
}

/** A store expects a charge: without one, its failure would count as its own. */
function requireSome(field: string, items: readonly unknown[]): void {
  if (items.length === 0) throw invalid(field, 'send at least one')
  requireFew(field, items)
}

function requireFew(field: string, items: readonly unknown[]): void {
  if (items.length > ITEMS_MAX) throw invalid(field, `send at most ${ITEMS_MAX} in one request`)
}

function invalid(field: string, fix: string): LimiterError {
  return new LimiterError('OPTION_INVALID', `${field}: ${fix}`)
}
