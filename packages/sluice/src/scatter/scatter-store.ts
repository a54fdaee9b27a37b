// Scatter-gather over several stores. Each bucket has one target; a take over several targets is sent to each of them,
// and rolled back if one refuses. Errs low: other requests may be refused until the units are given back.
//
// A client that exceeds its own limit must never occupy units of a shared bucket, not even until they are rolled back.
// Targets whose buckets belong to one client are therefore taken first, and shared ones only if all of those grant.

import { hasPermits } from '../algorithms/traits.ts'
import { giveQuietly } from '../store/give-quietly.ts'
import { givesBack } from '../store/grant.ts'
import { resetThenTake } from '../store/reset-then-take.ts'
import { type SomeStats, type StoreStats, sumStats } from '../store/stats.ts'
import {
  type BucketName,
  type Charge,
  type Give,
  type GiveResult,
  type Grant,
  type IdempotencyKey,
  isBinding,
  mergeGiveResults,
  NOT_CHARGED,
  type Source,
  type Store,
  type Take,
  type Taken,
} from '../store/store.ts'

/** A unit of atomicity, such as a slot of a Cluster or a server. */
export type Target = { readonly id: string; readonly store: Store }

export type ScatterOptions = {
  readonly targetOf: (bucket: BucketName) => Target
  /** All stores of targets; stats() and close() cover them. */
  readonly stores: () => readonly Store[]
}

/** Facts that belong to one client. Buckets of other facts count as shared. */
const OWN_FACTS: ReadonlySet<string> = new Set(['user', 'api_key', 'ip'])

/** Order of the takes. Targets with nonbinding charges only, which cannot refuse, come last. */
const STAGES = ['own', 'shared', 'nonbinding'] as const

/** Charges and gives for one target; `indexes` are the positions of its charges in the whole take. */
type TargetRequest = {
  readonly target: Target
  readonly charges: Charge[]
  readonly indexes: number[]
  readonly gives: Give[]
}

type TargetReply = { readonly request: TargetRequest; readonly taken: Taken }

export function scatterStore(options: ScatterOptions): Store {
  return new ScatterStore(options)
}

class ScatterStore implements Store {
  readonly #targetOf: (bucket: BucketName) => Target
  readonly #stores: () => readonly Store[]
  readonly #counts = { scattered: 0, rolled_back: 0 } satisfies SomeStats

  constructor({ targetOf, stores }: ScatterOptions) {
    this.#targetOf = targetOf
    this.#stores = stores
  }

  /** Undefined unless all buckets have one target. */
  takeSync(take: Take): Taken | undefined {
    const target = this.#soleTarget(take)
    return target?.store.takeSync?.(take)
  }

  take(take: Take): Taken | Promise<Taken> {
    const target = this.#soleTarget(take)
    if (target !== undefined) return target.store.take(take)
    return take.resets === undefined ? this.#takeScattered(take) : resetThenTake(this, take)
  }

  async peek(charges: readonly Charge[], mayBeStale?: boolean, expiresMs?: number): Promise<Taken> {
    const replies = await Promise.all(
      this.#requests(charges).map(async (request) => {
        return { request, taken: await request.target.store.peek(request.charges, mayBeStale, expiresMs) }
      }),
    )
    const stale = replies.some(({ taken }) => taken.stale)
    return { ...combined(charges, replies, replies.every(agrees)), stale }
  }

  /** Each target keeps an idempotency record of its own, so a retry completes the targets that failed. */
  async give(gives: readonly Give[], opId?: string, idempotencyKey?: IdempotencyKey): Promise<GiveResult> {
    const requests = this.#requests([], gives)
    const settled = await Promise.allSettled(
      requests.map(async ({ target, gives: own }) => target.store.give(own, opId, idempotencyKey)),
    )
    const failed = settled.find((one) => one.status === 'rejected')
    if (failed !== undefined) throw failed.reason
    return mergeGiveResults(settled.map((one) => (one.status === 'fulfilled' ? one.value : undefined)))
  }

  reset(bucket: BucketName): void | Promise<void> {
    return this.#targetOf(bucket).store.reset(bucket)
  }

  stats(): StoreStats {
    return sumStats([this.#counts, ...this.#stores().map((store) => store.stats?.() ?? {})])
  }

  async close(): Promise<void> {
    await Promise.all(this.#stores().map((store) => store.close()))
  }

  #soleTarget({ charges, gives = [], resets = [] }: Take): Target | undefined {
    let sole: Target | undefined
    for (const list of [charges, gives, resets]) {
      for (const bucket of list) {
        const target = this.#targetOf(bucket)
        if (sole !== undefined && sole.id !== target.id) return undefined
        sole = target
      }
    }
    return sole
  }

  #requests(charges: readonly Charge[], gives: readonly Give[] = []): TargetRequest[] {
    const requests = new Map<string, TargetRequest>()
    const requestFor = (bucket: BucketName): TargetRequest => {
      const target = this.#targetOf(bucket)
      const known = requests.get(target.id)
      if (known !== undefined) return known
      const request: TargetRequest = { target, charges: [], indexes: [], gives: [] }
      requests.set(target.id, request)
      return request
    }
    charges.forEach((charge, index) => {
      const request = requestFor(charge)
      request.charges.push(charge)
      request.indexes.push(index)
    })
    for (const give of gives) requestFor(give).gives.push(give)
    return [...requests.values()]
  }

  async #takeScattered(take: Take): Promise<Taken> {
    const { charges, op, gives, spent = { ms: 0 }, expiresMs } = take
    this.#counts.scattered += 1
    const requests = this.#requests(charges, gives)
    const stages = requests.map(stageOf)
    const replies: TargetReply[] = []
    const sent = new Set<readonly Give[]>()
    let granted = true
    let failed: PromiseRejectedResult | undefined
    for (const stage of STAGES) {
      const sentNow = requests
        .filter((_request, index) => stages[index] === stage)
        .map((request) => (granted ? request : unconditional(request, replies)))
        .filter((request) => request.charges.length > 0)
      for (const { gives: own } of sentNow) sent.add(own)
      const settled = await Promise.allSettled(
        sentNow.map(async (request) =>
          request.target.store.take({ charges: request.charges, op, gives: request.gives, spent, expiresMs }),
        ),
      )
      settled.forEach((one, index) => {
        const request = sentNow[index] as TargetRequest // one result per request
        if (one.status === 'fulfilled') replies.push({ request, taken: one.value })
      })
      failed ??= settled.find((one) => one.status === 'rejected')
      granted &&= failed === undefined && replies.every(agrees)
    }
    for (const { target, gives: own } of requests)
      if (own.length > 0 && !sent.has(own)) void giveQuietly(target.store, own)
    const rolledBack = granted ? undefined : this.#rollBack(replies, op?.id)
    // Otherwise a retry over another connection could find the permit that is being released, and count it as its own.
    if (op !== undefined) await rolledBack
    if (failed !== undefined) throw failed.reason
    return combined(charges, replies, granted)
  }

  /** Gives back what was granted, except for permits that an earlier take of the same operation holds. */
  async #rollBack(replies: readonly TargetReply[], opId: string | undefined): Promise<void> {
    const given = replies.map(({ request, taken }) => {
      if (taken.granted) taken.undo?.()
      if (taken.source !== 'store') return undefined
      const isKept = (charge: Charge) =>
        isUnconditional(charge, replies) || (taken.replayed && hasPermits(charge.limit))
      const gives = givesBack(request.charges, taken, (charge) => (isKept(charge) ? charge.max : 0))
      if (gives.length === 0) return undefined
      this.#counts.rolled_back += 1
      return giveQuietly(request.target.store, gives, taken.replayed ? undefined : opId)
    })
    await Promise.all(given)
  }
}

function stageOf({ charges }: TargetRequest): (typeof STAGES)[number] {
  if (!charges.some(({ kind }) => isBinding(kind))) return 'nonbinding'
  return charges.every(({ limit }) => OWN_FACTS.has(limit.fact)) ? 'own' : 'shared'
}

/** Keeps only the charges that count even if the request is refused. */
function unconditional(
  { target, charges, indexes, gives }: TargetRequest,
  replies: readonly TargetReply[],
): TargetRequest {
  const kept = charges.flatMap((charge, at) => (isUnconditional(charge, replies) ? [at] : []))
  return {
    target,
    charges: kept.map((at) => charges[at] as Charge), // both lists have an entry for each charge
    indexes: kept.map((at) => indexes[at] as number),
    gives,
  }
}

/** Whether a charge counts although the request is refused: a counterfactual one, if only its own rule refused. */
function isUnconditional({ kind, pair }: Charge, replies: readonly TargetReply[]): boolean {
  if (kind !== 'counterfactual') return kind === 'force'
  return replies.every(({ request, taken }) =>
    request.charges.every((charge, index) => {
      return !isBinding(charge.kind) || charge.pair === pair || taken.grants[index]?.short === false
    }),
  )
}

/** Nonbinding charges never refuse. */
function agrees({ request, taken }: TargetReply): boolean {
  return taken.granted || !request.charges.some(({ kind }) => isBinding(kind))
}

function combined(charges: readonly Charge[], replies: readonly TargetReply[], granted: boolean): Taken {
  const grants: Grant[] = charges.map(() => NOT_CHARGED)
  for (const { request, taken } of replies) {
    const at = { source: taken.source, nowUs: taken.nowUs }
    request.indexes.forEach((index, own) => {
      const grant = taken.grants[own] as Grant // one per charge
      const charge = charges[index] as Charge // one per index
      const kept = granted || isUnconditional(charge, replies)
      grants[index] = kept ? { ...grant, at } : { ...grant, units: 0, remaining: grant.remaining + grant.units, at }
    })
  }
  const permits = replies.filter(({ request }) => request.charges.some(({ limit }) => hasPermits(limit)))
  return {
    granted,
    nowUs: Math.max(0, ...replies.map(({ taken }) => taken.nowUs)),
    grants,
    source: sourceOf(replies),
    policyReason: replies.find(({ taken }) => taken.policyReason !== undefined)?.taken.policyReason,
    replayed: permits.length > 0 && permits.every(({ taken }) => taken.replayed),
  }
}

/** The least reliable source. */
function sourceOf(replies: readonly TargetReply[]): Source {
  const sources = new Set(replies.map(({ taken }) => taken.source))
  return (['policy', 'local', 'lease'] as const).find((source) => sources.has(source)) ?? 'store'
}
