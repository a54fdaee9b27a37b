// The language between the store and apply.lua: requests as one JSON argument, replies as a flat list of integers.
// Redis only tells what a bucket holds; what follows from it (remaining, waits) the algorithms here work out.

import type { Algorithm, PackedState } from '../algorithms/algorithm.ts'
import { grantOf, SoleTaken, shortOf } from '../algorithms/grant.ts'
import { type AlgorithmName, type Limit, windowIndex } from '../algorithms/limit.ts'
import { isBucket, isPacked, PACKED, type PackedLimit } from '../algorithms/registry.ts'
import { LimiterError } from '../errors.ts'
import {
  type BucketName,
  type Charge,
  type Give,
  type Given,
  type Grant,
  type Once,
  type Short,
  type Taken,
  untilUs,
} from '../store/store.ts'
import { type KeyNames, sharesValue } from './key.ts'
import {
  type Answer,
  type Form,
  formOf,
  hasPlainName,
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
/** Status of a give that must happen once. */
const ONCE: Readonly<Record<number, Given>> = { 1: 'given', 2: 'repeated', 3: 'expired' }
/** Of one owner, in one value; the same number stands in lua/include/values.lua. */
const BUCKETS_MAX = 1024
const KINDS = { enforce: 0, shadow: 1, force: 2, hold: 3 } as const
const SHORTS: readonly Short[] = [false, 'now', 'never', 'stale_rules']
const CODES: Readonly<Record<AlgorithmName, number>> = {
  token_bucket: 1,
  leaky_bucket: 2,
  fixed_window: 3,
  sliding_window: 4,
  sliding_window_log: 5,
  concurrency: 6,
}

/** What a batch is measured in. A further bucket costs Redis about a quarter of what a request does. */
export function weightOf(request: Request): number {
  return 0.75 + (partsOf(request) + resetsBefore(request).length) / 4
}

/** Any bucket that a request touches: in a Cluster, all of them live in one slot. */
export function firstBucket(request: Request): BucketName {
  if (request.verb === 'reset') return request.bucket
  const [first] = request.verb === 'give' ? request.gives : request.charges
  return first as BucketName // nobody asks for nothing
}

/** How many buckets a request touches. */
function partsOf(request: Request): number {
  if (request.verb === 'reset') return 1
  return request.verb === 'give' ? request.gives.length : request.charges.length
}

/** Plain takes of one set and one cost, each of the key behind that of the one before. */
type PlainRun = {
  readonly key: number
  readonly set: number
  readonly cost: number
  count: number
  /** Of its numbers. */
  readonly end: number
}

export class BatchEncoder {
  readonly keys: string[] = []
  readonly #names: KeyNames
  readonly #keyIndex = new Map<string, number>()
  readonly #limits: unknown[] = []
  readonly #limitIndex = new Map<Limit, number>()
  readonly #sets: number[][] = []
  /** Sets of charges seen before, by their first limit. */
  readonly #knownSets = new Map<Limit, { readonly charges: readonly BucketName[]; readonly index: number }[]>()
  readonly #texts: string[] = []
  readonly #textIndex = new Map<string, number>()
  readonly #numbers: number[] = []
  #run: PlainRun | undefined

  constructor(names: KeyNames) {
    this.#names = names
  }

  /** Flat on purpose: a table per request would be most of what the script does. */
  add(request: Request, form: Form = formOf(request)): void {
    for (const bucket of resetsBefore(request)) this.add({ verb: 'reset', bucket })
    if (form !== 'any') {
      this.#addShort(form, request as TakeRequest) // only takes have such a form
      return
    }
    if (request.verb === 'give' && request.once !== undefined) {
      this.#addOnce(request.gives, request.opId, request.once)
      return
    }
    if (request.verb === 'give' && request.opId === undefined) {
      for (const give of request.gives) this.#addGive(give)
      return
    }
    const before = givesBefore(request)
    if (before !== undefined) this.add(before)
    const opId = request.verb === 'reset' ? undefined : request.opId
    const verb = request.verb === 'take' && repeats(request.charges) ? TAKE_REPEATING : VERBS[request.verb]
    this.#numbers.push(verb, this.#text(opId ?? ''), partsOf(request))
    if (request.verb === 'reset') this.#part(request.bucket, 0, 0, 0)
    else if (request.verb === 'give')
      for (const give of request.gives) this.#part(give, give.units, give.bookedUs, sixthOf(give))
    else for (const charge of request.charges) this.#part(charge, charge.min, charge.max, KINDS[charge.kind])
  }

  #addShort(form: ShortForm, { charges, gives = [] }: TakeRequest): void {
    const { limit, owner, detail, min } = charges[0] as Charge // such a take has one
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

  /** Most are of another value each, so the next one is that of the next key: that goes without saying. */
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

  /** Gives do not depend on each other: each is told by itself. */
  #addGive(give: Give): void {
    const { limit, owner, detail, units, bookedUs } = give
    if (isPacked(limit) && hasPlainName(give) && units >= 0) {
      this.#numbers.push(
        GIVE_PLAIN,
        this.#key(limit, owner, detail),
        this.#set([give], limit),
        units,
        bookedUs,
        sixthOf(give),
      )
      return
    }
    this.#numbers.push(VERBS.give, 0, 1)
    this.#part(give, units, bookedUs, sixthOf(give))
  }

  #addOnce(gives: readonly Give[], opId: string | undefined, once: Once): void {
    const name = this.#names.onceKey(gives[0] as Give, once.id) // nobody gives nothing
    const mark = indexIn(this.#keyIndex, name, () => this.keys.push(name))
    this.#numbers.push(GIVE_ONCE, this.#text(opId ?? ''), gives.length, mark, untilUs(gives, once))
    for (const give of gives) this.#part(give, give.units, give.bookedUs, sixthOf(give))
  }

  json(): string {
    return JSON.stringify([this.#limits, this.#sets, this.#texts, this.#numbers])
  }

  #part({ limit, owner, detail }: BucketName, fourth: number, fifth: number, sixth: number): void {
    const text = detail !== '' && sharesValue(limit) ? this.#text(detail) : 0
    this.#numbers.push(this.#key(limit, owner, detail), this.#limit(limit), text, fourth, fifth, sixth)
  }

  #key(limit: Limit, owner: string, detail: string): number {
    const name = this.#names.keyOf(limit, owner, detail)
    return indexIn(this.#keyIndex, name, () => this.keys.push(name))
  }

  /** A limit that may be leased is charged as such by everybody, or what is on lease would be forgotten. */
  #limit(given: Limit): number {
    const limit = given.lease?.charged ?? given
    return indexIn(this.#limitIndex, limit, () => this.#limits.push(limitNumbers(limit)))
  }

  /** Requests of one kind meet the same limits: they are told once. */
  #set(charges: readonly BucketName[], first: Limit): number {
    const known = this.#knownSets.get(first) ?? []
    const same = known.find((set) => sameLimits(set.charges, charges))
    if (same !== undefined) return same.index
    const index = this.#sets.push(charges.map(({ limit }) => this.#limit(limit)))
    this.#knownSets.set(first, [...known, { charges, index }])
    return index
  }

  /** The same text has one index: a bucket that is used twice is known by it. */
  #text(text: string): number {
    return text === '' ? 0 : indexIn(this.#textIndex, text, () => this.#texts.push(this.#names.textInValue(text)))
  }
}

const NO_RESETS: readonly BucketName[] = []

/** Resets that come with a take are requests of their own in the same batch, which is one step to Redis. */
function resetsBefore(request: Request): readonly BucketName[] {
  return request.verb === 'take' ? (request.resets ?? NO_RESETS) : NO_RESETS
}

/** What comes with a take is told as a request of its own, if the take has no short form. */
function givesBefore(request: Request): Request | undefined {
  if (request.verb !== 'take' || request.gives === undefined || request.gives.length === 0) return undefined
  return { verb: 'give', gives: request.gives, opId: undefined }
}

/** Units that are on lease no more; of a log, whether the units may be booked later than the give says. */
function sixthOf({ limit, settled = 0 }: Give): number {
  if (limit.algorithm !== 'sliding_window_log') return settled
  return limit.approximate === undefined ? 0 : 1
}

function sameLimits(some: readonly BucketName[], others: readonly BucketName[]): boolean {
  return some.length === others.length && some.every(({ limit }, index) => limit === others[index]?.limit)
}

function indexIn<K>(indexes: Map<K, number>, item: K, push: () => number): number {
  const known = indexes.get(item)
  if (known !== undefined) return known
  const index = push()
  indexes.set(item, index)
  return index
}

function limitNumbers(limit: Limit): unknown[] {
  const bucket = isBucket(limit.algorithm)
  const a = bucket ? limit.unitParts : isPacked(limit) ? limit.windowTicks : limit.windowUs
  const b = bucket ? limit.tickParts : 0
  const numbers = [limit.generation, CODES[limit.algorithm], limit.capacity, limit.tickUs, a, b]
  const shaped = limit.holdTicks === 0 ? numbers : [...numbers, limit.holdTicks]
  return [...numbers, limit.id, shaped.map((number) => number.toString(36)).join(':'), limit.holdTicks]
}

/** Reads the replies of a batch, in the order of its requests. */
export class ReplyDecoder {
  readonly #numbers: readonly number[]
  readonly #nowUs: number
  #at = 1

  constructor(reply: unknown) {
    if (!Array.isArray(reply)) throw new LimiterError('STORE_UNAVAILABLE', `unexpected reply of Redis: ${typeof reply}`)
    this.#numbers = reply
    this.#nowUs = Number(reply[0])
  }

  /** The answer to a request, or the error that it alone meets. */
  next(request: Request, form: Form, keys: () => string): Answer | LimiterError {
    for (const _ of resetsBefore(request)) this.#number() // a reset always succeeds
    if (form !== 'any') {
      const first = this.#number()
      if (first >= 0) return this.#short(form, (request as TakeRequest).charges, first) // as in `BatchEncoder.add`
    }
    // Gives that came along have a status of their own: what cannot be given back is lost.
    if (form === 'leased') this.#number()
    else if (request.verb === 'take') for (const _ of request.gives ?? []) this.#number()
    const once = request.verb === 'give' ? request.once : undefined
    const apart = request.verb === 'give' && request.opId === undefined && once === undefined
    const statuses = apart ? request.gives.map(() => this.#number()) : []
    const status = statuses.length > 0 ? Math.min(...statuses) : this.#number()
    if (status === -1) return new LimiterError('STORE_CORRUPT', `the value of ${keys()} cannot be read`)
    if (status === -2) return new LimiterError('STORE_CROWDED', `${keys()} holds ${BUCKETS_MAX} buckets already`)
    if (once !== undefined) return ONCE[status]
    if (request.verb === 'give' || request.verb === 'reset') return undefined
    const replayed = this.#number() === 1
    const { charges, opId } = request
    const grants = charges.map((charge) => this.#grant(charge, opId))
    return { granted: status === 1, nowUs: this.#nowUs, grants, source: 'store', replayed }
  }

  /** `first`: x of the first bucket of a plain take; whether that of a lease was granted. */
  #short(form: ShortForm, charges: readonly Charge[], first: number): Taken {
    if (form === 'plain' && charges.length === 1) return this.#sole(charges[0] as Charge, first)
    const granted = form === 'plain' || first === 1
    const grants = charges.map((charge, index) => {
      const limit = charge.limit as PackedLimit // such charges are packed
      if (form === 'leased') return this.#leased(charge, limit)
      return this.#packed(charge, limit, false, charge.min, index === 0 ? first : this.#number(), 0)
    })
    return { granted, nowUs: this.#nowUs, grants, source: 'store', replayed: false }
  }

  /** What most answers are: the one charge of a plain take was granted. */
  #sole({ limit: given, min }: Charge, x: number): Taken {
    const limit = given as PackedLimit // such charges are packed
    const nowUs = this.#nowUs
    const state = stateNow(limit, nowUs, x, 0)
    const { used, resetUs } = PACKED[limit.algorithm]
    const remaining = Math.max(0, limit.capacity - used(limit, state, nowUs))
    const delayUs = delayBefore(limit, state, min)
    return new SoleTaken(true, nowUs, min, false, remaining, resetUs(limit, state, nowUs), 0, delayUs)
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
    return grantOf(algorithm, charge, state, this.#nowUs, used, short, units, delayUs, undefined)
  }

  /** For lists Redis has worked out the waits itself: they would have to be sent whole otherwise. */
  #listed(charge: Charge, short: Short, units: number, opId: string | undefined): Grant {
    const used = this.#number()
    const told: Told = { waitUs: this.#number(), resetUs: this.#number() }
    return grantOf(TOLD, charge, told, this.#nowUs, used, short, units, 0, opId)
  }

  #number(): number {
    const number = Number(this.#numbers[this.#at])
    this.#at += 1
    if (Number.isNaN(number)) throw new LimiterError('STORE_UNAVAILABLE', 'the reply of Redis is not one to this batch')
    return number
  }
}

type Told = { readonly waitUs: number; readonly resetUs: number }

/** A list as Redis tells it: only its waits are known here. */
const TOLD: Pick<Algorithm<Told>, 'waitUs' | 'resetUs'> = {
  waitUs: (_limit, told) => told.waitUs,
  resetUs: (_limit, told) => told.resetUs,
}

/** A state as of now needs no time of its own: it follows from now. */
function stateNow(limit: PackedLimit, nowUs: number, x: number, y: number): PackedState {
  const at = isBucket(limit.algorithm) ? Math.floor(nowUs / limit.tickUs) : windowIndex(limit, nowUs)
  return { at, x, y }
}

function delayBefore(limit: PackedLimit, state: PackedState, units: number): number {
  if (limit.algorithm !== 'leaky_bucket') return 0 // nobody else delays
  return PACKED.leaky_bucket.delayUs(limit, { ...state, x: state.x - units * limit.unitParts })
}
