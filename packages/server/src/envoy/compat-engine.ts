// Compatibility mode: decides as envoyproxy/ratelimit does. Each matched descriptor adds its hits to a counter of an
// epoch-aligned window, also if the request is refused, and is over its limit if the counter then exceeds it. This is
// the one exception to all or nothing. Counters are buckets of the node's store, in one take.

import {
  andThen,
  type Charge,
  isPromise,
  LimiterError,
  type MaybePromise,
  type Source,
  type Store,
  type Taken,
} from 'sluice'
import { CompatDecision } from './compat-decision.ts'
import { COUNTER_UNITS, type DescriptorTree, keyPart, limitNumbers, type Match } from './descriptor-tree.ts'
import { type Descriptor, invalidField, type RateLimitRequest } from './rate-limit-request.ts'
import { CODE, type Status, UINT32_MAX, UNMATCHED } from './rate-limit-response.ts'
import { type Unit, unitNumbered } from './units.ts'

export type CompatAnswer = {
  readonly allowed: boolean
  /** One per descriptor. */
  readonly statuses: readonly Status[]
  /** The limit of each descriptor; undefined: none, or replaced by another one. */
  readonly matches: readonly (Match | undefined)[]
  readonly decision: CompatDecision
}

/** Switches of envoyproxy/ratelimit for the whole service. */
export type CompatOptions = {
  /** Answers that would refuse are OK; their statuses are as they are. */
  readonly shadowMode: boolean
  /** Every descriptor that is not unlimited has quota_mode. */
  readonly quotaMode: boolean
  /** If a limit refuses, the counters of the others stay as they are. Two requests at once may still charge them. */
  readonly stopAtLimit: boolean
  /** Separates these counters from those with other prefixes. */
  readonly keyPrefix: string
}

const NO_SWITCHES: CompatOptions = { shadowMode: false, quotaMode: false, stopAtLimit: false, keyPrefix: '' }

const UNLIMITED: Status = { ...UNMATCHED, remaining: UINT32_MAX }
const SECOND_US = 1_000_000

export class CompatEngine {
  readonly #store: Store
  readonly #newId: () => string
  readonly #options: CompatOptions
  /** Before the keys of counters. */
  readonly #prefix: string

  constructor(store: Store, newId: () => string, options: CompatOptions = NO_SWITCHES) {
    this.#store = store
    this.#newId = newId
    this.#options = options
    this.#prefix = options.keyPrefix === '' ? '' : keyPart(options.keyPrefix, '')
  }

  /** Rejects or throws STORE_UNAVAILABLE if the store does not answer, so that `failure_mode_deny` of Envoy applies. */
  decide(tree: DescriptorTree, request: RateLimitRequest, expiresMs?: number): MaybePromise<CompatAnswer> {
    const { descriptors } = request
    const [only] = descriptors
    if (only !== undefined && descriptors.length === 1 && only.hits > 0) return this.#decideOne(tree, only, expiresMs)
    const matches = matchesOf(tree, descriptors)
    const charges = matches.map((match, index) => match && this.#chargeOf(match, descriptors[index]?.hits || 1))
    const charged = this.#options.stopAtLimit ? this.#chargedOf(matches, charges, descriptors, expiresMs) : descriptors
    const counted = andThen(charged, (those) => this.#count(charges, those, expiresMs))
    return andThen(counted, (one) => this.#answer(matches, one))
  }

  /** If some descriptors would be over their limits, the others are only read. */
  #chargedOf(
    matches: readonly (Match | undefined)[],
    charges: readonly (Charge | undefined)[],
    descriptors: readonly Descriptor[],
    expiresMs: number | undefined,
  ): MaybePromise<readonly Descriptor[]> {
    const unread = descriptors.map((descriptor) => ({ ...descriptor, hits: 0 }))
    return andThen(this.#count(charges, unread, expiresMs), ({ hits }) => {
      const isOver = (match: Match | undefined, index: number) => {
        return (hits[index] ?? 0) + (descriptors[index]?.hits ?? 0) > (match?.limit.current.requestsPerUnit ?? 0)
      }
      const over = matches.map((match, index) => charges[index] !== undefined && isOver(match, index))
      if (!over.includes(true)) return descriptors
      return descriptors.map((descriptor, index) => (over[index] ? descriptor : { ...descriptor, hits: 0 }))
    })
  }

  /** The usual request: one descriptor, one counter, no lists. */
  #decideOne(tree: DescriptorTree, descriptor: Descriptor, expiresMs: number | undefined): MaybePromise<CompatAnswer> {
    const match = matchOf(tree, descriptor, 0)
    const charge = match && this.#chargeOf(match, descriptor.hits)
    if (charge === undefined) return this.#answer([match], NOT_COUNTED)
    return andThen(this.#store.take({ charges: [charge], expiresMs }), (taken) => {
      const grant = taken.grants[0]
      if (taken.source !== 'store' || grant === undefined) throw unavailable()
      const wallUs = taken.nowUs + (this.#store.wallAheadUs?.() ?? 0)
      return this.#answer([match], { hits: [COUNTER_UNITS - grant.remaining], wallUs, source: 'store' })
    })
  }

  /** Adds the hits, and reads the counters of descriptors with 0 hits in the same round trip. */
  #count(
    charges: readonly (Charge | undefined)[],
    descriptors: readonly Descriptor[],
    expiresMs: number | undefined,
  ): MaybePromise<Counted> {
    const added = charges.filter((charge, index) => charge !== undefined && descriptors[index]?.hits !== 0) as Charge[]
    const read = charges.filter((charge, index) => charge !== undefined && descriptors[index]?.hits === 0) as Charge[]
    const aheadUs = () => this.#store.wallAheadUs?.() ?? 0
    const taken = added.length === 0 ? undefined : this.#store.take({ charges: added, expiresMs })
    if (read.length === 0) return andThen(taken, (one) => countedOf(charges, added, one, [], undefined, aheadUs()))
    const peeked = this.#store.peek(read, false, expiresMs)
    if (!isPromise(taken) && !isPromise(peeked)) return countedOf(charges, added, taken, read, peeked, aheadUs())
    return Promise.all([taken, peeked]).then(([one, two]) => countedOf(charges, added, one, read, two, aheadUs()))
  }

  /** Undefined: unlimited. */
  #chargeOf({ limit: { counter: limit }, counterKey }: Match, units: number): Charge | undefined {
    return limit && { limit, owner: this.#prefix + counterKey, detail: '', min: units, max: units, kind: 'force' }
  }

  #answer(matches: readonly (Match | undefined)[], { hits, wallUs, source }: Counted): CompatAnswer {
    const { shadowMode, quotaMode } = this.#options
    const statuses = new Array<Status>(matches.length)
    let deciding: { match: Match; status: Status } | undefined
    /** Until the last limit that refuses, except quotas, is full again. */
    let refusedSeconds: number | undefined
    let [quotas, quotasOver] = [0, 0]
    for (let index = 0; index < matches.length; index += 1) {
      const match = matches[index]
      const status = match === undefined ? UNMATCHED : statusOf(match, hits[index], wallUs)
      statuses[index] = status
      if (match === undefined && quotaMode) quotas += 1 // as in envoyproxy/ratelimit: one that has not run out
      if (match === undefined || status.limit === undefined) continue
      const over = status.code === CODE.overLimit
      const quota = quotaMode || match.limit.quota
      if (quota) {
        quotas += 1
        if (over) quotasOver += 1
      } else if (over) refusedSeconds = Math.max(refusedSeconds ?? 0, status.resetSeconds ?? 0)
      // As in envoyproxy/ratelimit: the last one that refuses, else the first with the fewest hits left.
      const isTighter = deciding === undefined || status.remaining < deciding.status.remaining
      if (isTighter || (over && !quota)) deciding = { match, status }
    }
    // A quota descriptor refuses only together with all others.
    const allowed = shadowMode || (refusedSeconds === undefined && (quotas === 0 || quotasOver < quotas))
    const retrySeconds = refusedSeconds ?? deciding?.status.resetSeconds ?? 0
    const result = deciding && { ...deciding, retrySeconds, wallUs }
    return { allowed, statuses, matches, decision: new CompatDecision(allowed, source, result, this.#newId) }
  }
}

/** Counts of the descriptors after this request; undefined where no counter applies. */
type Counted = { readonly hits: readonly (number | undefined)[]; readonly wallUs: number; readonly source: Source }

const NOT_COUNTED: Counted = { hits: [], wallUs: 0, source: 'local' }

function countedOf(
  charges: readonly (Charge | undefined)[],
  added: readonly Charge[],
  taken: Taken | undefined,
  read: readonly Charge[],
  peeked: Taken | undefined,
  aheadUs: number,
): Counted {
  for (const one of [taken, peeked]) if (one !== undefined && one.source !== 'store') throw unavailable()
  const hits = charges.map((charge, place) => {
    if (charge === undefined) return undefined
    const inTake = added.indexOf(charge)
    const grant = inTake >= 0 ? taken?.grants[inTake] : peeked?.grants[read.indexOf(charge)]
    if (grant === undefined || (grant.at !== undefined && grant.at.source !== 'store')) throw unavailable()
    const counted = COUNTER_UNITS - grant.remaining
    return inTake >= 0 ? counted : counted - addedAfter(place, charges, added)
  })
  const nowUs = taken?.nowUs ?? peeked?.nowUs
  return { hits, wallUs: (nowUs ?? 0) + aheadUs, source: nowUs === undefined ? 'local' : 'store' }
}

/** Hits that later descriptors of the request add to the counter of this one, which is read after all of them. */
function addedAfter(place: number, charges: readonly (Charge | undefined)[], added: readonly Charge[]): number {
  const { limit, owner } = charges[place] ?? {}
  const later = charges.slice(place + 1).filter((other) => other?.limit === limit && other?.owner === owner)
  return later.reduce((sum, other) => sum + (other && added.includes(other) ? other.min : 0), 0)
}

function unavailable(): LimiterError {
  return new LimiterError('STORE_UNAVAILABLE', 'the store did not reply in time; no limit was checked')
}

function matchesOf(tree: DescriptorTree, descriptors: readonly Descriptor[]): readonly (Match | undefined)[] {
  const matches = descriptors.map((descriptor, index) => matchOf(tree, descriptor, index))
  if (matches.length === 1) return matches
  const replaced = matches.flatMap((match) => match?.limit.replaces ?? [])
  if (replaced.length === 0) return matches
  const isReplaced = ({ limit }: Match) => limit.counter !== undefined && replaced.includes(limit.name)
  return matches.map((match) => (match !== undefined && isReplaced(match) ? undefined : match))
}

function matchOf(tree: DescriptorTree, descriptor: Descriptor, index: number): Match | undefined {
  if (descriptor.limit !== undefined) return overrideMatch(tree, descriptor, index)
  return tree.find(descriptor.entries)
}

/** The limit in a descriptor. Throws REQUEST_INVALID. */
export function overrideOf({ limit }: Descriptor, index: number): { unit: Unit; requestsPerUnit: number } {
  const unit = unitNumbered(limit?.unit ?? 0)
  const requestsPerUnit = limit?.requestsPerUnit ?? 0
  const field = `descriptors[${index}].limit`
  if (unit === undefined) throw invalidField(`${field}.unit`, limit?.unit, 'use a unit of the protocol, from 1 to 7')
  if (requestsPerUnit > UINT32_MAX) throw invalidField(`${field}.requests_per_unit`, requestsPerUnit, 'use 32 bits')
  return { unit, requestsPerUnit }
}

/** A limit in the request replaces the configuration: shadow_mode, quota_mode and replaces do not apply. */
function overrideMatch({ domain, counters }: DescriptorTree, descriptor: Descriptor, index: number): Match {
  const { unit, requestsPerUnit } = overrideOf(descriptor, index)
  const { entries } = descriptor
  const ruleId = `envoy:${domain}.override`
  const own = { ruleId, name: '', replaces: [], shadow: false, quota: false, metadata: undefined }
  let counterKey = ''
  for (const { key, value } of entries) counterKey += keyPart(key, value)
  return { limit: { ...own, ...limitNumbers(requestsPerUnit, unit, '', counters) }, counterKey, ruleId }
}

/** Status of a descriptor whose counter stands at `hits` after this request. */
function statusOf({ limit }: Match, hits: number | undefined, wallUs: number): Status {
  if (hits === undefined) return UNLIMITED
  const { current, windowSeconds, shadow } = limit
  const isOver = hits > current.requestsPerUnit
  return {
    code: isOver && !shadow ? CODE.overLimit : CODE.ok,
    limit: current,
    remaining: isOver ? 0 : current.requestsPerUnit - hits,
    resetSeconds: windowSeconds - (Math.floor(wallUs / SECOND_US) % windowSeconds),
  }
}
