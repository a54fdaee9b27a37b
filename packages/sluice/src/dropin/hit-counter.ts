// Shared by the drop-in stores: counts hits of a client per window, on any Sluice store. As the libraries expect,
// refused hits count as well, and the library compares the count with its limit. Windows are aligned to the clock, so
// all processes agree on them without coordination.

import { compileLimit, type Limit, WINDOW_US_MAX } from '../algorithms/limit.ts'
import { LimiterError, optionInvalid } from '../errors.ts'
import { unknownOption } from '../known-fields.ts'
import { memoryStore } from '../store/memory.ts'
import type { BucketName, Charge, Store, Take, Taken } from '../store/store.ts'

export type HitCounterOptions = {
  /** `memoryStore()` (default) or `redisStore(client)`. The caller closes it. */
  readonly store?: Store | undefined
  /** Separates counters that use the same keys. */
  readonly prefix?: string | undefined
}

/** Types of keys. The libraries declare `string`, but pass on whatever a `keyGenerator` returns. */
export type Key = string | number | bigint | boolean

export type HitState = {
  readonly hits: number
  /** Time until the window ends. */
  readonly resetMs: number
  /** Time until the block ends, or 0. A blocked client has no hits. */
  readonly blockedMs: number
}

/** A limit that is never reached: the hit count is this minus the remaining units. */
const HITS_MAX = 2 ** 50
/**
 * A block is a token bucket in debt: it refills every microsecond, and a request takes one unit. BLOCK_UNITS is the
 * capacity without a block, UNITS_PER_US the refill.
 */
const BLOCK_UNITS = 1_000_000
const UNITS_PER_US = 64
const WINDOWS_MAX = 1000

const BLOCK = blockLimit(BLOCK_UNITS)
/** By window length: each length is a separate limit with its own buckets. */
const hitLimits = new Map<number, Limit>()

export class HitCounter {
  readonly store: Store
  readonly #prefix: string

  constructor(options: HitCounterOptions, prefixDefault = '') {
    rejectUnknown(options, ['store', 'prefix'])
    const { store, prefix = prefixDefault } = options
    if (store !== undefined && typeof store?.take !== 'function') {
      throw optionInvalid('store', store, 'pass memoryStore() or redisStore(client)')
    }
    if (typeof prefix !== 'string') throw optionInvalid('prefix', prefix, 'pass a string')
    this.store = store ?? memoryStore()
    this.#prefix = prefix
  }

  /** A counter on the same store with separate counts. */
  named(name: string): HitCounter {
    return new HitCounter({ store: this.store, prefix: `${this.#prefix}${name}` })
  }

  async hit(key: Key, windowMs: number, points = 1): Promise<HitState> {
    const limit = hitLimit(windowMs)
    return hitState(limit, await this.#take({ charges: [this.#hits(limit, key, points)] }))
  }

  /** All or nothing: while the client is blocked, nothing is counted. */
  async hitUnlessBlocked(key: Key, windowMs: number, points = 1): Promise<HitState> {
    const limit = hitLimit(windowMs)
    return hitState(limit, await this.#take({ charges: [this.#hits(limit, key, points), this.#charge(BLOCK, key)] }))
  }

  async peek(key: Key, windowMs: number): Promise<HitState> {
    return hitState(hitLimit(windowMs), await this.#peek(key, windowMs))
  }

  /** Removes hits of the current window, down to 0. */
  async giveBack(key: Key, windowMs: number, points = 1): Promise<void> {
    const { limit, owner, detail, min } = this.#charge(hitLimit(windowMs), key, points)
    const { nowUs } = await this.#peek(key, windowMs)
    await this.store.give([{ limit, owner, detail, units: min, bookedUs: nowUs }])
  }

  async forget(key: Key, windowMs: number): Promise<void> {
    await this.store.reset(this.#bucket(hitLimit(windowMs), key))
  }

  /** Blocks a key from now on. A longer existing block stays. */
  async block(key: Key, durationMs: number): Promise<void> {
    await this.#take({ charges: [this.#blockCharge(key, durationMs)] })
  }

  /** Blocks a key and forgets its hits, atomically. */
  async blockAndForget(key: Key, windowMs: number, durationMs: number): Promise<void> {
    await this.#take({
      charges: [this.#blockCharge(key, durationMs)],
      resets: [this.#bucket(hitLimit(windowMs), key)],
    })
  }

  /** Atomically replaces hits and block with either hits in the current window or a block. */
  async replace(key: Key, windowMs: number, by: { points: number } | { blockMs: number }): Promise<HitState> {
    const limit = hitLimit(windowMs)
    const resets = [this.#bucket(limit, key), this.#bucket(BLOCK, key)]
    const isBlock = 'blockMs' in by
    const charges = [isBlock ? this.#blockCharge(key, by.blockMs) : this.#hits(limit, key, by.points)]
    const taken = await this.#take({ charges, resets })
    return isBlock ? blockedFor(by.blockMs) : hitState(limit, taken)
  }

  async unblock(key: Key): Promise<void> {
    await this.store.reset(this.#bucket(BLOCK, key))
  }

  async #peek(key: Key, windowMs: number): Promise<Taken> {
    const charges = [this.#charge(hitLimit(windowMs), key), this.#charge(BLOCK, key)]
    return requireReply(await this.store.peek(charges))
  }

  async #take(take: Take): Promise<Taken> {
    return requireReply(await this.store.take(take))
  }

  /** Takes as many of the points as there is room for. */
  #hits(limit: Limit, key: Key, points: number): Charge {
    return { ...this.#charge(limit, key, points), min: 1 }
  }

  /**
   * Takes the whole burst of a larger limit on the same bucket. The bucket is then in debt for `BLOCK`, which refuses
   * until the debt is paid off.
   */
  #blockCharge(key: Key, durationMs: number): Charge {
    const units = BLOCK_UNITS + UNITS_PER_US * (microseconds('block duration', durationMs) - 1)
    return { ...this.#charge(blockLimit(units), key), max: units }
  }

  #charge(limit: Limit, key: Key, units = 1): Charge {
    if (!Number.isSafeInteger(units) || units < 1) {
      throw optionInvalid('points', units, 'must be a whole number of at least 1')
    }
    return { ...this.#bucket(limit, key), min: units, max: units, kind: 'enforce' }
  }

  #bucket(limit: Limit, key: Key): BucketName {
    return { limit, owner: keyText(key), detail: this.#prefix }
  }
}

/**
 * A key as a string, as in the Redis stores of these libraries: 7 and "7" are the same client. Rejects other types
 * instead of converting them: all objects would be one client, and all requests without a key another.
 */
function keyText(key: unknown): string {
  if (typeof key === 'string') return key
  if (typeof key === 'bigint' || typeof key === 'boolean' || Number.isFinite(key)) return String(key)
  if (typeof key === 'number') throw optionInvalid('key', key, 'must be a string or a finite number')
  throw optionInvalid('key', key, 'must be a string, a number, a bigint or a boolean: see keyGenerator')
}

/** Rejects options of another store, or its client: hits would silently be counted in the memory of each process. */
export function rejectUnknown(options: object, known: readonly string[]): void {
  const { take, duplicate } = options as { readonly take?: unknown; readonly duplicate?: unknown }
  if (typeof take === 'function') throw optionInvalid('options', options, 'is a store: pass { store }')
  if (typeof duplicate === 'function')
    throw optionInvalid('options', options, 'is a Redis client: pass { store: redisStore(client) }')
  for (const [field, value] of Object.entries(options)) {
    if (value === undefined || known.includes(field)) continue
    const fix = `${unknownOption(field, known)}; to count on Redis, pass store: redisStore(client)`
    throw optionInvalid(field, value, fix)
  }
}

function hitLimit(windowMs: number): Limit {
  const known = hitLimits.get(windowMs)
  if (known !== undefined) return known
  const windowUs = microseconds('window', windowMs)
  const id = `hits:${windowUs}`
  const limit = compileLimit({ id, fact: 'client', algorithm: 'fixed_window', units: HITS_MAX, windowUs })
  if (hitLimits.size >= WINDOWS_MAX) hitLimits.clear()
  hitLimits.set(windowMs, limit)
  return limit
}

function blockLimit(burst: number): Limit {
  const rate = { units: UNITS_PER_US, windowUs: 1 }
  const limit = compileLimit({ id: 'block', fact: 'client', algorithm: 'token_bucket', ...rate, burst })
  return { ...limit, cachesRefusals: true } // a blocked client that keeps calling costs few round trips
}

/** Reports 0 hits for a blocked client: a cached refusal lacks the state of the hit bucket. */
function hitState(limit: Limit, { granted, nowUs, grants: [hits, block] }: Taken): HitState {
  const blockedUs = block === undefined || block.short === false ? 0 : block.retryAfterUs
  if (blockedUs > 0 || hits === undefined) return blockedFor(Math.ceil(blockedUs / 1000))
  const resetMs = Math.ceil((limit.windowUs - (nowUs % limit.windowUs)) / 1000)
  // Refused but not blocked: no room for more hits, or none known.
  return { hits: granted ? HITS_MAX - hits.remaining : HITS_MAX, resetMs, blockedMs: 0 }
}

function blockedFor(blockedMs: number): HitState {
  return { hits: 0, resetMs: 0, blockedMs }
}

/** Throws if the store failed: the libraries have their own option for that. */
function requireReply(taken: Taken): Taken {
  if (taken.source === 'policy') throw new LimiterError('STORE_UNAVAILABLE', 'the store did not reply in time')
  return taken
}

function microseconds(field: string, durationMs: number): number {
  const durationUs = Math.round(durationMs * 1000)
  if (durationUs >= 1 && durationUs <= WINDOW_US_MAX) return durationUs
  throw optionInvalid(field, durationMs, 'must be milliseconds, more than 0 and at most 366 days')
}
