// Result of a check: one outcome per limit, and the outcome that is reported to the client.

import type { Limit } from './algorithms/limit.ts'
import type { AlgorithmName } from './algorithms/traits.ts'
import { ALGORITHMS, hasPermits } from './algorithms/traits.ts'
import { optionInvalid } from './errors.ts'
import { type Pair, pairsIn } from './pairs.ts'
import type { ChargeSet } from './rules/charge-set.ts'
import type { CompiledLimit, Variant } from './rules/compile.ts'
import type { AppliedException } from './rules/exception.ts'
import type { Charge, Give, Grant, Op, PolicyReason, Short, Source, Taken } from './store/store.ts'

/** State of one limit of a rule after the check. */
export type Outcome = {
  readonly ruleId: string
  /** Name of the limit within its rule: `default` unless the rule names several. */
  readonly name: string
  readonly scope: string
  readonly algorithm: AlgorithmName
  readonly mode: 'enforce' | 'shadow'
  /** False when this limit refused, or (shadow) would have. */
  readonly allowed: boolean
  readonly short: Short
  readonly limit: number
  readonly burst: number
  readonly windowMs: number
  readonly cost: number
  readonly remaining: number
  /** If this limit refused: `retryAfterMs`. Otherwise `fullAfterMs`. */
  readonly resetAfterMs: number | null
  /** Time until the limit is full again. */
  readonly fullAfterMs: number
  /**
   * Time until this limit admits the same request: 0 if it would now. null: waiting will not help (a ban, or a cost
   * above the capacity).
   */
  readonly retryAfterMs: number | null
  readonly delayMs: number
  readonly priority: number
  /** The version that decided, if the rule is under rollout. */
  readonly variant?: Variant
}

/**
 * Allowed or refused, with the numbers of the deciding limit: if refused, the failing limit with the longest wait; if
 * allowed, the one with the lowest `remaining / limit`. All numbers are null if no rule matched.
 */
export type Decision = {
  readonly allowed: boolean
  readonly ruleId: string | null
  readonly limit: number | null
  readonly remaining: number | null
  /** Refused: time until the same request is admitted, `retryAfterMs`. Allowed: time until the limit is full again. */
  readonly resetAfterMs: number | null
  /**
   * `resetAfterMs` as a wall-clock time, by the clock of Redis, or of this machine if buckets are in memory. null if
   * the decision did not need the store, or if waiting will not help.
   */
  readonly resetAtMs: number | null
  /** Time until the limit is full again, whether the request was refused or allowed. */
  readonly fullAfterMs: number | null
  /** `fullAfterMs` as a wall-clock time, as `resetAtMs`. */
  readonly fullAtMs: number | null
  /** 0 when allowed; null when waiting will not help. */
  readonly retryAfterMs: number | null
  /** Delay before an admitted request should proceed (leaky bucket). */
  readonly delayMs: number
  readonly source: Source
  /** Set if `on_fail` decided for at least one limit, instead of the store: the reason. */
  readonly policyReason?: PolicyReason | undefined
  /** Set on a peek that may have been read from a replica, which may lag. */
  readonly stale?: true | undefined
  /** Version of the rule set that decided. */
  readonly version: number
  readonly requestId: string
  readonly outcomes: readonly Outcome[]
  /** Overrides, signals, global factor and bypass that changed it; usually empty. */
  readonly exceptions: readonly AppliedException[]
  /** Set if a ban with this status refused it; other refusals are a 429. */
  readonly status?: 403 | undefined
}

/** The deciding bucket. Not a field of the decision: it identifies the client and could end up in logs. */
export type DecidingBucket = {
  readonly ruleId: string
  /** Name of the limit within its rule. */
  readonly name: string
  /** Fact of the owner: `user`, `ip`, …, or `` for a single bucket. */
  readonly fact: string
  readonly owner: string
  readonly detail: string
}

/** A limit of a rule, by its name within the rule. */
export type DecidingLimit = {
  readonly rule: { readonly id: string }
  readonly name: string
  readonly limit: Limit
}

/** Dependencies that all decisions of one limiter share. */
export type DecisionContext = {
  newId(): string
  /** Time of day minus store time. */
  wallAheadUs(): number
}

/** Result for a request that no rule matches. */
const NOTHING_TO_CHARGE: Taken = { granted: true, nowUs: 0, grants: [], source: 'local', replayed: false }

/** Result for a request that a limit of 0 refuses. */
const ALWAYS_REFUSED: Taken = {
  granted: false,
  nowUs: 0,
  grants: [
    { units: 0, short: 'never', remaining: 0, resetAfterUs: 0, retryAfterUs: Number.POSITIVE_INFINITY, delayUs: 0 },
  ],
  source: 'local',
  replayed: false,
}

/** Refusal by a ban of the key, which belongs to no rule. */
const BANNED: Taken = { ...ALWAYS_REFUSED, grants: [] }

/** Results that need no store: nothing to charge, or a single limit of 0. */
export function withoutStore({ charges, limits, exceptions }: ChargeSet): Taken | undefined {
  if (charges.length === 0) return exceptions.banned ? BANNED : NOTHING_TO_CHARGE
  const [only] = charges
  const refused = limits.length === 1 && only?.kind === 'enforce' && limits[0]?.limit.units === 0
  return refused && only.pair === undefined ? ALWAYS_REFUSED : undefined
}

/**
 * A decision that keeps what it took, so that it can be refunded. Computes its numbers lazily: few callers read them
 * all.
 */
export class LimiterDecision implements Decision {
  readonly allowed: boolean
  readonly #context: DecisionContext
  readonly #chargeSet: ChargeSet
  readonly #taken: Taken
  #requestId: string | undefined
  #reported: number | undefined
  #outcomes: readonly Outcome[] | undefined
  #settled = false
  #released = false

  constructor(context: DecisionContext, chargeSet: ChargeSet, taken: Taken, requestId: string | undefined) {
    this.allowed = taken.granted
    this.#context = context
    this.#chargeSet = chargeSet
    this.#taken = taken
    this.#requestId = requestId
  }

  get ruleId(): string | null {
    return this.#limit?.rule.id ?? null
  }

  get limit(): number | null {
    return this.#limit?.limit.units ?? null
  }

  get remaining(): number | null {
    return this.#grant?.remaining ?? null
  }

  get resetAfterMs(): number | null {
    return this.allowed ? this.fullAfterMs : this.retryAfterMs
  }

  get resetAtMs(): number | null {
    return this.allowed ? this.fullAtMs : this.#wallMs(this.#grant?.retryAfterUs)
  }

  get fullAfterMs(): number | null {
    const grant = this.#grant
    return grant === undefined ? null : wholeMs(grant.resetAfterUs)
  }

  get fullAtMs(): number | null {
    return this.#wallMs(this.#grant?.resetAfterUs)
  }

  get retryAfterMs(): number | null {
    const grant = this.#grant
    if (grant === undefined) return null
    return this.allowed ? 0 : finiteMs(grant.retryAfterUs)
  }

  get delayMs(): number {
    return longestDelayMs(this.#chargeSet, this.#taken)
  }

  get source(): Source {
    return this.#taken.source
  }

  get policyReason(): PolicyReason | undefined {
    return this.#taken.policyReason
  }

  get stale(): true | undefined {
    return this.#taken.stale === true ? true : undefined
  }

  get version(): number {
    return this.#chargeSet.version
  }

  get requestId(): string {
    this.#requestId ??= this.#context.newId()
    return this.#requestId
  }

  get outcomes(): readonly Outcome[] {
    this.#outcomes ??= this.#chargeSet.limits.flatMap((limit, index) => {
      const charge = this.#chargeSet.charges[index] as Charge // one charge and one grant per limit, in the same order
      return charge.kind === 'counterfactual' ? [] : outcomeOf(limit, charge, this.#taken.grants[index] as Grant)
    })
    return this.#outcomes
  }

  get exceptions(): readonly AppliedException[] {
    return this.#chargeSet.exceptions.list
  }

  get status(): 403 | undefined {
    return this.allowed ? undefined : this.#chargeSet.exceptions.status
  }

  /**
   * Builds give operations for all units not yet given back; later calls return none. `isRetry`: the refund was
   * attempted before.
   */
  refundGives(units: number | undefined, isRetry: boolean): Give[] {
    if (this.#settled) return []
    const released = this.#released
    this.#settled = this.#released = true
    return this.#gives(({ limit }) => !(released && hasPermits(limit)), units, isRetry)
  }

  /** Call when the store did not confirm the last gives: the next call returns them again. */
  giveFailed(): void {
    this.#settled = this.#released = false
  }

  /** Builds give operations for all units it took, including those already given back. */
  get allGives(): Give[] {
    return this.#gives(() => true)
  }

  /** Builds the give operations that release its permits; later calls return none. */
  releaseGives(): Give[] {
    if (this.#released) return []
    this.#released = true
    return this.#gives(({ limit }) => hasPermits(limit))
  }

  /** Charges of its permits; undefined if they were released, or if the request was refused. */
  permitCharges(): Charge[] | undefined {
    if (this.#released || !this.allowed) return undefined
    return this.#chargeSet.charges.filter(({ limit }, index) => hasPermits(limit) && this.#taken.grants[index]?.units)
  }

  get bucket(): DecidingBucket | undefined {
    const [compiled, charge] = [this.#limit, this.#chargeSet.charges[this.#index]]
    if (compiled === undefined || charge === undefined) return undefined
    const { rule, name, limit } = compiled
    return { ruleId: rule.id, name, fact: limit.fact, owner: charge.owner, detail: charge.detail }
  }

  get compiledLimit(): CompiledLimit | undefined {
    return this.#limit
  }

  get pairs(): readonly Pair[] {
    return pairsIn(this.#chargeSet, this.#taken)
  }

  get storeTimeUs(): number | undefined {
    return this.#taken.nowUs === 0 ? undefined : this.#taken.nowUs
  }

  /** Op id of its permits. */
  get op(): Op | undefined {
    return this.#chargeSet.op
  }

  toJSON(): Decision {
    const { allowed, ruleId, limit, remaining, resetAfterMs, resetAtMs, fullAfterMs, fullAtMs } = this
    const { retryAfterMs, delayMs, source, version, requestId, outcomes } = this
    const times = { resetAfterMs, resetAtMs, fullAfterMs, fullAtMs, retryAfterMs, delayMs }
    const { policyReason, stale, exceptions, status } = this
    const flags = { ...(policyReason && { policyReason }), ...(stale && { stale }), ...(status && { status }) }
    return { allowed, ruleId, limit, remaining, ...times, source, ...flags, version, requestId, outcomes, exceptions }
  }

  /** The reported limit. */
  get #limit(): CompiledLimit | undefined {
    return this.#chargeSet.limits[this.#index]
  }

  get #grant(): Grant | undefined {
    return this.#taken.grants[this.#index]
  }

  /** A time after the decision as a wall-clock time. */
  #wallMs(afterUs: number | undefined): number | null {
    const { nowUs } = this.#taken
    if (afterUs === undefined || nowUs === 0) return null
    return finiteMs(nowUs + afterUs + this.#context.wallAheadUs())
  }

  get #index(): number {
    this.#reported ??= reportedIndex(this.#chargeSet, this.#taken)
    return this.#reported
  }

  #gives(wanted: (charge: Charge) => boolean, units = Number.POSITIVE_INFINITY, remote = false): Give[] {
    const gives: Give[] = []
    this.#chargeSet.charges.forEach((charge, index) => {
      const grant = this.#taken.grants[index]
      const taken = Math.min(units, grant?.units ?? 0)
      if (taken <= 0 || !wanted(charge)) return
      const { owner, detail } = charge
      const limit = grant?.sublimit ?? charge.limit
      const leasedUs = grant?.bookedUs
      // Held units start to refill when they are spent; windows and logs find units by their booking time.
      const spentUs = ALGORITHMS[limit.algorithm].lease === 'held' ? grant?.spentUs : undefined
      const bookedUs = spentUs ?? leasedUs ?? grant?.at?.nowUs ?? this.#taken.nowUs
      gives.push({ limit, owner, detail, units: taken, bookedUs, leasedUs, remote })
    })
    return gives
  }
}

/** Throws OPTION_INVALID for a copy of a decision. */
export function requireOwn(decision: Decision): LimiterDecision {
  if (decision instanceof LimiterDecision) return decision
  throw optionInvalid(
    'decision',
    decision,
    'pass the object that check returned, not a copy: a copy cannot be refunded',
  )
}

/** Output of console.log in Node.js. */
Object.defineProperty(LimiterDecision.prototype, Symbol.for('nodejs.util.inspect.custom'), {
  value(this: LimiterDecision): Decision {
    return this.toJSON()
  },
})

/** Index of the reported limit. Ties: higher priority, then the rule id that sorts first. */
function reportedIndex({ charges, limits }: ChargeSet, { granted, grants }: Taken): number {
  let best = -1
  for (let index = 0; index < limits.length; index += 1) {
    const grant = grants[index] as Grant // one per charge
    if (!isReported(charges[index]) || (!granted && grant.short === false)) continue
    if (best < 0 || compareReported(index, best, limits, granted, grants) < 0) best = index
  }
  return best
}

/** Neither shadow nor counterfactual charges affect the request. */
function isReported(charge: Charge | undefined): boolean {
  return charge?.kind !== 'shadow' && charge?.kind !== 'counterfactual'
}

/** Negative if `a` is reported rather than `b`. */
function compareReported(
  a: number,
  b: number,
  limits: readonly CompiledLimit[],
  granted: boolean,
  grants: readonly Grant[],
): number {
  const [limitA, limitB] = [limits[a] as CompiledLimit, limits[b] as CompiledLimit] // valid indexes
  const [grantA, grantB] = [grants[a] as Grant, grants[b] as Grant]
  const first = granted
    ? grantA.remaining * limitB.limit.units - grantB.remaining * limitA.limit.units
    : grantA.retryAfterUs === grantB.retryAfterUs
      ? 0 // both may be Infinity, which cannot be subtracted
      : grantB.retryAfterUs - grantA.retryAfterUs
  return first || limitB.rule.priority - limitA.rule.priority || (limitA.rule.id < limitB.rule.id ? -1 : 1)
}

function outcomeOf({ rule, name, limit }: CompiledLimit, charge: Charge, grant: Grant): Outcome {
  const fullAfterMs = wholeMs(grant.resetAfterUs)
  const retryAfterMs = finiteMs(grant.retryAfterUs)
  return {
    ruleId: rule.id,
    name,
    scope: rule.scope,
    algorithm: limit.algorithm,
    mode: rule.shadow ? 'shadow' : 'enforce',
    allowed: grant.short === false,
    short: grant.short,
    limit: limit.units,
    burst: limit.capacity,
    windowMs: Math.ceil(limit.windowUs / 1000),
    cost: charge.min,
    remaining: grant.remaining,
    resetAfterMs: grant.short === false ? fullAfterMs : retryAfterMs,
    fullAfterMs,
    retryAfterMs,
    delayMs: wholeMs(grant.delayUs),
    priority: rule.priority,
    ...(rule.version && { variant: rule.version.variant }),
  }
}

/** Limits in shadow mode and counterfactual ones do not delay. */
function longestDelayMs({ charges }: ChargeSet, { grants }: Taken): number {
  let longestUs = 0
  for (let index = 0; index < charges.length; index += 1) {
    const delayUs = grants[index]?.delayUs ?? 0
    if (delayUs > longestUs && isReported(charges[index])) longestUs = delayUs
  }
  return wholeMs(longestUs)
}

/** Rounds up, so that a client that waits the reported time is admitted. */
function wholeMs(us: number): number {
  return Math.ceil(us / 1000)
}

function finiteMs(us: number): number | null {
  return us === Number.POSITIVE_INFINITY ? null : wholeMs(us)
}
