// Native mode: every Sluice rule applies to the descriptors of a request, all or nothing over all of them. A descriptor
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
import type { CompatEngine } from './compat-engine.ts'
import { Counters, DescriptorTree } from './descriptor-tree.ts'
import { nativeSubject } from './native-subject.ts'
import type { Descriptor, RateLimitRequest } from './rate-limit-request.ts'
import { CODE, CurrentLimit, type Status, UINT32_MAX, UNMATCHED } from './rate-limit-response.ts'
import { unitNumberOf } from './units.ts'

export type NativeAnswer = {
  readonly allowed: boolean
  readonly statuses: readonly Status[]
  /** Undefined if a peek or a limit of the request decided. */
  readonly decision: Decision | undefined
}

export type NativeEngineDeps = {
  readonly limiter: Pick<Limiter, 'peek' | 'give' | 'release'>
  readonly checks: Pick<CheckController, 'check' | 'checkAll'>
  /** Counts the limits that requests bring, if `overrides` is set. */
  readonly compat: CompatEngine
  readonly overrides: boolean
}

export class NativeEngine {
  readonly #deps: NativeEngineDeps
  /** Limits of the active rules; those of earlier rules are collected with them. */
  readonly #limits = new WeakMap<DecidingLimit, CurrentLimit>()
  /** Counters of limits in requests; the domain is part of their keys. */
  readonly #counters = new Counters('')
  readonly #noTree = new DescriptorTree({ domain: '', line: 0, children: [] })

  constructor(deps: NativeEngineDeps) {
    this.#deps = deps
  }

  /**
   * Refuses a request with values that no rule can count, such as a key of 2000 characters: clients choose them, and
   * Envoy admits a request if it gets an error.
   */
  decide(request: RateLimitRequest, expiresMs?: number): MaybePromise<NativeAnswer> {
    try {
      const answer = this.#decide(request, expiresMs)
      return isPromise(answer) ? answer.catch((error: unknown) => refusalOf(error, request)) : answer
    } catch (error) {
      return refusalOf(error, request)
    }
  }

  #decide(request: RateLimitRequest, expiresMs?: number): MaybePromise<NativeAnswer> {
    const { domain, descriptors } = request
    const [only] = descriptors
    if (only === undefined || descriptors.length > 1 || only.hits === 0 || this.#isOverride(only))
      return this.#decideSeveral(request, expiresMs)
    const subject = nativeSubject(domain, only.entries, only.hits)
    const decided = this.#deps.checks.check(subject, undefined, undefined, undefined, expiresMs)
    return andThen(decided, (decision) => {
      this.#release(decision)
      return { allowed: decision.allowed, statuses: [this.#statusOf(decision)], decision }
    })
  }

  async #decideSeveral({ domain, descriptors }: RateLimitRequest, expiresMs?: number): Promise<NativeAnswer> {
    const statuses = descriptors.map(() => UNMATCHED)
    const places = descriptors.map((_, index) => index)
    const overrides = places.filter((place) => this.#isOverride(descriptors[place]))
    const others = places.filter((place) => !overrides.includes(place))
    const takes = others.filter((place) => descriptors[place]?.hits !== 0)
    const readable = await this.#peek(domain, descriptors, difference(others, takes), statuses)
    if (!readable) await this.#peek(domain, descriptors, takes, statuses)
    const taken = readable ? await this.#take(domain, descriptors, takes, statuses, expiresMs) : undefined
    const allowed = readable && (taken?.allowed ?? true)
    if (overrides.length === 0) return { allowed, statuses, decision: taken }
    const counted = await this.#count(domain, descriptors, overrides, allowed, statuses)
    if (!counted && taken?.allowed) await this.#deps.limiter.give(taken)
    return { allowed: allowed && counted, statuses, decision: counted ? taken : undefined }
  }

  /** Whether a check of each of these descriptors would be admitted now. */
  async #peek(domain: string, descriptors: Descriptors, places: Places, statuses: Status[]): Promise<boolean> {
    const decisions = places.map((place) => {
      const { entries = [], hits = 0 } = descriptors[place] ?? {}
      return this.#deps.limiter.peek(nativeSubject(domain, entries, hits === 0 ? undefined : hits))
    })
    const known = await Promise.all(decisions)
    known.forEach((decision, index) => {
      statuses[places[index] ?? 0] = this.#statusOf(decision)
    })
    return known.every(({ allowed }) => allowed)
  }

  async #take(
    domain: string,
    descriptors: Descriptors,
    places: Places,
    statuses: Status[],
    expiresMs: number | undefined,
  ): Promise<Decision | undefined> {
    if (places.length === 0) return undefined
    const subjects = places.map((place) => {
      const { entries = [], hits } = descriptors[place] ?? {}
      return nativeSubject(domain, entries, hits)
    })
    const { decision, parts } = await this.#deps.checks.checkAll(subjects, expiresMs)
    this.#release(decision)
    parts.forEach((part, index) => {
      statuses[places[index] ?? 0] = this.#statusOf(part)
    })
    return decision
  }

  /** Counts descriptors with limits of their own; only reads them if the request is already refused. */
  async #count(
    domain: string,
    descriptors: Descriptors,
    places: Places,
    adds: boolean,
    statuses: Status[],
  ): Promise<boolean> {
    const own = places.map((place) => {
      const { entries = [], limit, hits = 0 } = descriptors[place] ?? {}
      return { entries: [{ key: 'domain', value: domain }, ...entries], limit, hits: adds ? hits : 0 }
    })
    const answer = await this.#deps.compat.decide(this.#noTree, { domain, descriptors: own, hits: 1 }, this.#counters)
    answer.statuses.forEach((status, index) => {
      statuses[places[index] ?? 0] = status
    })
    return answer.allowed
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
      resetSeconds: Math.ceil((decision.resetAfterMs ?? 0) / 1000),
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

type Descriptors = readonly Descriptor[]
type Places = readonly number[]

function difference(places: Places, without: Places): Places {
  return places.filter((place) => !without.includes(place))
}

const UNCOUNTABLE: Status = { ...UNMATCHED, code: CODE.overLimit }

function refusalOf(error: unknown, { descriptors }: RateLimitRequest): NativeAnswer {
  if (!(error instanceof LimiterError) || error.code !== 'SUBJECT_INVALID') throw error
  return { allowed: false, statuses: descriptors.map(() => UNCOUNTABLE), decision: undefined }
}
