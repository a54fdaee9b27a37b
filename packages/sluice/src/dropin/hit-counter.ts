// What the drop-in stores share: hits of a client in a window, on any store of ours. As in the libraries that use them,
// every hit counts, also one that will be refused, and the library itself compares the count with its limit. Windows
// are aligned to the clock, so that all processes agree on them without a word.

import { compileLimit, type Limit, WINDOW_US_MAX } from '../algorithms/limit.ts'
import { LimiterError, optionInvalid } from '../errors.ts'
import { unknownOption } from '../known-fields.ts'
import { memoryStore } from '../store/memory.ts'
import type { BucketName, Charge, Store, Take, Taken } from '../store/store.ts'

export type HitCounterOptions = {
  /** Where the hits are counted: `memoryStore()` (default) or `redisStore(client)`. It stays yours to close. */
  readonly store?: Store | undefined
  /** Keeps counters with the same keys apart. */
  readonly prefix?: string | undefined
}

/** Types that a client may be named by. The libraries say `string`, but hand on whatever a `keyGenerator` returns. */
export type Key = string | number | bigint | boolean

export type Standing = {
  readonly hits: number
  /** Until the window ends. */
  readonly resetMs: number
  /** Until a block ends; 0 when there is none. Whoever is blocked has no hits. */
  readonly blockedMs: number
}

/** So many that nobody is ever short: what is left tells how many there were. */
const HITS_MAX = 2 ** 50
/**
 * A block is a bucket that owes time: units flow back each microsecond, and a request takes one. So many can be had at
 * once while nothing is owed, and so many in the first microsecond after a block.
 */
const GATE_UNITS = 1_000_000
const UNITS_PER_US = 64
const WINDOWS_MAX = 1000

const GATE = gateOf(GATE_UNITS)
/** By the length of the window: another length is another limit, with buckets of its own. */
const hitLimits = new Map<number, Limit>()

export class HitCounter {
  readonly store: Store
  readonly #prefix: string

  constructor(options: HitCounterOptions, prefixDefault = '') {
    refuseUnknown(options, ['store', 'prefix'])
    const { store, prefix = prefixDefault } = options
    if (store !== undefined && typeof store?.take !== 'function') {
      throw optionInvalid('store', store, 'pass memoryStore() or redisStore(client)')
    }
    if (typeof prefix !== 'string') throw optionInvalid('prefix', prefix, 'pass a text')
    this.store = store ?? memoryStore()
    this.#prefix = prefix
  }

  /** The same store, and other counts. */
  named(name: string): HitCounter {
    return new HitCounter({ store: this.store, prefix: `${this.#prefix}${name}` })
  }

  async hit(key: Key, windowMs: number, points = 1): Promise<Standing> {
    const limit = hitLimit(windowMs)
    return standing(limit, await this.#take({ charges: [this.#hits(limit, key, points)] }))
  }

  /** All or nothing: while the client is blocked, nothing is counted. */
  async hitUnlessBlocked(key: Key, windowMs: number, points = 1): Promise<Standing> {
    const limit = hitLimit(windowMs)
    return standing(limit, await this.#take({ charges: [this.#hits(limit, key, points), this.#charge(GATE, key)] }))
  }

  async peek(key: Key, windowMs: number): Promise<Standing> {
    return standing(hitLimit(windowMs), await this.#peek(key, windowMs))
  }

  /** Takes hits of the present window back, down to none. */
  async giveBack(key: Key, windowMs: number, points = 1): Promise<void> {
    const { limit, owner, detail, min } = this.#charge(hitLimit(windowMs), key, points)
    const { nowUs } = await this.#peek(key, windowMs)
    await this.store.give([{ limit, owner, detail, units: min, bookedUs: nowUs }])
  }

  async forget(key: Key, windowMs: number): Promise<void> {
    await this.store.reset(this.#bucket(hitLimit(windowMs), key))
  }

  /** For so long from now, unless it is longer already. */
  async block(key: Key, durationMs: number): Promise<void> {
    await this.#take({ charges: [this.#blockage(key, durationMs)] })
  }

  /** The same, and the hits are forgotten in one step with it: there is no moment without either. */
  async blockInstead(key: Key, windowMs: number, durationMs: number): Promise<void> {
    await this.#take({
      charges: [this.#blockage(key, durationMs)],
      resets: [this.#bucket(hitLimit(windowMs), key)],
    })
  }

  /** Replaces hits and block, in one step, by either: so many hits of the present window, or a block. */
  async replace(key: Key, windowMs: number, by: { points: number } | { blockMs: number }): Promise<Standing> {
    const limit = hitLimit(windowMs)
    const resets = [this.#bucket(limit, key), this.#bucket(GATE, key)]
    const isBlock = 'blockMs' in by
    const charges = [isBlock ? this.#blockage(key, by.blockMs) : this.#hits(limit, key, by.points)]
    const taken = await this.#take({ charges, resets })
    return isBlock ? blockedFor(by.blockMs) : standing(limit, taken)
  }

  async unblock(key: Key): Promise<void> {
    await this.store.reset(this.#bucket(GATE, key))
  }

  async #peek(key: Key, windowMs: number): Promise<Taken> {
    const charges = [this.#charge(hitLimit(windowMs), key), this.#charge(GATE, key)]
    return answered(await this.store.peek(charges))
  }

  async #take(take: Take): Promise<Taken> {
    return answered(await this.store.take(take))
  }

  /** Counted in full as long as there is room, so that no number of points goes uncounted. */
  #hits(limit: Limit, key: Key, points: number): Charge {
    return { ...this.#charge(limit, key, points), min: 1 }
  }

  /** A larger gate of the same bucket is filled up: until as much has flowed back, that of the requests is shut. */
  #blockage(key: Key, durationMs: number): Charge {
    const units = GATE_UNITS + UNITS_PER_US * (microseconds('block duration', durationMs) - 1)
    return { ...this.#charge(gateOf(units), key), max: units }
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
 * The text of a key, as the Redis stores of these libraries write it: 7 and "7" are one client. Other types are refused
 * rather than made a text: all objects would be one client, and all requests without a key another one.
 */
function keyText(key: unknown): string {
  if (typeof key === 'string') return key
  if (typeof key === 'bigint' || typeof key === 'boolean' || Number.isFinite(key)) return String(key)
  if (typeof key === 'number') throw optionInvalid('key', key, 'must be a text or a finite number')
  throw optionInvalid('key', key, 'must be a text, a number, a bigint or a boolean: see keyGenerator')
}

/** Options of another store, or its client, would leave the hits in the memory of each process without a word. */
export function refuseUnknown(options: object, known: readonly string[]): void {
  const { take, duplicate } = options as { readonly take?: unknown; readonly duplicate?: unknown }
  if (typeof take === 'function') throw optionInvalid('options', options, 'is a store: pass { store }')
  if (typeof duplicate === 'function')
    throw optionInvalid('options', options, 'is a client of Redis: pass { store: redisStore(client) }')
  for (const [field, value] of Object.entries(options)) {
    if (value === undefined || known.includes(field)) continue
    const fix = `${unknownOption(field, known)}; counts on Redis: store: redisStore(client)`
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

function gateOf(burst: number): Limit {
  const rate = { units: UNITS_PER_US, windowUs: 1 }
  return compileLimit({ id: 'block', fact: 'client', algorithm: 'token_bucket', ...rate, burst })
}

/** A refusal leaves nothing to count: what a lease says of other buckets then is not known. */
function standing(limit: Limit, { granted, nowUs, grants: [hits, gate] }: Taken): Standing {
  const blockedUs = gate?.retryAfterUs ?? 0
  if (blockedUs > 0 || hits === undefined) return blockedFor(Math.ceil(blockedUs / 1000))
  const resetMs = Math.ceil((limit.windowUs - (nowUs % limit.windowUs)) / 1000)
  // Not granted and not blocked: there is no room for more hits, or none is known of.
  return { hits: granted ? HITS_MAX - hits.remaining : HITS_MAX, resetMs, blockedMs: 0 }
}

function blockedFor(blockedMs: number): Standing {
  return { hits: 0, resetMs: 0, blockedMs }
}

/** The library has an option of its own for a store that fails, so it has to hear of it. */
function answered(taken: Taken): Taken {
  if (taken.source === 'policy') throw new LimiterError('STORE_UNAVAILABLE', 'the store did not answer in time')
  return taken
}

function microseconds(field: string, durationMs: number): number {
  const durationUs = Math.round(durationMs * 1000)
  if (durationUs >= 1 && durationUs <= WINDOW_US_MAX) return durationUs
  throw optionInvalid(field, durationMs, 'must be milliseconds, more than 0 and at most 366 days')
}
