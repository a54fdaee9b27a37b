// The language between the store and apply.lua: requests as one JSON argument, replies as a flat list of integers.
// Redis only tells what a bucket holds; what follows from it (remaining, waits) the algorithms here work out.

import { type Algorithm, freshPacked, type PackedState } from '../algorithms/algorithm.ts'
import { grantOf } from '../algorithms/grant.ts'
import { type AlgorithmName, type Limit, windowIndex } from '../algorithms/limit.ts'
import { isBucket, isPacked, PACKED, type PackedLimit } from '../algorithms/registry.ts'
import { LimiterError } from '../errors.ts'
import type { BucketName, Charge, Give, Grant, Short, Taken } from '../store/store.ts'
import { type KeyNames, sharesValue } from './key.ts'

export type Request =
  | { readonly verb: 'take' | 'peek'; readonly charges: readonly Charge[]; readonly opId: string | undefined }
  | { readonly verb: 'give'; readonly gives: readonly Give[]; readonly opId: string | undefined }
  | { readonly verb: 'reset'; readonly bucket: BucketName }

const VERBS = { take: 0, peek: 1, give: 2, reset: 3 } as const
const KINDS = { enforce: 0, shadow: 1, force: 2 } as const
const SHORTS: readonly Short[] = [false, 'now', 'never', 'stale_rules']
const CODES: Readonly<Record<AlgorithmName, number>> = {
  token_bucket: 1,
  leaky_bucket: 2,
  fixed_window: 3,
  sliding_window: 4,
  sliding_window_log: 5,
  concurrency: 6,
}

/** How many buckets a request touches: what a batch is measured in. */
export function weightOf(request: Request): number {
  if (request.verb === 'reset') return 1
  return request.verb === 'give' ? request.gives.length : request.charges.length
}

export class BatchEncoder {
  readonly keys: string[] = []
  readonly #names: KeyNames
  readonly #keyIndex = new Map<string, number>()
  readonly #limits: unknown[] = []
  readonly #limitIndex = new Map<Limit, number>()
  readonly #requests: unknown[] = []

  constructor(names: KeyNames) {
    this.#names = names
  }

  add(request: Request): void {
    const opId = request.verb === 'reset' ? '' : (request.opId ?? '')
    this.#requests.push([VERBS[request.verb], opId, ...this.#parts(request)])
  }

  json(): string {
    return JSON.stringify([this.#limits, this.#requests])
  }

  #parts(request: Request): unknown[] {
    if (request.verb === 'reset') return [this.#place(request.bucket)]
    if (request.verb === 'give') {
      return request.gives.map((give) => [...this.#place(give), give.units, give.bookedUs])
    }
    return request.charges.map((charge) => [...this.#place(charge), charge.min, charge.max, KINDS[charge.kind]])
  }

  #place({ limit, owner, detail }: BucketName): [number, number, string] {
    const key = this.#names.keyOf(limit, owner, detail)
    return [this.#indexOfKey(key), this.#indexOfLimit(limit), sharesValue(limit) ? detail : '']
  }

  #indexOfKey(key: string): number {
    const known = this.#keyIndex.get(key)
    if (known !== undefined) return known
    const index = this.keys.push(key)
    this.#keyIndex.set(key, index)
    return index
  }

  #indexOfLimit(limit: Limit): number {
    const known = this.#limitIndex.get(limit)
    if (known !== undefined) return known
    const index = this.#limits.push(limitNumbers(limit))
    this.#limitIndex.set(limit, index)
    return index
  }
}

function limitNumbers(limit: Limit): unknown[] {
  const bucket = isBucket(limit.algorithm)
  const a = bucket ? limit.unitParts : isPacked(limit) ? limit.windowTicks : limit.windowUs
  const b = bucket ? limit.tickParts : 0
  return [limit.generation, CODES[limit.algorithm], limit.capacity, limit.tickUs, a, b, limit.id]
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
  next(request: Request, key: () => string): Taken | undefined | LimiterError {
    const status = this.#number()
    if (status === -1) return new LimiterError('STORE_CORRUPT', `the value of ${key()} cannot be read`)
    if (status === -2) return new LimiterError('STORE_CORRUPT', `${key()} holds more buckets than one value may`)
    if (request.verb === 'give' || request.verb === 'reset') return undefined
    const replayed = this.#number() === 1
    const { charges, opId } = request
    const grants = charges.map((charge) => this.#grant(charge, opId))
    return { granted: status === 1, nowUs: this.#nowUs, grants, source: 'store', replayed }
  }

  #grant(charge: Charge, opId: string | undefined): Grant {
    const short = SHORTS[this.#number()] ?? false
    const units = this.#number()
    return isPacked(charge.limit)
      ? this.#packed(charge, charge.limit, short, units)
      : this.#listed(charge, short, units, opId)
  }

  #packed(charge: Charge, limit: PackedLimit, short: Short, units: number): Grant {
    const algorithm = PACKED[limit.algorithm]
    const state = stateNow(limit, this.#nowUs, this.#number(), this.#number())
    const used = algorithm.used(limit, state, this.#nowUs)
    const delayUs = units > 0 ? delayBefore(algorithm, limit, state, units) : 0
    return grantOf(algorithm, charge, state, this.#nowUs, used, short, units, delayUs, undefined)
  }

  /** For lists Redis has worked out the waits itself: they would have to be sent whole otherwise. */
  #listed(charge: Charge, short: Short, units: number, opId: string | undefined): Grant {
    const used = this.#number()
    const told: Told = { waitUs: this.#number(), resetUs: this.#number() }
    return grantOf(TOLD, charge, told, this.#nowUs, used, short, units, 0, opId)
  }

  #number(): number {
    const number = this.#numbers[this.#at]
    this.#at += 1
    return Number(number)
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
  return Object.assign(freshPacked(), { at, x, y })
}

function delayBefore(algorithm: Algorithm<PackedState>, limit: PackedLimit, state: PackedState, units: number): number {
  return algorithm.delayUs(limit, { ...state, x: state.x - units * limit.unitParts })
}
