// Native mode: the Sluice rules apply to the descriptors of a request, all or nothing over all of them. A descriptor
// with 0 hits is only read: it can refuse the request, but takes nothing.

import {
  andThen,
  type DecidingLimit,
  type Decision,
  isPromise,
  type Limiter,
  LimiterError,
  limitOf,
  type MaybePromise,
} from 'sluice'
import { holdsPermit } from 'sluice/http'
import type { CheckController } from '../checks/check-controller.ts'
import type { CompatDecision } from './compat-decision.ts'
import { type CompatEngine, overrideOf } from './compat-engine.ts'
import { DescriptorTree } from './descriptor-tree.ts'
import { nativeSubject } from './native-subject.ts'
import type { Descriptor, RateLimitRequest } from './rate-limit-request.ts'
import { CODE, CurrentLimit, type Status, UINT32_MAX, UNMATCHED } from './rate-limit-response.ts'
import { unitNumberOf } from './units.ts'

export type NativeAnswer = {
  readonly allowed: boolean
  readonly statuses: readonly Status[]
  /** The status that headers describe: the one that refuses, else the one with the fewest hits left. */
  readonly deciding: Status | undefined
  /** Undefined if the request has values that no rule can count. */
  readonly decision: Decision | undefined
}

export type NativeEngineDeps = {
  readonly limiter: Pick<Limiter, 'decideAll' | 'peek' | 'give' | 'release'>
  readonly checks: Pick<CheckController, 'check' | 'record'>
  /** Counts the limits that requests bring, if `overrides` is set. */
  readonly compat: CompatEngine
  readonly overrides: boolean
}

export class NativeEngine {
  readonly #deps: NativeEngineDeps
  /** Limits of the active rules; those of earlier rules are collected with them. */
  readonly #limits = new WeakMap<DecidingLimit, CurrentLimit>()
  /** Counts limits in requests; the domain is part of their keys. */
  readonly #noTree = new DescriptorTree({ domain: '', line: 0, children: [] })

  constructor(deps: NativeEngineDeps) {
    this.#deps = deps
  }

  /**
   * Refuses a request with values that no rule can count, such as a key of 2000 characters: clients choose them, and
   * Envoy admits a request if it gets an error. `isMapped`: whether rules apply to the domain.
   */
  decide(request: RateLimitRequest, isMapped: boolean, expiresMs?: number): MaybePromise<NativeAnswer> {
    try {
      const isUnlimited = !isMapped && !request.descriptors.some((one) => this.#isOverride(one))
      const answer = isUnlimited ? this.#admit(request) : this.#decide(request, isMapped, expiresMs)
      return isPromise(answer) ? answer.catch((error: unknown) => refusalOf(error, request)) : answer
    } catch (error) {
      return refusalOf(error, request)
    }
  }

  #admit({ domain, descriptors }: RateLimitRequest): MaybePromise<NativeAnswer> {
    const startedMs = performance.now()
    const unlimited = descriptors.map((one) => ({ ...one, limit: undefined }))
    const answered = this.#deps.compat.decide(this.#noTree, { domain, descriptors: unlimited, hits: 1 })
    return andThen(answered, ({ allowed, statuses, decision }) => {
      this.#deps.checks.record(nativeSubject(domain, descriptors[0]?.entries ?? [], undefined), decision, startedMs)
      return { allowed, statuses, deciding: undefined, decision }
    })
  }

  #decide(request: RateLimitRequest, isMapped: boolean, expiresMs?: number): MaybePromise<NativeAnswer> {
    const { domain, descriptors } = request
    const [only] = descriptors
    if (only === undefined || descriptors.length > 1 || only.hits === 0 || this.#isOverride(only))
      return this.#decideSeveral(request, isMapped, expiresMs)
    const subject = nativeSubject(domain, only.entries, only.hits)
    const decided = this.#deps.checks.check(subject, undefined, undefined, undefined, expiresMs)
    return andThen(decided, (decision) => {
      this.#release(decision)
      const status = this.#statusOf(decision)
      return { allowed: decision.allowed, statuses: [status], deciding: status, decision }
    })
  }

  async #decideSeveral(request: RateLimitRequest, isMapped: boolean, expiresMs?: number): Promise<NativeAnswer> {
    const { domain, descriptors } = request
    const startedMs = performance.now()
    const statuses = descriptors.map(() => UNMATCHED)
    const places = descriptors.map((_, index) => index)
    const overrides = places.filter((place) => this.#isOverride(descriptors[place]))
    for (const place of overrides) overrideOf(descriptors[place] as Descriptor, place) // an index of the list
    const others = isMapped ? difference(places, overrides) : []
    const takes = others.filter((place) => descriptors[place]?.hits !== 0)
    const several: Several = { domain, descriptors, statuses, expiresMs }
    const read = await this.#peek(several, difference(others, takes))
    const isReadable = read?.decision.allowed ?? true
    if (!isReadable) await this.#peek(several, takes)
    const taken = isReadable ? await this.#take(several, takes) : undefined
    const byRules = taken ?? read
    const allowed = byRules?.decision.allowed ?? true
    const own = await this.#countOrGiveBack(several, overrides, allowed, taken?.decision)
    const deciding = byRules === undefined || (allowed && own?.decision.allowed === false) ? own : byRules
    // never: there is a descriptor
    if (deciding === undefined) return { allowed, statuses, deciding: undefined, decision: undefined }
    const { decision, place, status = statuses[place] } = deciding
    const { entries = [], hits } = descriptors[place] ?? {}
    this.#deps.checks.record(nativeSubject(domain, entries, hits || undefined), decision, startedMs)
    return { allowed: decision.allowed, statuses, deciding: decision.allowed ? fewestLeft(statuses) : status, decision }
  }

  /** Whether a check of each of these descriptors would be admitted now: the first refusal, else the first decision. */
  async #peek({ domain, descriptors, statuses, expiresMs }: Several, places: Places): Promise<Deciding | undefined> {
    const decisions = places.map((place) => {
      const { entries = [], hits = 0 } = descriptors[place] ?? {}
      return this.#deps.limiter.peek(nativeSubject(domain, entries, hits || undefined), expiresMs)
    })
    const known = (await Promise.all(decisions)).map((decision, index) => ({ decision, place: places[index] ?? 0 }))
    for (const { decision, place } of known) statuses[place] = this.#statusOf(decision)
    return known.find(({ decision }) => !decision.allowed) ?? known[0]
  }

  async #take({ domain, descriptors, statuses, expiresMs }: Several, places: Places): Promise<Deciding | undefined> {
    if (places.length === 0) return undefined
    const subjects = places.map((place) => {
      const { entries = [], hits } = descriptors[place] ?? {}
      return nativeSubject(domain, entries, hits)
    })
    const { decision, decidedBy, decisions } = await this.#deps.limiter.decideAll(subjects, undefined, expiresMs)
    this.#release(decision)
    decisions.forEach((one, index) => {
      statuses[places[index] ?? 0] = this.#statusOf(one)
    })
    return { decision, place: places[decidedBy] ?? 0 }
  }

  /** Gives back what the rules took if a limit of the request refuses, or its counter fails. Errs low. */
  async #countOrGiveBack(
    several: Several,
    places: Places,
    adds: boolean,
    taken: Decision | undefined,
  ): Promise<Deciding | undefined> {
    if (places.length === 0) return undefined
    let isCounted = false
    try {
      const decision = await this.#count(several, places, adds)
      isCounted = decision.allowed
      return { decision, place: places[0] ?? 0, status: decision.deciding }
    } finally {
      if (!isCounted && taken?.allowed) await this.#deps.limiter.give(taken).catch(() => {})
    }
  }

  /** Counts descriptors with limits of their own; only reads them if the request is already refused. */
  async #count(
    { domain, descriptors, statuses, expiresMs }: Several,
    places: Places,
    adds: boolean,
  ): Promise<CompatDecision> {
    const own = places.map((place) => {
      const { entries = [], limit, hits = 0 } = descriptors[place] ?? {}
      return { entries: [{ key: 'domain', value: domain }, ...entries], limit, hits: adds ? hits : 0 }
    })
    const request = { domain, descriptors: own, hits: 1 }
    const answer = await this.#deps.compat.decide(this.#noTree, request, expiresMs)
    answer.statuses.forEach((status, index) => {
      statuses[places[index] ?? 0] = status
    })
    return answer.decision
  }

  #isOverride(descriptor: Descriptor | undefined): boolean {
    return this.#deps.overrides && descriptor?.limit !== undefined
  }

  /** Envoy does not report the end of a response, and a permit held until it expires would block others. */
  #release(decision: Decision): void {
    if (decision.allowed && holdsPermit(decision)) this.#deps.limiter.release(decision).catch(() => {})
  }

  #statusOf(decision: Decision): Status {
    const { allowed } = decision
    const code = allowed ? CODE.ok : CODE.overLimit
    const deciding = limitOf(decision)
    if (deciding === undefined) return allowed ? UNMATCHED : { ...UNMATCHED, code }
    return {
      code,
      limit: this.#currentLimit(deciding),
      remaining: allowed ? Math.min(UINT32_MAX, decision.remaining ?? 0) : 0,
      resetSeconds: decision.resetAfterMs === null ? undefined : Math.ceil(decision.resetAfterMs / 1000),
    }
  }

  #currentLimit(deciding: DecidingLimit): CurrentLimit {
    const known = this.#limits.get(deciding)
    if (known !== undefined) return known
    const { rule, name, limit } = deciding
    const shown = name === 'default' ? rule.id : `${rule.id}.${name}`
    const windowMs = Math.ceil(limit.windowUs / 1000)
    const units = Math.min(limit.units, UINT32_MAX)
    const fresh = new CurrentLimit(units, unitNumberOf(windowMs), Math.ceil(windowMs / 1000), shown)
    this.#limits.set(deciding, fresh)
    return fresh
  }
}

type Places = readonly number[]

/** Descriptors of one request; their statuses are filled in step by step. */
type Several = {
  readonly domain: string
  readonly descriptors: readonly Descriptor[]
  readonly statuses: Status[]
  readonly expiresMs: number | undefined
}

/** The decision about a request, and the descriptor that it is about. `status`: that of another descriptor. */
type Deciding = { readonly decision: Decision; readonly place: number; readonly status?: Status | undefined }

function difference(places: Places, without: Places): Places {
  return places.filter((place) => !without.includes(place))
}

function fewestLeft(statuses: readonly Status[]): Status | undefined {
  let fewest: Status | undefined
  for (const status of statuses) {
    if (status.limit !== undefined && (fewest === undefined || status.remaining < fewest.remaining)) fewest = status
  }
  return fewest
}

const UNCOUNTABLE: Status = { ...UNMATCHED, code: CODE.overLimit }

function refusalOf(error: unknown, { descriptors }: RateLimitRequest): NativeAnswer {
  if (!(error instanceof LimiterError) || error.code !== 'SUBJECT_INVALID') throw error
  return { allowed: false, statuses: descriptors.map(() => UNCOUNTABLE), deciding: undefined, decision: undefined }
}
