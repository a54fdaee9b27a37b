// A store around several: each bucket has its place, a take that concerns several places is made in each of them, and
// what was taken goes back where it came from if one of them refuses. Low for a moment, never high.
//
// A client that is refused by a bucket of its own must not hold units of one that it shares with others, not even for a
// moment: so the places of single clients are asked first, and shared ones only if all of those have granted.

import { givesBack } from '../algorithms/grant.ts'
import { systemTimers, type Timers } from '../clock.ts'
import { giveQuietly } from '../store/give-quietly.ts'
import {
  type BucketName,
  type Charge,
  type Give,
  type Given,
  type Grant,
  givenOf,
  isBinding,
  NOT_ASKED,
  type Once,
  type Source,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'
import { takeAnew } from '../store/take-anew.ts'

/** What takes all or nothing by itself: a slot of a Cluster, a Redis. `id` tells places apart. */
export type Place = { readonly id: string; readonly store: Store }

export type ScatterOptions = {
  readonly placeOf: (bucket: BucketName) => Place
  /** Every store that a place may name, to be read and closed with this one. */
  readonly stores: () => readonly Store[]
  readonly timers?: Timers
}

/** Facts of which each client has its own. All others are taken to be shared. */
const NARROW: ReadonlySet<string> = new Set(['user', 'api_key', 'ip'])

/** The order in which places are asked; the last are those that cannot refuse. */
const ORDER = ['narrow', 'shared', 'spectator'] as const

/** What of a take concerns one place, and where its charges stand in the whole. */
type Part = {
  readonly place: Place
  readonly charges: Charge[]
  readonly indexes: number[]
  readonly gives: Give[]
}

type Answer = { readonly part: Part; readonly taken: Taken }

export function scatterStore(options: ScatterOptions): Store {
  return new ScatterStore(options)
}

class ScatterStore implements Store {
  readonly #placeOf: (bucket: BucketName) => Place
  readonly #stores: () => readonly Store[]
  readonly #timers: Timers
  readonly #counts = { scattered: 0, taken_back: 0 }

  constructor({ placeOf, stores, timers = systemTimers }: ScatterOptions) {
    this.#placeOf = placeOf
    this.#stores = stores
    this.#timers = timers
  }

  /** Only where one place is concerned: to ask the next one may take time. */
  takeSync(take: Take): Taken | undefined {
    const place = this.#solePlace(take)
    return place?.store.takeSync?.(take)
  }

  take(take: Take): Taken | Promise<Taken> {
    const place = this.#solePlace(take)
    if (place !== undefined) return place.store.take(take)
    return take.resets === undefined ? this.#takeApart(take) : takeAnew(this, take)
  }

  async peek(charges: readonly Charge[], mayBeStale?: boolean): Promise<Taken> {
    const answers = await Promise.all(
      this.#parts(charges).map(async (part) => {
        return { part, taken: await part.place.store.peek(part.charges, mayBeStale) }
      }),
    )
    const stale = answers.some(({ taken }) => taken.stale)
    return { ...combined(charges, answers, answers.every(agrees)), stale }
  }

  /** Each place remembers the id of its own part: a retry completes those that have failed. */
  async give(gives: readonly Give[], opId?: string, once?: Once): Promise<Given> {
    const parts = this.#parts([], gives)
    const settled = await Promise.allSettled(
      parts.map(async ({ place, gives: own }) => place.store.give(own, opId, once)),
    )
    const failed = settled.find((one) => one.status === 'rejected')
    if (failed !== undefined) throw failed.reason
    return givenOf(settled.map((one) => (one.status === 'fulfilled' ? one.value : undefined)))
  }

  reset(bucket: BucketName): void | Promise<void> {
    return this.#placeOf(bucket).store.reset(bucket)
  }

  stats(): Readonly<Record<string, number>> {
    const sums: Record<string, number> = { ...this.#counts }
    for (const store of this.#stores()) {
      for (const [name, value] of Object.entries(store.stats?.() ?? {})) sums[name] = (sums[name] ?? 0) + value
    }
    return sums
  }

  async close(): Promise<void> {
    await Promise.all(this.#stores().map((store) => store.close()))
  }

  #solePlace({ charges, gives = [], resets = [] }: Take): Place | undefined {
    let sole: Place | undefined
    for (const list of [charges, gives, resets]) {
      for (const bucket of list) {
        const place = this.#placeOf(bucket)
        if (sole !== undefined && sole.id !== place.id) return undefined
        sole = place
      }
    }
    return sole
  }

  #parts(charges: readonly Charge[], gives: readonly Give[] = []): Part[] {
    const parts = new Map<string, Part>()
    const partOf = (bucket: BucketName): Part => {
      const place = this.#placeOf(bucket)
      const known = parts.get(place.id)
      if (known !== undefined) return known
      const part: Part = { place, charges: [], indexes: [], gives: [] }
      parts.set(place.id, part)
      return part
    }
    charges.forEach((charge, index) => {
      const part = partOf(charge)
      part.charges.push(charge)
      part.indexes.push(index)
    })
    for (const give of gives) partOf(give).gives.push(give)
    return [...parts.values()]
  }

  async #takeApart({ charges, op, gives, askedMs = this.#timers.nowMs() }: Take): Promise<Taken> {
    this.#counts.scattered += 1
    const parts = this.#parts(charges, gives)
    const ranks = parts.map(rankOf)
    const answers: Answer[] = []
    const sent = new Set<readonly Give[]>()
    let granted = true
    let failed: PromiseRejectedResult | undefined
    for (const rank of ORDER) {
      const asked = parts
        .filter((_part, index) => ranks[index] === rank)
        .map((part) => (granted ? part : onlyForced(part)))
        .filter((part) => part.charges.length > 0)
      for (const { gives: own } of asked) sent.add(own)
      const settled = await Promise.allSettled(
        asked.map(async (part) => part.place.store.take({ charges: part.charges, op, gives: part.gives, askedMs })),
      )
      settled.forEach((one, index) => {
        const part = asked[index] as Part // one answer each
        if (one.status === 'fulfilled') answers.push({ part, taken: one.value })
      })
      failed ??= settled.find((one) => one.status === 'rejected')
      granted &&= failed === undefined && answers.every(agrees)
    }
    for (const { place, gives: own } of parts) if (own.length > 0 && !sent.has(own)) void giveQuietly(place.store, own)
    const back = granted ? undefined : this.#takeBack(answers, op?.id)
    // Or a second try, over another connection, might take the permit that is being released for its own.
    if (op !== undefined) await back
    if (failed !== undefined) throw failed.reason
    return combined(charges, answers, granted)
  }

  /** But for permits that an earlier take holds. */
  async #takeBack(answers: readonly Answer[], opId: string | undefined): Promise<void> {
    const given = answers.map(({ part, taken }) => {
      if (!taken.granted) return undefined
      taken.undo?.()
      if (taken.source !== 'store') return undefined
      const stays = ({ kind, limit }: Charge) =>
        kind === 'force' || (taken.replayed && limit.algorithm === 'concurrency')
      const gives = givesBack(part.charges, taken, (charge) => (stays(charge) ? charge.max : 0))
      if (gives.length === 0) return undefined
      this.#counts.taken_back += 1
      return giveQuietly(part.place.store, gives, taken.replayed ? undefined : opId)
    })
    await Promise.all(given)
  }
}

function rankOf({ charges }: Part): (typeof ORDER)[number] {
  if (!charges.some(({ kind }) => isBinding(kind))) return 'spectator'
  return charges.every(({ limit }) => NARROW.has(limit.fact)) ? 'narrow' : 'shared'
}

/** What has to be charged even though the request is refused. */
function onlyForced({ place, charges, indexes, gives }: Part): Part {
  const forced = charges.flatMap(({ kind }, at) => (kind === 'force' ? [at] : []))
  return {
    place,
    charges: forced.map((at) => charges[at] as Charge), // both lists have an entry for each charge
    indexes: forced.map((at) => indexes[at] as number),
    gives,
  }
}

/** A place that nobody can be refused by agrees, whatever it says. */
function agrees({ part, taken }: Answer): boolean {
  return taken.granted || !part.charges.some(({ kind }) => isBinding(kind))
}

function combined(charges: readonly Charge[], answers: readonly Answer[], granted: boolean): Taken {
  const grants: Grant[] = charges.map(() => NOT_ASKED)
  for (const { part, taken } of answers) {
    const at = { source: taken.source, nowUs: taken.nowUs }
    part.indexes.forEach((index, own) => {
      const grant = taken.grants[own] as Grant // one per charge
      const kept = granted || charges[index]?.kind === 'force'
      grants[index] = kept ? { ...grant, at } : { ...grant, units: 0, remaining: grant.remaining + grant.units, at }
    })
  }
  const permits = answers.filter(({ part }) => part.charges.some(({ limit }) => limit.algorithm === 'concurrency'))
  return {
    granted,
    nowUs: Math.max(0, ...answers.map(({ taken }) => taken.nowUs)),
    grants,
    source: sourceOf(answers),
    replayed: permits.length > 0 && permits.every(({ taken }) => taken.replayed),
  }
}

/** The least reliable of them. */
function sourceOf(answers: readonly Answer[]): Source {
  const sources = new Set(answers.map(({ taken }) => taken.source))
  return (['policy', 'local', 'lease'] as const).find((source) => sources.has(source)) ?? 'store'
}
