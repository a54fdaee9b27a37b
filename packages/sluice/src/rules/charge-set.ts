// The charges of one request. Objects come from constructors, and lists are copies of an empty array: V8 pretenures
// literals whose first instances survive a collection, and the objects they refer to are then collected late. With five
// rules per check on Redis, the p99 of a decision fell from 5.9–8.7 ms to 3.1–3.4 ms (docs/decisions/0018).

import type { Limit } from '../algorithms/limit.ts'
import type { Charge, ChargeKind, Op } from '../store/store.ts'
import type { CompiledLimit, Variant } from './compile.ts'
import { type AppliedExceptions, NOTHING_APPLIED } from './exception.ts'

/**
 * Charges for the store; `limits[i]` is the limit of `charges[i]`. The charge of a bypass token comes last, without an
 * entry in `limits`: it is not reported.
 */
export class ChargeSet {
  readonly charges: readonly Charge[]
  readonly limits: readonly CompiledLimit[]
  readonly op: Op | undefined
  /** Version of the rule set it came from: other rules may become active before the store replies. */
  readonly version: number
  readonly exceptions: AppliedExceptions

  constructor(
    charges: readonly Charge[],
    limits: readonly CompiledLimit[],
    op: Op | undefined,
    version: number,
    exceptions: AppliedExceptions = NOTHING_APPLIED,
  ) {
    this.charges = charges
    this.limits = limits
    this.op = op
    this.version = version
    this.exceptions = exceptions
  }
}

/** Charges of a request with pairs: rules of which both versions are charged. */
export class PairedChargeSet extends ChargeSet {
  readonly pairs: readonly ChargedPair[]

  constructor({ charges, limits, op, version, exceptions }: ChargeSet, pairs: readonly ChargedPair[]) {
    super(charges, limits, op, version, exceptions)
    this.pairs = pairs
  }
}

/** A rule under rollout whose versions are both charged; `pair` is the pair id of their charges. */
export type ChargedPair = {
  readonly ruleId: string
  readonly pair: number
  readonly owner: string
  readonly enforced: Variant
}

/** The full cost of a request at one limit. */
export class RuleCharge implements Charge {
  readonly limit: Limit
  readonly owner: string
  readonly detail: string
  readonly min: number
  readonly max: number
  readonly kind: ChargeKind

  constructor(limit: Limit, owner: string, detail: string, units: number, kind: ChargeKind) {
    this.limit = limit
    this.owner = owner
    this.detail = detail
    this.min = units
    this.max = units
    this.kind = kind
  }
}

/** Charge of one version of a rule, compared with the other one. */
export class PairedCharge extends RuleCharge {
  readonly pair: number

  constructor(limit: Limit, owner: string, detail: string, units: number, kind: ChargeKind, pair: number) {
    super(limit, owner, detail, units, kind)
    this.pair = pair
  }
}

/** Held an object once, so that its copies start with the elements kind for objects. */
const EMPTY: unknown[] = [{}]
EMPTY.pop()

export function emptyList<T>(): T[] {
  return EMPTY.slice() as T[]
}
