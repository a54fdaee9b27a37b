// Wire format of apply.lua, specified in its header: encodes requests as one JSON argument, decodes replies from a flat
// list of integers. Redis returns the state of a bucket; remaining units and waits are computed here from it.

import type { Algorithm, PackedState } from '../algorithms/algorithm.ts'
import { type Limit, windowIndex } from '../algorithms/limit.ts'
import { isPacked, PACKED, type PackedLimit } from '../algorithms/registry.ts'
import { ALGORITHMS } from '../algorithms/traits.ts'
import { LimiterError } from '../errors.ts'
import { buildGrant, retryAfterUs, SoleTaken, shortOf } from '../store/grant.ts'
import {
  type BucketName,
  type Charge,
  type Give,
  type GiveResult,
  type Grant,
  type IdempotencyKey,
  type Short,
  type Taken,
  untilUs,
} from '../store/store.ts'
import { type KeyNames, sharesValue } from './key.ts'
import {
  type Form,
  formOf,
  hasPlainName,
  type Reply,
  type Request,
  repeats,
  type ShortForm,
  type TakeRequest,
} from './request.ts'

const VERBS = { take: 0, peek: 1, give: 2, reset: 3 } as const
const TAKE_PLAIN = 4
const TAKE_REPEATING = 5
const TAKE_LEASED = 6
const GIVE_PLAIN = 7
const GIVE_ONCE = 8
const TAKE_PAIRED = 9
/** Result of a give with an idempotency key, by status. */
const ONCE: Readonly<Record<number, GiveResult>> = { 1: 'given', 2: 'repeated', 3: 'expired' }
/** Buckets of one owner in one value; equals BUCKETS_MAX of lua/include/values.lua. */
const BUCKETS_MAX = 1024
export const KINDS = { enforce: 0, shadow: 1, force: 2, hold: 3, counterfactual: 4 } as const
/** Kind, pair and seed of a charge share one number: see the header of apply.lua. */
const KINDS_MAX = 8
const PAIRS_MAX = 65_536
const SHORTS: readonly Short[] = [false, 'now', 'never', 'stale_rules']

/** Cost of a request to Redis. Each further bucket adds about a quarter of a request. */
export function weightOf(request: Request): number {
  return 0.75 + (itemCount(request) + resetsBefore(request).length) / 4
}

/** A bucket that the request touches. In a Cluster, all of them are in one slot. */
export function firstBucket(request: Request): BucketName {
  if (request.verb === 'reset') return request.bucket
  const [first] = request.verb === 'give' ? request.gives : request.charges
  return first as BucketName // requests are never empty
}

/** Number of charges or gives of a request. */
function itemCount(request: Request): number {
  if (request.verb === 'reset') return 1
  return request.verb === 'give' ? request.gives.length : request.charges.length
}

/** Run of plain takes with one set and one cost, on consecutive keys: run-length encoded. */
type PlainRun = {
  readonly key: number
  readonly set: number
  readonly cost: number
  count: number
  /** Length of #numbers after the run. */
  readonly end: number
}

export class BatchEncoder {
  readonly keys: string[] = []
  readonly #names: KeyNames
  readonly #keyIndex = new Map<string, number>()
  readonly #limits: unknown[] = []
  readonly #limitIndex = new Map<Limit, number>()
  /** The same by identity: limits that were compiled apart may name one bucket. */
  readonly #identityIndex = new Map<string, number>()
  readonly #sets: number[][] = []
  /** Sets encoded so far, by their first limit. */
  readonly #knownSets = new Map<Limit, { readonly charges: readonly BucketName[]; readonly index: number }[]>()
  readonly #texts: string[] = []
  readonly #textIndex = new Map<string, number>()
  readonly #numbers: number[] = []
  #run: PlainRun | undefined

  constructor(names: KeyNames) {
    this.#names = names
  }

  /** Appends the request as flat numbers: creating a table per request would dominate the script's run time. */
  add(request: Request, form: Form = formOf(request)): void {
    for (const bucket of resetsBefore(request)) this.add({ verb: 'reset', bucket })
    if (form !== 'general') {
      this.#addShort(form, request as TakeRequest) // only takes have a short form
      return
    }
    if (request.verb === 'give' && request.idempotencyKey !== undefined) {
      this.#addGiveOnce(request.gives, request.opId, request.idempotencyKey)
      return
    }
    if (request.verb === 'give' && request.opId === undefined) {
      for (const give of request.gives) this.#addGive(give)
      return
    }
    const before = givesBefore(request)
    if (before !== undefined) this.add(before)
    const opId = request.verb === 'reset' ? undefined : request.opId
    const verb = request.verb === 'take' ? takeVerb(request.charges) : VERBS[request.verb]
    this.#numbers.push(verb, this.#text(opId ?? ''), itemCount(request))
    if (request.verb === 'reset') this.#addItem(request.bucket, 0, 0, 0)
    else if (request.verb === 'give')
      for (const give of request.gives) this.#addItem(give, give.units, give.bookedUs, settledOf(give))
    else for (const charge of request.charges) this.#addItem(charge, charge.min, charge.max, this.#kind(charge))
  }

  #addShort(form: ShortForm, { charges, gives = [] }: TakeRequest): void {
    const { limit, owner, detail, min } = charges[0] as Charge // a short form has a charge
    const [key, set] = [this.#key(limit, owner, detail), this.#set(charges, limit)]
    if (form === 'plain') {
      this.#addPlain(key, set, min)
      return
    }
    this.#numbers.push(TAKE_LEASED, key, set, min)
    for (const { limit, max, kind } of charges) {
      const own = gives.filter((give) => give.limit === limit)
      this.#numbers.push(max, KINDS[kind], own.length)
      for (const { units, bookedUs, settled } of own) this.#numbers.push(units, bookedUs, settled ?? 0)
    }
  }

  /** Most takes of a batch have a key of their own, so consecutive keys are run-length encoded. */
  #addPlain(key: number, set: number, cost: number): void {
    const run = this.#run
    const follows = run?.end === this.#numbers.length && run.key + run.count === key
    if (follows && run.set === set && run.cost === cost) {
      run.count += 1
      this.#numbers[run.end - 1] = run.count
      return
    }
    const end = this.#numbers.push(TAKE_PLAIN, key, set, cost, 1)
    this.#run = { key, set, cost, count: 1, end }
  }

  /** Gives are independent of each other, so each is a request of its own. */
  #addGive(give: Give): void {
    const { limit, owner, detail, units, bookedUs } = give
    if (isPacked(limit) && hasPlainName(give) && units >= 0) {
      this.#numbers.push(
        GIVE_PLAIN,
        this.#key(limit, owner, detail),
        this.#set([give], limit),
        units,
        bookedUs,
        settledOf(give),
      )
      return
    }
    this.#numbers.push(VERBS.give, 0, 1)
    this.#addItem(give, units, bookedUs, settledOf(give))
  }

  #addGiveOnce(gives: readonly Give[], opId: string | undefined, idempotencyKey: IdempotencyKey): void {
    const name = this.#names.idempotencyKeyName(gives[0] as Give, idempotencyKey.id) // gives are never empty
    const record = indexIn(this.#keyIndex, name, () => this.keys.push(name))
    this.#numbers.push(GIVE_ONCE, this.#text(opId ?? ''), gives.length, record, untilUs(gives, idempotencyKey))
    for (const give of gives) this.#addItem(give, give.units, give.bookedUs, settledOf(give))
  }

  json(): string {
    return JSON.stringify([this.#limits, this.#sets, this.#texts, this.#numbers])
  }

  #addItem({ limit, owner, detail }: BucketName, fourth: number, fifth: number, sixth: number): void {
    const text = detail !== '' && sharesValue(limit) ? this.#text(detail) : 0
    this.#numbers.push(this.#key(limit, owner, detail), this.#limit(limit), text, fourth, fifth, sixth)
  }

  #kind({ limit, owner, detail, kind, pair = 0 }: Charge): number {
    const isSeeded = kind === 'counterfactual' && limit.seed !== undefined
    const seed = isSeeded ? this.#key(limit.seed, owner, detail) : 0
    return KINDS[kind] + KINDS_MAX * (pair + PAIRS_MAX * seed)
  }

  #key(limit: Limit, owner: string, detail: string): number {
    const name = this.#names.keyOf(limit, owner, detail)
    return indexIn(this.#keyIndex, name, () => this.keys.push(name))
  }

  #limit(given: Limit): number {
    const limit = storeLimitOf(given)
    return indexIn(this.#limitIndex, limit, () => {
      const shape = shapeOf(limit)
      const numbers = [...numbersOf(limit), limit.id, shape, limit.holdTicks]
      return indexIn(this.#identityIndex, `${shape} ${limit.id}`, () => this.#limits.push(numbers))
    })
  }

  /** Requests with the same limits share one set. */
  #set(charges: readonly BucketName[], first: Limit): number {
    const known = this.#knownSets.get(first) ?? []
    const same = known.find((set) => haveSameLimits(set.charges, charges))
    if (same !== undefined) return same.index
    const index = this.#sets.push(charges.map(({ limit }) => this.#limit(limit)))
    this.#knownSets.set(first, [...known, { charges, index }])
    return index
  }

  /** Equal strings share one index: the script compares indexes to find repeated buckets. */
  #text(text: string): number {
    return text === '' ? 0 : indexIn(this.#textIndex, text, () => this.#texts.push(this.#names.textInValue(text)))
  }
}

/** All nodes charge the store limit of a leased rule; otherwise Redis would lose track of units on lease. */
export function storeLimitOf(limit: Limit): Limit {
  return limit.lease?.storeLimit ?? limit
}

const NO_RESETS: readonly BucketName[] = []

/** Resets of a take are encoded as requests before it; the batch is atomic. */
function resetsBefore(request: Request): readonly BucketName[] {
  return request.verb === 'take' ? (request.resets ?? NO_RESETS) : NO_RESETS
}

/** Gives of a take are encoded as a request before it, unless the take has a short form. */
function givesBefore(request: Request): Request | undefined {
  if (request.verb !== 'take' || request.gives === undefined || request.gives.length === 0) return undefined
  return { verb: 'give', gives: request.gives, opId: undefined }
}

/** Only a take with pairs loads counterfactual buckets, and only one that may repeat a bucket looks for repetitions. */
function takeVerb(charges: readonly Charge[]): number {
  if (charges.some(({ kind }) => kind === 'counterfactual')) return TAKE_PAIRED
  return repeats(charges) ? TAKE_REPEATING : VERBS.take
}

/** Units no longer on lease; for a log, 1 if the units may be booked later than `bookedUs`. */
export function settledOf({ limit, settled = 0 }: Give): number {
  if (ALGORITHMS[limit.algorithm].storage !== 'log') return settled
  return limit.approximate === undefined ? 0 : 1
}

function haveSameLimits(some: readonly BucketName[], others: readonly BucketName[]): boolean {
  return some.length === others.length && some.every(({ limit }, index) => limit === others[index]?.limit)
}

function indexIn<K>(indexes: Map<K, number>, item: K, push: () => number): number {
  const known = indexes.get(item)
  if (known !== undefined) return known
  const index = push()
  indexes.set(item, index)
  return index
}

/** Identifies the numbers of a limit within a value. */
export function shapeOf(limit: Limit): string {
  const shaped = limit.holdTicks === 0 ? numbersOf(limit) : [...numbersOf(limit), limit.holdTicks]
  return shaped.map((number) => number.toString(36)).join(':')
}

function numbersOf(limit: Limit): number[] {
  const { burst, code } = ALGORITHMS[limit.algorithm]
  const a = burst ? limit.subunitsPerUnit : isPacked(limit) ? limit.windowTicks : limit.windowUs
  return [limit.generation, code, limit.capacity, limit.tickUs, a, burst ? limit.subunitsPerTick : 0]
}

/** Decodes the replies of a batch, in the order of its requests. */
export class ReplyDecoder {
  readonly #numbers: readonly number[]
  readonly #nowUs: number
  #at = 1

  /** Store time of the batch. */
  get nowUs(): number {
    return this.#nowUs
  }

  constructor(reply: unknown) {
    if (!Array.isArray(reply))
      throw new LimiterError('STORE_UNAVAILABLE', `unexpected reply from Redis: ${typeof reply}`)
    this.#numbers = reply
    this.#nowUs = Number(reply[0])
  }

  /** The reply to a request, or an error of this request only. */
  next(request: Request, form: Form, keys: () => string): Reply | LimiterError {
    for (const _ of resetsBefore(request)) this.#number() // a reset always succeeds
    if (form !== 'general') {
      const first = this.#number()
      if (first >= 0) return this.#short(form, (request as TakeRequest).charges, first) // only takes have a short form
    }
    // Gives of a take have a status of their own. Failed ones are dropped.
    if (form === 'leased') this.#number()
    else if (request.verb === 'take') for (const _ of request.gives ?? []) this.#number()
    const idempotencyKey = request.verb === 'give' ? request.idempotencyKey : undefined
    const separate = request.verb === 'give' && request.opId === undefined && idempotencyKey === undefined
    const statuses = separate ? request.gives.map(() => this.#number()) : []
    const status = statuses.length > 0 ? Math.min(...statuses) : this.#number()
    if (status === -1) return new LimiterError('STORE_CORRUPT', `the value of ${keys()} cannot be read`)
    if (status === -2) return new LimiterError('STORE_CROWDED', `${keys()} holds ${BUCKETS_MAX} buckets already`)
    if (idempotencyKey !== undefined) return ONCE[status]
    if (request.verb === 'give' || request.verb === 'reset') return undefined
    const replayed = this.#number() === 1
    const { charges, opId } = request
    const grants = charges.map((charge) => this.#grant(charge, opId))
    return { granted: status === 1, nowUs: this.#nowUs, grants, source: 'store', replayed }
  }

  /** `first`: x of the first bucket of a plain take, or the status of a lease take. */
  #short(form: ShortForm, charges: readonly Charge[], first: number): Taken {
    if (form === 'plain' && charges.length === 1) return this.#singleGrant(charges[0] as Charge, first)
    const granted = form === 'plain' || first === 1
    const grants = charges.map((charge, index) => {
      const limit = charge.limit as PackedLimit // short forms are for packed limits
      if (form === 'leased') return this.#leased(charge, limit)
      return this.#packed(charge, limit, false, charge.min, index === 0 ? first : this.#number(), 0)
    })
    return { granted, nowUs: this.#nowUs, grants, source: 'store', replayed: false }
  }

  /** The most frequent reply: one granted charge of a plain take. */
  #singleGrant(charge: Charge, x: number): Taken {
    const limit = charge.limit as PackedLimit // short forms are for packed limits
    const nowUs = this.#nowUs
    const state = stateNow(limit, nowUs, x, 0)
    const algorithm = PACKED[limit.algorithm]
    const used = algorithm.used(limit, state, nowUs)
    return new SoleTaken({
      granted: true,
      nowUs,
      units: charge.min,
      short: false,
      remaining: Math.max(0, limit.capacity - used),
      resetAfterUs: algorithm.resetUs(limit, state, nowUs),
      retryAfterUs: retryAfterUs(algorithm, charge, state, nowUs, used, false, undefined),
      delayUs: delayBefore(limit, state, charge.min),
      source: 'store',
    })
  }

  #leased(charge: Charge, limit: PackedLimit): Grant {
    const [units, x, y] = [this.#number(), this.#number(), this.#number()]
    const used = PACKED[limit.algorithm].used(limit, stateNow(limit, this.#nowUs, x, y), this.#nowUs)
    return this.#packed(charge, limit, units === 0 ? shortOf(limit, used, charge.min) : false, units, x, y)
  }

  #grant(charge: Charge, opId: string | undefined): Grant {
    const short = SHORTS[this.#number()] ?? false
    const units = this.#number()
    return isPacked(charge.limit)
      ? this.#packed(charge, charge.limit, short, units, this.#number(), this.#number())
      : this.#listed(charge, short, units, opId)
  }

  #packed(charge: Charge, limit: PackedLimit, short: Short, units: number, x: number, y: number): Grant {
    const algorithm = PACKED[limit.algorithm]
    const state = stateNow(limit, this.#nowUs, x, y)
    const used = algorithm.used(limit, state, this.#nowUs)
    const delayUs = units > 0 ? delayBefore(limit, state, units) : 0
    return buildGrant(algorithm, charge, state, this.#nowUs, used, short, units, delayUs, undefined)
  }

  /** Redis computes the waits of lists: otherwise it would have to return the whole list. */
  #listed(charge: Charge, short: Short, units: number, opId: string | undefined): Grant {
    const used = this.#number()
    const list: ListState = { waitUs: this.#number(), resetUs: this.#number() }
    return buildGrant(LIST, charge, list, this.#nowUs, used, short, units, 0, opId)
  }

  #number(): number {
    const number = Number(this.#numbers[this.#at])
    this.#at += 1
    if (Number.isNaN(number))
      throw new LimiterError('STORE_UNAVAILABLE', 'the reply from Redis does not match the batch')
    return number
  }
}

type ListState = { readonly waitUs: number; readonly resetUs: number }

/** Algorithm of a list whose waits Redis has computed. */
const LIST: Pick<Algorithm<ListState>, 'waitUs' | 'resetUs'> = {
  waitUs: (_limit, list) => list.waitUs,
  resetUs: (_limit, list) => list.resetUs,
}

/** A state as of now: its position follows from the time. */
function stateNow(limit: PackedLimit, nowUs: number, x: number, y: number): PackedState {
  const at = ALGORITHMS[limit.algorithm].burst ? Math.floor(nowUs / limit.tickUs) : windowIndex(limit, nowUs)
  return { at, x, y }
}

function delayBefore(limit: PackedLimit, state: PackedState, units: number): number {
  if (!ALGORITHMS[limit.algorithm].delays) return 0
  return PACKED[limit.algorithm].delayUs(limit, { ...state, x: state.x - units * limit.subunitsPerUnit })
}
