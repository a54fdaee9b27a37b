// Replays recorded requests through the real engine, on memory stores and a virtual clock. Deterministic: the same
// requests and rules give the same result. Memory is bounded, whatever the length of the recording.

import type { Decision } from '../decision.ts'
import { optionInvalid } from '../errors.ts'
import type { Limiter } from '../limiter-api.ts'
import { parseRules } from '../rules/parse.ts'
import type { Rule } from '../rules/rule.ts'
import type { RulesInput } from '../rules/rule-input.ts'
import { ClientTally, timeText } from './client-tally.ts'
import { SeenFacts, sharedRules } from './coverage.ts'
import { Engine, VirtualClock } from './engine.ts'
import {
  clientKind,
  clientName,
  type RecordedCheck,
  type RecordedRefund,
  type RecordedRequest,
  type RecordedReset,
} from './recorded-request.ts'
import type { Refusal, ReplayResult, Totals } from './result.ts'
import { ruleResults } from './rule-results.ts'
import { Timeline } from './timeline.ts'

export type ReplayOptions = {
  /** The new rules, in any supported spelling. */
  readonly rules: RulesInput
  /** Compares with other rules, or with the recorded decisions. Default: with nothing. */
  readonly against?: RulesInput | 'recorded' | undefined
  /** For a recording of some clients: their share, and the facts of all its requests. */
  readonly sample?: { readonly rate: number; readonly seen: SeenFacts } | undefined
  readonly layer?: 'edge' | 'service' | undefined
  readonly ipv6Prefix?: number | undefined
  /** Shortest step of the timeline; it grows with the recording. Default: 1. */
  readonly stepSeconds?: number | undefined
  /** Clients to list. Default: 20. */
  readonly top?: number | undefined
}

const TOP_DEFAULT = 20
const REFUSALS_MAX = 100
/** Admitted requests that can still be refunded; the oldest are forgotten first. */
const REFUNDABLE_MAX = 100_000
const LATEST_US = Date.UTC(9999, 11, 31) * 1000

/** Decisions of one request that a later refund needs. */
type Refundable = { readonly next: Decision; readonly now: Decision | undefined }

export class Replay {
  readonly #options: ReplayOptions
  readonly #clock = new VirtualClock()
  readonly #rules: readonly Rule[]
  readonly #nowRules: readonly Rule[]
  readonly #new: Engine
  readonly #now: Engine | undefined
  /** Rules that a sample cannot replay. */
  readonly #leftOut: ReadonlySet<string>
  /** Refusals that were recorded, by rule. */
  readonly #recorded = new Map<string, number>()
  readonly #seen = new SeenFacts()
  readonly #clients = new ClientTally()
  readonly #timeline: Timeline
  readonly #refundable = new Map<string, Refundable>()
  readonly #refusals: Refusal[] = []
  readonly #counts = { replayed: 0, refused: 0, nowKnown: 0, nowRefused: 0, newlyDenied: 0, newlyAllowed: 0 }
  readonly #operations = { refunds: 0, resets: 0, unmatched: 0 }
  #firstUs = 0
  #invalid = 0
  #invalidReason: string | null = null
  #late = 0
  #exceptions = 0

  /** Throws RULE_INVALID. */
  constructor(options: ReplayOptions) {
    const { rules, against, sample, stepSeconds } = options
    if (sample !== undefined && !(sample.rate > 0 && sample.rate <= 1)) {
      throw optionInvalid('sample.rate', sample.rate, 'give a number above 0, up to 1')
    }
    const leftOut = (some: readonly Rule[]) => (sample === undefined ? [] : sharedRules(some, sample.seen, sample.rate))
    const engine = (some: readonly Rule[]) => new Engine(some, this.#clock, { ...options, disabled: leftOut(some) })
    this.#options = options
    this.#rules = parseRules(rules)
    this.#nowRules = against === undefined || against === 'recorded' ? [] : parseRules(against)
    this.#new = engine(this.#rules)
    this.#now = against === undefined || against === 'recorded' ? undefined : engine(this.#nowRules)
    this.#leftOut = new Set(leftOut(this.#rules))
    this.#timeline = new Timeline(stepSeconds)
  }

  /** Checks replayed so far. */
  get replayed(): number {
    return this.#counts.replayed
  }

  /** Replays the next request. Requests come in the order of their times; an earlier one counts as late. */
  add(request: RecordedRequest): void {
    const { atUs } = request
    if (!(atUs > 0 && atUs < LATEST_US)) {
      this.#reject(`the time ${atUs} is out of range`)
      return
    }
    if (atUs >= this.#clock.us) this.#clock.us = atUs
    else this.#late += 1
    if (request.kind === 'check') this.#check(request)
    else if (request.kind === 'refund') this.#refund(request)
    else this.#reset(request)
  }

  result(): ReplayResult {
    const { sample, against, top = TOP_DEFAULT } = this.#options
    const { replayed, refused, nowKnown, nowRefused, newlyDenied, newlyAllowed } = this.#counts
    const rate = sample?.rate ?? 1
    const scaled = (count: number) => Math.round(count / rate)
    const hasNow = this.#now !== undefined || (against === 'recorded' && nowKnown > 0)
    const clients = this.#clients.counts()
    return {
      replayed,
      from: timeText(this.#firstUs),
      to: timeText(replayed === 0 ? 0 : this.#clock.us),
      sample_rate: rate,
      against: !hasNow ? 'nothing' : this.#now === undefined ? 'recorded' : 'rules',
      new: totals(scaled(replayed), scaled(refused)),
      now: hasNow ? totals(scaled(nowKnown), scaled(nowRefused)) : null,
      changes: hasNow
        ? {
            newly_denied: scaled(newlyDenied),
            newly_allowed: scaled(newlyAllowed),
            clients_newly_denied: scaled(clients.newlyDenied),
            clients_newly_allowed: scaled(clients.newlyAllowed),
          }
        : null,
      clients: {
        seen: scaled(clients.seen),
        refused: scaled(clients.refused),
        now_refused: hasNow ? scaled(clients.nowRefused) : null,
      },
      rules: ruleResults({
        ...{ rules: this.#rules, nowRules: this.#nowRules, new: this.#new, now: this.#now, hasNow, scaled },
        ...{ recorded: this.#recorded, clients: clients.byRule, seen: this.#seen, sampleSeen: sample?.seen, rate },
      }),
      top: this.#clients.top(top, hasNow),
      timeline: { step_seconds: this.#timeline.stepSeconds, points: this.#timeline.points(1 / rate, hasNow) },
      refusals: this.#refusals,
      operations: { ...this.#operations },
      inaccuracies: {
        invalid: this.#invalid,
        invalid_reason: this.#invalidReason,
        late: this.#late,
        untracked: this.#clients.untracked,
        exceptions: this.#exceptions,
        overflowed: this.#new.overflowed + (this.#now?.overflowed ?? 0),
      },
    }
  }

  #check(request: RecordedCheck): void {
    const { allowed: recorded, ruleId } = request
    // The rule that refused it is not replayed; without its bucket, the request would be admitted.
    if (recorded === false && typeof ruleId === 'string' && this.#leftOut.has(ruleId)) {
      this.#record(request, false, ruleId, false)
      return
    }
    let decision: Decision
    let before: Decision | undefined
    try {
      decision = this.#new.decide(request)
      before = this.#now?.decide(request)
    } catch (error) {
      this.#reject(error instanceof Error ? error.message : String(error))
      return
    }
    this.#seen.add(request.subject)
    if (request.requestId !== undefined) this.#remember(request.requestId, decision, before)
    const { allowed } = decision
    const now = this.#options.against === 'recorded' ? recorded : before?.allowed
    this.#record(request, allowed, allowed ? null : decision.ruleId, now)
    if (!allowed && now !== false && this.#refusals.length < REFUSALS_MAX) {
      this.#refusals.push(refusalOf(request, decision, this.#clock.us))
    }
  }

  #record(request: RecordedCheck, allowed: boolean, ruleId: string | null, now: boolean | undefined): void {
    const atUs = this.#clock.us
    const counts = this.#counts
    if (counts.replayed === 0) this.#firstUs = atUs
    counts.replayed += 1
    if (request.exception) this.#exceptions += 1
    if (!allowed) counts.refused += 1
    if (now !== undefined) {
      counts.nowKnown += 1
      if (!now) this.#countNow(request)
      if (now && !allowed) counts.newlyDenied += 1
      if (!now && allowed) counts.newlyAllowed += 1
    }
    this.#clients.add(request.subject, atUs, allowed, now, ruleId)
    this.#timeline.add(atUs, !allowed, now === false)
  }

  #countNow({ ruleId }: RecordedCheck): void {
    this.#counts.nowRefused += 1
    if (this.#now !== undefined || typeof ruleId !== 'string') return
    this.#recorded.set(ruleId, (this.#recorded.get(ruleId) ?? 0) + 1)
  }

  /** A request that both rule sets refuse cannot be refunded. */
  #remember(requestId: string, next: Decision, now: Decision | undefined): void {
    if (!next.allowed && now?.allowed !== true) return
    this.#refundable.set(requestId, { next, now })
    if (this.#refundable.size <= REFUNDABLE_MAX) return
    const [oldest] = this.#refundable.keys()
    this.#refundable.delete(oldest as string) // the map is not empty
  }

  #refund({ requestId, units }: RecordedRefund): void {
    this.#operations.refunds += 1
    this.#seen.releases = true
    const found = this.#refundable.get(requestId)
    if (found === undefined) {
      this.#operations.unmatched += 1
      return
    }
    if (units !== 0) this.#refundable.delete(requestId)
    returnUnits(this.#new.limiter, found.next, units)
    if (this.#now !== undefined && found.now !== undefined) returnUnits(this.#now.limiter, found.now, units)
  }

  #reset({ ruleId, key }: RecordedReset): void {
    this.#operations.resets += 1
    let isKnown = false
    for (const engine of [this.#new, this.#now]) {
      if (engine?.limiter.rule(ruleId) === undefined) continue
      isKnown = true
      engine.limiter.reset(ruleId, key).catch(ignore) // takes effect at once: the memory store is synchronous
    }
    if (!isKnown) this.#operations.unmatched += 1
  }

  #reject(reason: string): void {
    this.#invalid += 1
    this.#invalidReason ??= reason.replace(/^\[\w+\] /, '').slice(0, 300)
  }
}

/** Takes effect at once: the memory store is synchronous. */
function returnUnits(limiter: Limiter, decision: Decision, units: number | undefined): void {
  if (units === 0) limiter.release(decision).catch(ignore)
  else limiter.give(decision, units).catch(ignore)
}

/** A refund or reset that the rules do not allow changes nothing. */
function ignore(): void {}

function refusalOf({ subject }: RecordedCheck, { ruleId, retryAfterMs }: Decision, atUs: number): Refusal {
  return {
    at: timeText(atUs) ?? '',
    client: clientName(subject),
    kind: clientKind(subject),
    method: subject.method ?? null,
    path: subject.path ?? null,
    rule_id: ruleId,
    retry_after_ms: retryAfterMs,
  }
}

function totals(requests: number, refused: number): Totals {
  return { allowed: requests - refused, refused }
}
