// What a check answers: one outcome per rule and limit, and the one of them that a client is told about.

import type { AlgorithmName } from './algorithms/limit.ts'
import { isPermit } from './receipt.ts'
import type { CompiledLimit } from './rules/compile.ts'
import type { Plan } from './rules/plan.ts'
import type { Charge, Give, Grant, Op, Short, Source, Taken } from './store/store.ts'

/** One limit of one rule, as it stands after the check. */
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
  readonly resetAfterMs: number
  /** null: waiting will not help (a ban, or a cost above the capacity). */
  readonly retryAfterMs: number | null
  readonly delayMs: number
  readonly priority: number
}

/**
 * Allowed or refused, with the numbers of the limit that decides: when refused, the failing limit with the longest
 * wait; when allowed, the one with the lowest `remaining / limit`. All numbers are null when no rule matched.
 */
export type Decision = {
  readonly allowed: boolean
  readonly ruleId: string | null
  readonly limit: number | null
  readonly remaining: number | null
  readonly resetAfterMs: number | null
  /**
   * The same as a time of day: by the clock of Redis, so that it does not vary from check to check, or that of this
   * machine, if buckets are in memory. null if the store was not asked.
   */
  readonly resetAtMs: number | null
  /** 0 when allowed; null when waiting will not help. */
  readonly retryAfterMs: number | null
  /** How long an admitted request should wait before it goes on (leaky bucket). */
  readonly delayMs: number
  readonly source: Source
  /** Of a peek: it was read off a replica, or may have been, and so may be behind. */
  readonly stale?: true | undefined
  /** Version of the rule set that decided. */
  readonly version: number
  readonly requestId: string
  readonly outcomes: readonly Outcome[]
}

/** Which bucket decided. It names the client, so a decision does not carry it around for everybody to print. */
export type DecidingBucket = {
  readonly ruleId: string
  /** Name of the limit within its rule. */
  readonly name: string
  /** Which fact the owner is: `user`, `ip`, …, or `` for one bucket in all. */
  readonly fact: string
  readonly owner: string
  readonly detail: string
}

/** The bucket of the limit that a decision reports; undefined when no rule matched, or for a copy of a decision. */
export function bucketOf(decision: Decision): DecidingBucket | undefined {
  return decision instanceof Decided ? decision.bucket : undefined
}

/** What all decisions of one limiter share. */
export type Decider = {
  newId(): string
  /** How far the time of day is ahead of the store's. */
  wallAheadUs(): number
  /**
   * V8 forgets the shape of objects of which a full collection finds none, and all code compiled for it. While one of
   * all that a decision is made of is alive, it does not (docs/decisions/0018).
   */
  last: Decision | undefined
}

/** The answer to a request that no rule is for. */
export const NOTHING_TO_CHARGE: Taken = { granted: true, nowUs: 0, grants: [], source: 'local', replayed: false }

/**
 * A decision that remembers what it took, so that it can be given back. Its numbers are worked out when they are asked
 * for: a check is quicker for it, and few callers read them all.
 */
export class Decided implements Decision {
  readonly allowed: boolean
  readonly #decider: Decider
  readonly #plan: Plan
  readonly #taken: Taken
  #requestId: string | undefined
  #reported: number | undefined
  #outcomes: readonly Outcome[] | undefined
  #settled = false
  #released = false

  constructor(decider: Decider, plan: Plan, taken: Taken, requestId: string | undefined) {
    this.allowed = taken.granted
    this.#decider = decider
    this.#plan = plan
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
    const grant = this.#grant
    return grant === undefined ? null : wholeMs(grant.resetAfterUs)
  }

  get resetAtMs(): number | null {
    const grant = this.#grant
    const { nowUs } = this.#taken
    if (grant === undefined || nowUs === 0) return null
    return wholeMs(nowUs + grant.resetAfterUs + this.#decider.wallAheadUs())
  }

  get retryAfterMs(): number | null {
    const grant = this.#grant
    if (grant === undefined) return null
    return this.allowed ? 0 : finiteMs(grant.retryAfterUs)
  }

  get delayMs(): number {
    return longestDelayMs(this.#plan, this.#taken)
  }

  get source(): Source {
    return this.#taken.source
  }

  get stale(): true | undefined {
    return this.#taken.stale === true ? true : undefined
  }

  get version(): number {
    return this.#plan.version
  }

  get requestId(): string {
    this.#requestId ??= this.#decider.newId()
    return this.#requestId
  }

  get outcomes(): readonly Outcome[] {
    this.#outcomes ??= this.#plan.limits.map((limit, index) => {
      // One charge and one grant per limit, in the same order.
      return outcomeOf(limit, this.#plan.charges[index] as Charge, this.#taken.grants[index] as Grant)
    })
    return this.#outcomes
  }

  /** What it took and has not given back yet; once asked, nothing is left. `retries`: it was asked before. */
  takeBack(units: number | undefined, retries: boolean): Give[] {
    if (this.#settled) return [] // what a policy let pass took no units
    const released = this.#released
    this.#settled = this.#released = true
    return this.#gives(({ limit }) => !(released && isPermit(limit)), units, retries)
  }

  /** The store has not confirmed that it got back what was last asked for: that can be asked for again. */
  notReturned(): void {
    this.#settled = this.#released = false
  }

  /** All that it took. */
  get taken(): Give[] {
    return this.#gives(() => true)
  }

  /** The permits it holds, to be given back; once asked, it holds none. */
  release(): Give[] {
    if (this.#released) return []
    this.#released = true
    return this.#gives(({ limit }) => isPermit(limit))
  }

  /** What its permits were taken by; undefined when it has given them back, or was refused and never had any. */
  permits(): Charge[] | undefined {
    if (this.#released || !this.allowed) return undefined
    return this.#plan.charges.filter(({ limit }, index) => isPermit(limit) && this.#taken.grants[index]?.units)
  }

  /** The bucket of the limit that is reported. */
  get bucket(): DecidingBucket | undefined {
    const [compiled, charge] = [this.#limit, this.#plan.charges[this.#index]]
    if (compiled === undefined || charge === undefined) return undefined
    const { rule, name, limit } = compiled
    return { ruleId: rule.id, name, fact: limit.fact, owner: charge.owner, detail: charge.detail }
  }

  /** What its permits are known by. */
  get op(): Op | undefined {
    return this.#plan.op
  }

  toJSON(): Decision {
    const { allowed, ruleId, limit, remaining, resetAfterMs, resetAtMs, retryAfterMs, delayMs, source } = this
    const numbers = { ruleId, limit, remaining, resetAfterMs, resetAtMs, retryAfterMs, delayMs }
    const { version, requestId, outcomes, stale } = this
    return { allowed, ...numbers, source, ...(stale && { stale }), version, requestId, outcomes }
  }

  /** The limit that is reported. */
  get #limit(): CompiledLimit | undefined {
    return this.#plan.limits[this.#index]
  }

  get #grant(): Grant | undefined {
    return this.#taken.grants[this.#index]
  }

  get #index(): number {
    this.#reported ??= reportedOf(this.#plan, this.#taken)
    return this.#reported
  }

  #gives(wanted: (charge: Charge) => boolean, units = Number.POSITIVE_INFINITY, remote = false): Give[] {
    const gives: Give[] = []
    this.#plan.charges.forEach((charge, index) => {
      const grant = this.#taken.grants[index]
      const taken = Math.min(units, grant?.units ?? 0)
      if (taken <= 0 || !wanted(charge)) return
      const { owner, detail } = charge
      const limit = grant?.part ?? charge.limit
      const leasedUs = grant?.bookedUs
      // Units on lease do not flow back before they are spent; windows and logs know them by when they were charged.
      const spentUs = limit.algorithm === 'token_bucket' ? grant?.spentUs : undefined
      const bookedUs = spentUs ?? leasedUs ?? grant?.at?.nowUs ?? this.#taken.nowUs
      gives.push({ limit, owner, detail, units: taken, bookedUs, leasedUs, remote })
    })
    return gives
  }
}

/** What Node's console shows of a decision. */
Object.defineProperty(Decided.prototype, Symbol.for('nodejs.util.inspect.custom'), {
  value(this: Decided): Decision {
    return this.toJSON()
  },
})

/** Index of the limit that the decision reports. Ties: higher priority, then the rule id that sorts first. */
function reportedOf({ charges, limits }: Plan, { granted, grants }: Taken): number {
  let best = -1
  for (let index = 0; index < charges.length; index += 1) {
    const grant = grants[index] as Grant // one per charge
    if (charges[index]?.kind === 'shadow' || (!granted && grant.short === false)) continue
    if (best < 0 || comparedTo(index, best, limits, granted, grants) < 0) best = index
  }
  return best
}

/** Below 0 when `a` says more than `b`. */
function comparedTo(
  a: number,
  b: number,
  limits: readonly CompiledLimit[],
  granted: boolean,
  grants: readonly Grant[],
): number {
  const [limitA, limitB] = [limits[a] as CompiledLimit, limits[b] as CompiledLimit] // both indexes are within the plan
  const [grantA, grantB] = [grants[a] as Grant, grants[b] as Grant]
  const first = granted
    ? grantA.remaining * limitB.limit.units - grantB.remaining * limitA.limit.units
    : grantA.retryAfterUs === grantB.retryAfterUs
      ? 0 // both may be Infinity, which cannot be subtracted
      : grantB.retryAfterUs - grantA.retryAfterUs
  return first || limitB.rule.priority - limitA.rule.priority || (limitA.rule.id < limitB.rule.id ? -1 : 1)
}

function outcomeOf({ rule, name, limit }: CompiledLimit, charge: Charge, grant: Grant): Outcome {
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
    resetAfterMs: wholeMs(grant.resetAfterUs),
    retryAfterMs: finiteMs(grant.retryAfterUs),
    delayMs: wholeMs(grant.delayUs),
    priority: rule.priority,
  }
}

/** A limit in shadow delays nobody. */
function longestDelayMs({ charges }: Plan, { grants }: Taken): number {
  let longestUs = 0
  for (let index = 0; index < charges.length; index += 1) {
    const delayUs = grants[index]?.delayUs ?? 0
    if (delayUs > longestUs && charges[index]?.kind !== 'shadow') longestUs = delayUs
  }
  return wholeMs(longestUs)
}

/** Rounded up: told to wait 3 ms, a client that waits 3 ms is admitted. */
function wholeMs(us: number): number {
  return Math.ceil(us / 1000)
}

function finiteMs(us: number): number | null {
  return us === Number.POSITIVE_INFINITY ? null : wholeMs(us)
}
